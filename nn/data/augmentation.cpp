#include <aloni/nn/data/augmentation.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/host_random.hpp>

namespace aloni::nn {

using views::Box;
using views::Dim;

namespace {

// One stream for each epoch. 2^32 belongs to the order of samples, 2^34 and 2^40 and above to dropout, 2^36 and 2^37 to
// synthetic data.
constexpr std::uint64_t shift_stream = std::uint64_t{1} << 33, flip_stream = std::uint64_t{1} << 38;
constexpr std::uint64_t brightness_stream = flip_stream + (std::uint64_t{1} << 32);
constexpr std::uint64_t contrast_stream = flip_stream + (std::uint64_t{1} << 33);

}  // namespace

void check(const AugmentationOptions& options, const std::string& operation) {
  if (options.shift < 0) throw InvalidArgument(operation, "shift", std::to_string(options.shift), "at least 0 pixels");
  for (const auto& [name, jitter] :
       {std::pair("brightness", options.brightness), std::pair("contrast", options.contrast)}) {
    if (!(jitter >= 0 && jitter <= 1)) throw InvalidArgument(operation, name, std::to_string(jitter), "from 0 to 1");
  }
}

Augmentation draw_augmentation(const AugmentationOptions& options, std::uint64_t seed, std::uint64_t epoch,
                               Index sample) {
  const auto index = static_cast<std::uint64_t>(sample);
  Augmentation change;
  if (options.shift > 0) {
    const std::uint64_t choices = 2 * static_cast<std::uint64_t>(options.shift) + 1;
    const std::uint64_t bits = random::host_integer(seed, shift_stream + epoch, index);
    change.shift = {static_cast<int>((bits & 0xffffffff) % choices) - options.shift,
                    static_cast<int>((bits >> 32) % choices) - options.shift};
  }
  if (options.flip) change.flip = (random::host_integer(seed, flip_stream + epoch, index) & 1) != 0;
  const auto factor = [&](double jitter, std::uint64_t stream) {
    return jitter > 0 ? 1 + jitter * (2 * random::host_uniform(seed, stream + epoch, index) - 1) : 1;
  };
  change.brightness = factor(options.brightness, brightness_stream);
  change.contrast = factor(options.contrast, contrast_stream);
  return change;
}

Box source_box(const Augmentation& change, const views::Extents& extents, const Box& box) {
  Box source = box;
  const Index width = extents[Dim::width];
  if (change.flip) source.set(Dim::width, width - box.upper(Dim::width), width - box.lower(Dim::width));
  const auto move = [&](Dim d, Index by) { source.set(d, source.lower(d) - by, source.upper(d) - by); };
  move(Dim::height, change.shift.down);
  move(Dim::width, change.shift.right);
  return intersect(source, whole(extents));
}

}  // namespace aloni::nn
