#include <aloni/nn/data/sample_values.hpp>

#include <aloni/core/bfloat16.hpp>
#include <aloni/core/float16.hpp>
#include <aloni/nn/compiled_activations.hpp>
#include <aloni/nn/data/target_values.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

namespace aloni::nn {

using views::Box;
using views::Dim;
using views::Extents;

namespace {

/// `box` of the changed sample into `to`, by `value(channel, stored)`. `stored` holds the elements of source_box().
/// Background is value(channel, 0).
template <class Stored, class T, class Value>
void map_box(const Stored* stored, const Augmentation& change, const Extents& extents, const Box& box,
             const Value& value, T* to) {
  const Box source = source_box(change, extents, box);
  const Index width = box.extent(Dim::width), channels = box.extent(Dim::channel);
  const Index first_channel = box.lower(Dim::channel);
  // Columns [first, last) of the box show stored columns, one after the other, forwards or backwards.
  const Index columns = source.extent(Dim::width);
  const Index lower = change.flip
                          ? extents[Dim::width] - source.upper(Dim::width) - change.shift.right - box.lower(Dim::width)
                          : source.lower(Dim::width) + change.shift.right - box.lower(Dim::width);
  const Index first = columns > 0 ? lower : width, last = first + columns;
  const auto background = [&](Index from, Index until) {
    for (Index w = from; w < until; ++w)
      for (Index c = 0; c < channels; ++c) *to++ = value(first_channel + c, Stored{0});
  };
  for (Index d = 0; d < box.extent(Dim::depth); ++d) {
    for (Index h = 0; h < box.extent(Dim::height); ++h) {
      const Index row = box.lower(Dim::height) + h - change.shift.down - source.lower(Dim::height);
      if (columns == 0 || row < 0 || row >= source.extent(Dim::height)) {
        background(0, width);
        continue;
      }
      background(0, first);
      const Stored* line = stored + (d * source.extent(Dim::height) + row) * columns * channels;
      if (change.flip) {
        for (Index w = columns - 1; w >= 0; --w)
          for (Index c = 0; c < channels; ++c) *to++ = value(first_channel + c, line[w * channels + c]);
      } else if constexpr (Value::one_for_all_channels) {
        for (Index i = 0; i < columns * channels; ++i) to[i] = value(0, line[i]);
        to += columns * channels;
      } else {
        for (Index w = 0; w < columns; ++w)
          for (Index c = 0; c < channels; ++c) *to++ = value(first_channel + c, *line++);
      }
      background(last, width);
    }
  }
}

template <class T>
struct AsStored {
  static constexpr bool one_for_all_channels = true;
  template <class Stored>
  T operator()(Index, Stored stored) const {
    return static_cast<T>(stored);
  }
};

/// The normalised value of one channel.
struct ChannelValue {
  double scale, mean, deviation, brightness, contrast;
  bool jitters;

  ChannelValue(const Normalisation& n, const Augmentation& change, Index channel)
      : scale(n.scale),
        mean(n.mean[n.mean.size() > 1 ? static_cast<std::size_t>(channel) : 0]),
        deviation(n.deviation[n.deviation.size() > 1 ? static_cast<std::size_t>(channel) : 0]),
        brightness(change.brightness),
        contrast(change.contrast),
        jitters(!change.keeps_values()) {}

  double operator()(double stored) const {
    return jitters ? (stored * scale * brightness - mean) * contrast / deviation : (stored * scale - mean) / deviation;
  }
};

template <class T, bool OneForAll>
struct Normalised {
  static constexpr bool one_for_all_channels = OneForAll;
  const ChannelValue* channels;

  template <class Stored>
  T operator()(Index channel, Stored stored) const {
    return static_cast<T>(channels[OneForAll ? 0 : channel](static_cast<double>(stored)));
  }
};

/// Bytes have 256 values: a table saves the division of each element.
template <class T, bool OneForAll>
struct Tabulated {
  static constexpr bool one_for_all_channels = OneForAll;
  const std::array<T, 256>* channels;

  T operator()(Index channel, std::uint8_t stored) const { return channels[OneForAll ? 0 : channel][stored]; }
};

template <bool OneForAll, class Stored, class T>
void map_input(const Stored* stored, const std::vector<ChannelValue>& channels, const Augmentation& change,
               const Extents& extents, const Box& box, T* to) {
  if constexpr (std::is_same_v<Stored, std::uint8_t>) {
    std::vector<std::array<T, 256>> tables(channels.size());
    for (std::size_t c = 0; c < channels.size(); ++c)
      for (int p = 0; p < 256; ++p) tables[c][static_cast<std::size_t>(p)] = static_cast<T>(channels[c](p));
    map_box(stored, change, extents, box, Tabulated<T, OneForAll>{tables.data()}, to);
  } else {
    map_box(stored, change, extents, box, Normalised<T, OneForAll>{channels.data()}, to);
  }
}

bool is_identity(const Normalisation& n) {
  const auto all = [](const std::vector<double>& values, double x) {
    return std::all_of(values.begin(), values.end(), [x](double v) { return v == x; });
  };
  return n.scale == 1 && all(n.mean, 0) && all(n.deviation, 1);
}

/// f(elements of source_box()), as pointer to the stored type. They are read to `scratch`.
template <class Function>
void with_source(const SampleArray& array, Index sample, const Augmentation& change, const Box& box,
                 std::vector<std::byte>& scratch, const Function& f) {
  const Box source = source_box(change, array.extents(), box);
  scratch.resize(static_cast<std::size_t>((source.empty() ? 0 : source.size()) * bytes_of(array.type())));
  array.read(sample, source, scratch);
  with_stored_type(array.type(),
                   [&](auto tag) { f(reinterpret_cast<const typename decltype(tag)::type*>(scratch.data())); });
}

/// The targets may have other extents than the input, for example none in space. Then only their columns are mirrored.
Augmentation change_of_targets(const Dataset& set, const Augmentation& change) {
  Augmentation of_targets{.shift = change.shift, .flip = change.flip};
  const Extents &input = set.inputs->extents(), &targets = set.targets->extents();
  if (input[Dim::height] != targets[Dim::height] || input[Dim::width] != targets[Dim::width]) of_targets.shift = {};
  return of_targets;
}

template <class T>
bool stores(StoredType type) {
  return (std::is_same_v<T, float> && type == StoredType::float32) ||
         (std::is_same_v<T, double> && type == StoredType::float64);
}

}  // namespace

template <class T>
void read_input(const Dataset& set, Index sample, const Augmentation& change, const Box& box,
                std::vector<std::byte>& scratch, std::span<T> into) {
  if (box.empty()) return;
  const SampleArray& array = *set.inputs;
  const bool as_stored = is_identity(set.normalisation) && change.keeps_values();
  if (as_stored && change.keeps_places() && stores<T>(array.type()))
    return array.read(sample, box, std::as_writable_bytes(into));
  with_source(array, sample, change, box, scratch, [&](const auto* stored) {
    if (as_stored) return map_box(stored, change, array.extents(), box, AsStored<T>{}, into.data());
    const bool one = set.normalisation.mean.size() == 1 && set.normalisation.deviation.size() == 1;
    std::vector<ChannelValue> channels;
    for (Index c = 0; c < (one ? 1 : array.extents()[Dim::channel]); ++c)
      channels.emplace_back(set.normalisation, change, c);
    one ? map_input<true>(stored, channels, change, array.extents(), box, into.data())
        : map_input<false>(stored, channels, change, array.extents(), box, into.data());
  });
}

template <class T>
void read_target_elements(const Dataset& set, Index sample, const Augmentation& change, const Box& box,
                          std::vector<std::byte>& scratch, std::span<T> into) {
  if (box.empty()) return;
  const SampleArray& array = *set.targets;
  const Augmentation moved = change_of_targets(set, change);
  if (moved.keeps_places() && stores<T>(array.type())) return array.read(sample, box, std::as_writable_bytes(into));
  with_source(array, sample, moved, box, scratch,
              [&](const auto* stored) { map_box(stored, moved, array.extents(), box, AsStored<T>{}, into.data()); });
}

void read_pixel_labels(const Dataset& set, Index sample, const Augmentation& change, const Box& box, Index classes,
                       std::vector<int>& scratch, std::span<int> into) {
  if (box.empty()) return;
  const SampleArray& array = *set.targets;
  const Augmentation moved = change_of_targets(set, change);
  if (moved.keeps_places()) return read_labels(array, sample, box, classes, into);
  const Box source = source_box(moved, array.extents(), box);
  scratch.resize(static_cast<std::size_t>(source.empty() ? 0 : source.size()));
  read_labels(array, sample, source, classes, scratch);
  map_box(scratch.data(), moved, array.extents(), box, AsStored<int>{}, into.data());
}

#define INSTANTIATE(T)                                                                                                \
  template void read_input(const Dataset&, Index, const Augmentation&, const Box&, std::vector<std::byte>&,           \
                           std::span<T>);                                                                             \
  template void read_target_elements(const Dataset&, Index, const Augmentation&, const Box&, std::vector<std::byte>&, \
                                     std::span<T>);
INSTANTIATE(float)
ALONI_WITH_DOUBLE(INSTANTIATE(double))
ALONI_WITH_BFLOAT16(INSTANTIATE(comm::bfloat16))
ALONI_WITH_FLOAT16(INSTANTIATE(comm::float16))
#undef INSTANTIATE

}  // namespace aloni::nn
