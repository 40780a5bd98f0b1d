#include <aloni/nn/data/batch.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/local/local_types.hpp>
#include <aloni/nn/local/pointwise.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <type_traits>

namespace aloni::nn {

using views::Box;
using views::Dim;

namespace {

/// Writes the values of `box` to host memory with the strides of `to`, on the threads of `exec`; complete on return.
/// Samples are counted within the mini-batch.
template <class T, class HostExec, class View>
void convert(const HostExec& exec, const LabelledImages& images, std::span<const Index> chosen,
             std::span<const Shift> shifts, const Box& box, const View& to) {
  std::array<T, 256> value;
  for (int p = 0; p < 256; ++p) {
    value[p] = static_cast<T>((p * images.scale - images.mean) / images.deviation);
  }
  const Index height = images.image[Dim::height], width = images.image[Dim::width],
              channels = images.image[Dim::channel];
  const auto convert_sample = [&](const Index n) {
    const Index sample = box.lower(Dim::sample) + n;
    const Shift shift = shifts.empty() ? Shift{} : shifts[sample];
    const Index left = box.lower(Dim::width) - shift.right;  // image column at the lower edge of the box
    const Index first = std::clamp<Index>(-left, 0, box.extent(Dim::width));
    const Index last = std::clamp<Index>(width - left, first, box.extent(Dim::width));
    const auto background = [&](Index d, Index h, Index from, Index until) {
      for (Index w = from; w < until; ++w) {
        for (Index c = 0; c < box.extent(Dim::channel); ++c) to(n, d, h, w, c) = value[0];
      }
    };
    for (Index d = 0; d < box.extent(Dim::depth); ++d) {
      for (Index h = 0; h < box.extent(Dim::height); ++h) {
        const Index row = box.lower(Dim::height) + h - shift.down;
        if (row < 0 || row >= height) {
          background(d, h, 0, box.extent(Dim::width));
          continue;
        }
        const Index line = (chosen[sample] * images.image[Dim::depth] + box.lower(Dim::depth) + d) * height + row;
        const std::uint8_t* pixels =
            images.pixels.data() + (line * width + left + first) * channels + box.lower(Dim::channel);
        background(d, h, 0, first);
        for (Index w = first; w < last; ++w, pixels += channels) {
          for (Index c = 0; c < box.extent(Dim::channel); ++c) to(n, d, h, w, c) = value[pixels[c]];
        }
        background(d, h, last, box.extent(Dim::width));
      }
    }
  };
  Kokkos::parallel_for("aloni::nn::fill_batch",
                       Kokkos::RangePolicy<HostExec, Kokkos::IndexType<Index>>(exec, 0, box.extent(Dim::sample)),
                       convert_sample);
  exec.fence("aloni::nn::fill_batch: the mini-batch is converted");
}

}  // namespace

template <class T, class Exec>
void fill_batch(const Queue<Exec>& queue, const LabelledImages& images, std::span<const Index> chosen,
                Network<T, Exec>& network, std::span<const Shift> shifts) {
  using Mem = typename Exec::memory_space;
  const auto timing = network.stopwatch().measure(Stopwatch::Phase::input);
  const Index expected = network.input_distribution().extents()[Dim::sample];
  if (std::ssize(chosen) != expected) {
    throw InvalidArgument("aloni::nn::fill_batch", "chosen", std::to_string(chosen.size()) + " samples",
                          std::to_string(expected) + ", the network's mini-batch");
  }
  if (!shifts.empty() && shifts.size() != chosen.size()) {
    throw InvalidArgument("aloni::nn::fill_batch", "shifts", std::to_string(shifts.size()),
                          "none, or one for each of the " + std::to_string(chosen.size()) + " samples");
  }
  const Box& box = network.input_box();
  const Box& out = network.output_box();
  const auto labels = network.labels();
  const auto label_of = [&](Index i) { return static_cast<int>(images.labels[chosen[out.lower(Dim::sample) + i]]); };
  const auto label_count = static_cast<Index>(labels.extent(0));
  constexpr bool on_host = Kokkos::SpaceAccessibility<Exec, Kokkos::HostSpace>::accessible;
  using HostExec = std::conditional_t<on_host, Exec, Kokkos::DefaultHostExecutionSpace>;
  const HostExec host_space = [&] {
    if constexpr (on_host) {
      return queue.space();
    } else {
      return HostExec();
    }
  }();
  if constexpr (Kokkos::SpaceAccessibility<Kokkos::HostSpace, Mem>::accessible) {
    convert<T>(host_space, images, chosen, shifts, box, network.input());
    for (Index i = 0; i < label_count; ++i) labels(i) = label_of(i);
  } else {
    const auto e = views::extents_of(box).values;
    BatchStaging<T, Mem>& staging = network.staging();
    if (static_cast<Index>(staging.input.extent(0)) != box.size() ||
        static_cast<Index>(staging.host_labels.extent(0)) != label_count) {
      const auto make = [](auto& view, const std::string& label, Index elements) {
        view = std::remove_reference_t<decltype(view)>(Kokkos::view_alloc(Kokkos::WithoutInitializing, label),
                                                       static_cast<std::size_t>(elements));
      };
      make(staging.input, "aloni::nn::staged_input", box.size());
      make(staging.host_input, "aloni::nn::staged_host_input", box.size());
      make(staging.host_labels, "aloni::nn::staged_host_labels", label_count);
    }
    convert<T>(host_space, images, chosen, shifts, box,
               local::dense_tensor<T, HostExec>(staging.host_input.data(), e[0], e[1], e[2], e[3], e[4]));
    for (Index i = 0; i < label_count; ++i) staging.host_labels(i) = label_of(i);
    Kokkos::deep_copy(queue.space(), staging.input, staging.host_input);
    Kokkos::deep_copy(queue.space(), labels, staging.host_labels);
    if (!box.empty()) {
      local::copy<T, Exec>(queue.space(),
                           local::dense_tensor<T, Exec>(staging.input.data(), e[0], e[1], e[2], e[3], e[4]),
                           network.input());
    }
    queue.fence("aloni::nn::fill_batch: the next mini-batch may overwrite the staged one");
  }
}

#define INSTANTIATE(T, Exec)                                                                                     \
  template void fill_batch(const Queue<Exec>&, const LabelledImages&, std::span<const Index>, Network<T, Exec>&, \
                           std::span<const Shift>);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
