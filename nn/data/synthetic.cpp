#include <aloni/nn/data/synthetic.hpp>

#include <aloni/core/random.hpp>
#include <aloni/nn/detail/instantiate.hpp>

#include <cstdint>
#include <string>
#include <type_traits>

namespace aloni::nn {

namespace {

using views::Box;
using views::Dim;
using views::Extents;

// Streams below 2^36 belong to parameters, the order of samples, their shifts and dropout.
constexpr std::uint64_t input_stream = std::uint64_t{1} << 36, target_stream = std::uint64_t{1} << 37;

/// Random bits by position in a dense tensor: a mixing function of 32 bits ("lowbias32" of C. Wellons' hash
/// prospector), for which a processor needs a tenth of Philox' time. Enough for data that train nothing.
struct BitsOf {
  std::uint32_t low, high;

  BitsOf(std::uint64_t seed, std::uint64_t stream) {
    const std::uint64_t key = random::integer(seed, stream, 0);
    low = static_cast<std::uint32_t>(key);
    high = static_cast<std::uint32_t>(key >> 32);
  }
  KOKKOS_FUNCTION static constexpr std::uint32_t mixed(std::uint32_t x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
  }
  /// The bits of 2^32 positions from position · 2^32 on differ by this key.
  KOKKOS_FUNCTION constexpr std::uint32_t key_of(std::uint64_t position) const {
    return low ^ mixed(high + static_cast<std::uint32_t>(position >> 32));
  }
};

/// view(i) = value(random bits of the element's global position).
template <class Exec, class View, class Value>
void fill(const Exec& exec, const std::string& label, const View& view, const Box& box, const Extents& whole,
          std::uint64_t seed, std::uint64_t stream, const Value& value) {
  if (box.empty()) return;
  const BitsOf bits(seed, stream);
  Kokkos::Array<Index, 5> lower, all;
  for (std::size_t dim = 0; dim < 5; ++dim) {
    lower[dim] = box.lo[dim];
    all[dim] = whole.values[dim];
  }
  const Index channels = box.hi[4] - box.lo[4];
  using Policy = Kokkos::MDRangePolicy<Exec, Kokkos::Rank<4>, Kokkos::IndexType<Index>>;
  Kokkos::parallel_for(
      label, Policy(exec, {box.lo[0], box.lo[1], box.lo[2], box.lo[3]}, {box.hi[0], box.hi[1], box.hi[2], box.hi[3]}),
      KOKKOS_LAMBDA(Index n, Index d, Index h, Index w) {
        const Index pixel = ((n * all[1] + d) * all[2] + h) * all[3] + w;
        const auto position = static_cast<std::uint64_t>(pixel * all[4] + lower[4]);
        const std::uint32_t first = static_cast<std::uint32_t>(position), key = bits.key_of(position);
        for (Index c = 0; c < channels; ++c) {
          view(n - lower[0], d - lower[1], h - lower[2], w - lower[3], c) =
              value(BitsOf::mixed((first + static_cast<std::uint32_t>(c)) ^ key));
        }
      });
}

template <class T>
struct Uniform {
  KOKKOS_FUNCTION T operator()(std::uint32_t bits) const {
    return static_cast<T>(static_cast<float>(static_cast<std::int32_t>(bits >> 8)) * 0x1p-24f);
  }
};
template <class T>
struct ZeroOrOne {
  KOKKOS_FUNCTION T operator()(std::uint32_t bits) const { return static_cast<T>(static_cast<float>(bits & 1)); }
};

struct Integer {
  std::uint32_t below;
  KOKKOS_FUNCTION int operator()(std::uint32_t bits) const { return static_cast<int>(bits % below); }
};

/// The labels of samples, indexed as a tensor.
template <class View>
struct SampleLabels {
  View labels;
  KOKKOS_FUNCTION int& operator()(Index sample, Index, Index, Index, Index) const { return labels(sample); }
};

}  // namespace

template <class T, class Exec>
void fill_synthetic(const Queue<Exec>& queue, const NetworkDescription& description, std::uint64_t seed,
                    std::uint64_t step, Network<T, Exec>& network) {
  const auto timing = network.stopwatch().measure(Stopwatch::Phase::input);
  const Exec& exec = queue.space();
  fill(exec, "aloni::nn::fill_synthetic: input", network.input(), network.input_box(),
       network.input_distribution().extents(), seed, input_stream + step, Uniform<T>{});
  const Extents& output = network.output_distribution().extents();
  const std::uint64_t stream = target_stream + step;
  const Integer classes{static_cast<std::uint32_t>(output[Dim::channel])};
  if (targets_of(description.loss) == LossTargets::elements) {
    fill(exec, "aloni::nn::fill_synthetic: targets", network.targets(), network.output_box(), output, seed, stream,
         ZeroOrOne<T>{});
    return;
  }
  // One label for each element of the output box, without channels.
  Box box = network.output_box();
  if (!box.empty()) box.set(Dim::channel, 0, 1);
  Extents whole = output;
  whole[Dim::channel] = 1;
  if (targets_of(description.loss) == LossTargets::pixel_labels) {
    fill(exec, "aloni::nn::fill_synthetic: pixel labels", network.pixel_labels(), box, whole, seed, stream, classes);
    return;
  }
  const SampleLabels<std::remove_cvref_t<decltype(network.labels())>> labels{network.labels()};
  fill(exec, "aloni::nn::fill_synthetic: labels", labels, box, whole, seed, stream, classes);
}

#define INSTANTIATE(T, Exec)                                                                                \
  template void fill_synthetic(const Queue<Exec>&, const NetworkDescription&, std::uint64_t, std::uint64_t, \
                               Network<T, Exec>&);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
