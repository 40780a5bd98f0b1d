#include <aloni/nn/data/dataset.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/data/labelled_images.hpp>
#include <aloni/nn/data/memory_array.hpp>

#include <cmath>
#include <span>

namespace aloni::nn {

using views::Dim;

const char* name(TargetKind kind) {
  switch (kind) {
    case TargetKind::none:
      return "none";
    case TargetKind::sample_labels:
      return "sample_labels";
    case TargetKind::pixel_labels:
      return "pixel_labels";
    case TargetKind::elements:
      break;
  }
  return "elements";
}

void check(const Dataset& set, const std::string& operation) {
  const auto require = [&](bool good, const char* argument, const std::string& value, const std::string& expectation) {
    if (!good) throw InvalidArgument(operation, argument, value, expectation);
  };
  require(set.inputs != nullptr, "inputs", "none", "an array of samples");
  const bool has_targets = set.targets != nullptr;
  require(has_targets == (set.target_kind != TargetKind::none), "target_kind", name(set.target_kind),
          has_targets ? "the kind of the given targets" : "none, as there are no targets");
  const Normalisation& n = set.normalisation;
  const auto channels = static_cast<std::size_t>(set.inputs->extents()[Dim::channel]);
  for (const auto* values : {&n.mean, &n.deviation}) {
    require(values->size() == 1 || values->size() == channels, "normalisation",
            std::to_string(values->size()) + " values", "1, or " + std::to_string(channels) + ", one for each channel");
  }
  for (const double d : n.deviation) {
    require(std::isfinite(d) && d > 0, "deviation", std::to_string(d), "a finite number above 0");
  }
  if (!has_targets) return;
  const SampleArray& targets = *set.targets;
  require(targets.size() == set.size(), "targets", std::to_string(targets.size()) + " in " + targets.name(),
          std::to_string(set.size()) + ", as there are samples in " + set.inputs->name());
  if (set.target_kind == TargetKind::elements) return;
  require(is_integer(targets.type()), "targets", std::string(name(targets.type())) + " in " + targets.name(),
          "integers, as the targets are labels");
  const bool for_pixels = set.target_kind == TargetKind::pixel_labels;
  require(for_pixels ? targets.extents()[Dim::channel] == 1 : targets.extents().size() == 1, "targets",
          to_string(targets.extents()) + " in " + targets.name(),
          for_pixels ? "one channel, as each pixel has one label" : "one label for each sample");
}

Normalisation usual_normalisation(StoredType type) { return {.scale = type == StoredType::uint8 ? 1.0 / 255.0 : 1.0}; }

Dataset as_dataset(const LabelledImages& images) {
  return {
      .inputs = memory_array("images", std::as_bytes(std::span(images.pixels)), StoredType::uint8, images.image),
      .targets = memory_array("labels", std::as_bytes(std::span(images.labels)), StoredType::uint8, {{1, 1, 1, 1, 1}}),
      .target_kind = TargetKind::sample_labels,
      .classes = images.classes,
      .normalisation = {images.scale, {images.mean}, {images.deviation}}};
}

}  // namespace aloni::nn
