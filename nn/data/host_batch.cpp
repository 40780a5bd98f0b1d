#include <aloni/nn/data/host_batch.hpp>

#include <aloni/core/bfloat16.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/float16.hpp>
#include <aloni/nn/compiled_activations.hpp>
#include <aloni/nn/data/sample_values.hpp>
#include <aloni/nn/data/target_values.hpp>

namespace aloni::nn {

using views::Box;
using views::Dim;
using views::Extents;

namespace {

/// f(position in the mini-batch, box within one sample, place in a buffer of `box`) for each sample of the box.
template <class Function>
void for_each_sample(const Box& box, const Function& f) {
  if (box.empty()) return;
  Box one = box;
  one.set(Dim::sample, 0, 1);
  const auto elements = static_cast<std::size_t>(one.size());
  std::size_t at = 0;
  for (Index n = box.lower(Dim::sample); n < box.upper(Dim::sample); ++n, at += elements) f(n, one, at, elements);
}

std::size_t size_of(const Box& box) { return static_cast<std::size_t>(box.empty() ? 0 : box.size()); }

/// One label for each element of the box without channels.
Box without_channels(Box box) {
  if (!box.empty()) box.set(Dim::channel, 0, 1);
  return box;
}

}  // namespace

template <class T>
void read_batch(const Dataset& set, const AugmentationDraws& draws, std::span<const Index> chosen,
                const BatchPart& part, HostBatch<T>& batch) {
  std::vector<std::byte> scratch;
  std::vector<int> label_scratch;
  const auto sample_of = [&](Index n) { return chosen[static_cast<std::size_t>(n)]; };
  const auto change_of = [&](Index n) {
    return draw_augmentation(draws.options, draws.seed, draws.epoch, sample_of(n));
  };
  batch.input.resize(size_of(part.input));
  for_each_sample(part.input, [&](Index n, const Box& box, std::size_t at, std::size_t count) {
    read_input(set, sample_of(n), change_of(n), box, scratch, std::span(batch.input).subspan(at, count));
  });
  const bool elements = part.targets == LossTargets::elements;
  const Box output = elements ? part.output : without_channels(part.output);
  batch.targets.resize(elements ? size_of(output) : 0);
  if (elements) {
    for_each_sample(output, [&](Index n, const Box& box, std::size_t at, std::size_t count) {
      read_target_elements(set, sample_of(n), change_of(n), box, scratch, std::span(batch.targets).subspan(at, count));
    });
    batch.labels.clear();
    return;
  }
  batch.labels.resize(size_of(output));
  for_each_sample(output, [&](Index n, const Box& box, std::size_t at, std::size_t count) {
    const auto into = std::span(batch.labels).subspan(at, count);
    if (part.targets == LossTargets::sample_labels) {
      read_labels(*set.targets, sample_of(n), box, part.classes, into);
    } else {
      read_pixel_labels(set, sample_of(n), change_of(n), box, part.classes, label_scratch, into);
    }
  });
}

void check_fits(const Dataset& set, const std::string& set_name, const NetworkDescription& network,
                const AugmentationOptions& augmentation, const std::string& operation) {
  const auto require = [&](bool good, const std::string& argument, const std::string& value,
                           const std::string& expectation) {
    if (!good) throw InvalidArgument(operation, set_name + "'s " + argument, value, expectation);
  };
  require(set.size() > 0, "samples", "0", "at least 1");
  const Extents& input = set.inputs->extents();
  require(input == network.input, "samples", to_string(input),
          "the extents of the network's input, " + to_string(network.input));
  const LossTargets wanted = targets_of(network.loss);
  const TargetKind kind = set.target_kind;
  const bool fits = wanted == LossTargets::sample_labels ? kind == TargetKind::sample_labels
                    : wanted == LossTargets::pixel_labels
                        ? kind == TargetKind::pixel_labels
                        : kind == TargetKind::elements || kind == TargetKind::pixel_labels;
  require(fits, "target_kind", name(kind),
          std::string(wanted == LossTargets::sample_labels  ? "sample_labels"
                      : wanted == LossTargets::pixel_labels ? "pixel_labels"
                                                            : "elements, or pixel_labels") +
              ", for the loss " + name(network.loss));
  Extents output = infer_extents(network, 1).back();
  const Index logits = output[Dim::channel];
  if (wanted != LossTargets::elements) {
    require(set.classes <= logits, "classes", std::to_string(set.classes),
            "at most " + std::to_string(logits) + ", the channels of the network's output");
    output[Dim::channel] = 1;
  }
  const Extents& targets = set.targets->extents();
  require(targets == output, "targets", to_string(targets), to_string(output) + ", from the network's output");
  const bool in_space = targets[Dim::height] > 1 || targets[Dim::width] > 1;
  const bool alike = targets[Dim::height] == input[Dim::height] && targets[Dim::width] == input[Dim::width];
  require(augmentation.shift == 0 || !in_space || alike, "shift", std::to_string(augmentation.shift),
          "0, as the targets " + to_string(targets) + " cannot move with samples of " + to_string(input));
}

#define INSTANTIATE(T)                                                                                         \
  template void read_batch(const Dataset&, const AugmentationDraws&, std::span<const Index>, const BatchPart&, \
                           HostBatch<T>&);
INSTANTIATE(float)
ALONI_WITH_DOUBLE(INSTANTIATE(double))
ALONI_WITH_BFLOAT16(INSTANTIATE(comm::bfloat16))
ALONI_WITH_FLOAT16(INSTANTIATE(comm::float16))
#undef INSTANTIATE

}  // namespace aloni::nn
