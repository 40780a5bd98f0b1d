#include <aloni/nn/data/synthetic.hpp>

#include <aloni/core/random.hpp>
#include <aloni/nn/detail/instantiate.hpp>

#include <string>

namespace aloni::nn {

namespace {

using views::Box;
using views::Dim;
using views::Extents;

// Streams below 2^36 belong to parameters, the order of samples, their shifts and dropout.
constexpr std::uint64_t input_stream = std::uint64_t{1} << 36, target_stream = std::uint64_t{1} << 37;

/// Position in a dense tensor with extents `whole` of the k-th element of `box`, and the element's place in the box.
struct Positions {
  Kokkos::Array<Index, 5> lower, extents, whole;

  Positions(const Box& box, const Extents& all) {
    for (std::size_t d = 0; d < 5; ++d) {
      lower[d] = box.lo[d];
      extents[d] = box.hi[d] - box.lo[d];
      whole[d] = all.values[d];
    }
  }
  KOKKOS_FUNCTION Kokkos::Array<Index, 5> place(Index k) const {
    Kokkos::Array<Index, 5> i{};
    for (std::size_t d = 5; d-- > 0; k /= extents[d]) i[d] = k % extents[d];
    return i;
  }
  KOKKOS_FUNCTION std::uint64_t position(const Kokkos::Array<Index, 5>& i) const {
    Index at = 0;
    for (std::size_t d = 0; d < 5; ++d) at = at * whole[d] + lower[d] + i[d];
    return static_cast<std::uint64_t>(at);
  }
};

/// view(i) = value(random bits of the element's global position).
template <class Exec, class View, class Value>
void fill(const Exec& exec, const std::string& label, const View& view, const Box& box, const Extents& whole,
          std::uint64_t seed, std::uint64_t stream, const Value& value) {
  if (box.empty()) return;
  const Positions positions(box, whole);
  Kokkos::parallel_for(
      label, Kokkos::RangePolicy<Exec, Kokkos::IndexType<Index>>(exec, 0, box.size()), KOKKOS_LAMBDA(Index k) {
        const auto i = positions.place(k);
        view(i[0], i[1], i[2], i[3], i[4]) = value(random::integer(seed, stream, positions.position(i)));
      });
}

template <class T>
struct Uniform {
  KOKKOS_FUNCTION T operator()(std::uint64_t bits) const {
    return static_cast<T>(static_cast<float>(bits >> 40) * 0x1p-24f);
  }
};
template <class T>
struct ZeroOrOne {
  KOKKOS_FUNCTION T operator()(std::uint64_t bits) const { return static_cast<T>(static_cast<float>(bits & 1)); }
};

struct Integer {
  std::uint64_t below;
  KOKKOS_FUNCTION int operator()(std::uint64_t bits) const { return static_cast<int>(bits % below); }
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
  const Integer classes{static_cast<std::uint64_t>(output[Dim::channel])};
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
  const auto labels = network.labels();
  const Positions positions(box, whole);
  Kokkos::parallel_for(
      "aloni::nn::fill_synthetic: labels",
      Kokkos::RangePolicy<Exec, Kokkos::IndexType<Index>>(exec, 0, static_cast<Index>(labels.extent(0))),
      KOKKOS_LAMBDA(Index k) {
        labels(k) = classes(random::integer(seed, stream, positions.position(positions.place(k))));
      });
}

#define INSTANTIATE(T, Exec)                                                                                \
  template void fill_synthetic(const Queue<Exec>&, const NetworkDescription&, std::uint64_t, std::uint64_t, \
                               Network<T, Exec>&);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
