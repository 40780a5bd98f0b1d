#pragma once
// Runs one network unsplit on every rank and split over all ranks, and compares each rank's part.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/random.hpp>
#include <aloni/nn/network.hpp>
#include <aloni/nn/tensor.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace aloni::nn::test {

using views::Box;
using views::Dim;
using views::Extents;

inline Index linear(const Extents& e, const std::array<Index, 5>& i) {
  return (((i[0] * e.values[1] + i[1]) * e.values[2] + i[2]) * e.values[3] + i[3]) * e.values[4] + i[4];
}

/// Calls f(local indices, position in the whole tensor) for every element of a box.
template <class F>
void for_each_index(const Box& box, const Extents& whole, F&& f) {
  std::array<Index, 5> i{}, e = views::extents_of(box).values;
  for (i[0] = 0; i[0] < e[0]; ++i[0])
    for (i[1] = 0; i[1] < e[1]; ++i[1])
      for (i[2] = 0; i[2] < e[2]; ++i[2])
        for (i[3] = 0; i[3] < e[3]; ++i[3])
          for (i[4] = 0; i[4] < e[4]; ++i[4]) {
            std::array<Index, 5> g;
            for (int d = 0; d < 5; ++d) g[d] = box.lo[d] + i[d];
            f(i, linear(whole, g));
          }
}

/// Values that fill tensors: small integers, whose sums every type holds exactly, or real numbers.
enum class Values { integers, reals };

template <class T>
T value_at(Values kind, std::uint64_t seed, std::uint64_t stream, Index position) {
  if (kind == Values::reals)
    return static_cast<T>(random::normal<double>(seed, stream, static_cast<std::uint64_t>(position)));
  return static_cast<T>(static_cast<int>(random::integer(seed, stream, static_cast<std::uint64_t>(position)) % 3) - 1);
}

/// Copies a view to the host, elements in the order of its indices.
template <class View>
auto on_host(const View& v) {
  using T = typename View::non_const_value_type;
  Kokkos::View<T*****, Kokkos::LayoutRight, typename View::memory_space> dense("aloni::test", v.extent(0), v.extent(1),
                                                                               v.extent(2), v.extent(3), v.extent(4));
  Kokkos::deep_copy(dense, v);
  return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, dense);
}

template <class T, class View>
void fill(const View& v, const Box& box, const Extents& whole, Values kind, std::uint64_t seed, std::uint64_t stream) {
  auto host = on_host(v);
  for_each_index(box, whole, [&](const auto& i, Index position) {
    host(i[0], i[1], i[2], i[3], i[4]) = value_at<T>(kind, seed, stream, position);
  });
  auto dense = Kokkos::create_mirror_view_and_copy(typename View::memory_space{}, host);
  Kokkos::deep_copy(v, dense);
}

/// Largest difference between a part and the same box of the whole, relative to the largest value if that is above 1.
/// (The gradient of a bias before batch normalisation is zero except for rounding.)
template <class PartView, class WholeView>
double difference(const PartView& part, const Box& box, const WholeView& whole) {
  const auto p = on_host(part);
  const auto w = on_host(whole);
  double worst = 0, largest = 0;
  for_each_index(box, views::extents_of(box), [&](const auto& i, Index) {
    const auto a = static_cast<double>(p(i[0], i[1], i[2], i[3], i[4]));
    const auto b = static_cast<double>(
        w(box.lo[0] + i[0], box.lo[1] + i[1], box.lo[2] + i[2], box.lo[3] + i[3], box.lo[4] + i[4]));
    if (std::isnan(a) || std::isnan(b)) worst = INFINITY;
    worst = std::max(worst, std::abs(a - b));
    largest = std::max(largest, std::abs(b));
  });
  return worst / std::max(largest, 1.0);
}

/// Whether a rank keeps whole weights of convolutions with split channels or filters.
enum class Weights { whole, split };

template <class T>
Parameters<parameter_type_t<T>, execution_space_t<T>> make_parameters(const comm::Communicator& comm,
                                                                      const Queue<execution_space_t<T>>& queue,
                                                                      const NetworkDescription& net,
                                                                      const Strategy& strategy, std::uint64_t seed,
                                                                      Weights weights) {
  using AllParameters = Parameters<parameter_type_t<T>, execution_space_t<T>>;
  if (weights == Weights::whole) return AllParameters(comm, queue, net, seed);
  return AllParameters(comm, queue, net, resolve(strategy, net, comm.size()), seed);
}

/// One network with its data, ready for comparison.
template <class T>
struct Run {
  using Parameter = parameter_type_t<T>;
  Queue<execution_space_t<T>> queue;
  Parameters<Parameter, execution_space_t<T>> parameters;
  Network<T, execution_space_t<T>> network;
  Values values;
  std::uint64_t seed;

  Run(const comm::Communicator& comm, const NetworkDescription& net, const Strategy& strategy, Index samples, Values v,
      std::uint64_t s, local::ConvolutionBackend backend, Weights weights = Weights::whole,
      std::uint64_t schedule_seed = 0, std::optional<double> largest_overhead = {},
      const std::optional<AdoptedInput<T, typename execution_space_t<T>::memory_space>>& input = {})
      : parameters(make_parameters<T>(comm, queue, net, strategy, s, weights)),
        network(comm, queue, net, strategy, samples, parameters,
                {.backend = backend,
                 .input_gradient = true,
                 .schedule_seed = schedule_seed,
                 .sums_beside_backward = s / 4 % 2 == 0,
                 .largest_overhead = largest_overhead},
                input),
        values(v),
        seed(s) {
    fill_parameters(0);
  }

  /// Each round has its own parameters and data.
  void fill_parameters(std::uint64_t round) {
    Index count = 0;
    for (const ParameterDescription& d : parameters.descriptions()) count += d.extents.size();
    const Kokkos::View<Parameter*, Kokkos::HostSpace> host("aloni::test", static_cast<std::size_t>(count));
    for (Index i = 0; i < count; ++i) host(i) = value_at<Parameter>(values, seed, 10 * round + 1, i);
    parameters.scatter_values(queue, host);
  }

  void step(std::uint64_t round = 0) {
    const std::uint64_t stream = 10 * round;
    fill<T>(network.input(), network.input_box(), network.input_distribution().extents(), values, seed, stream + 2);
    network.forward(queue, Mode::training);
    fill<T>(network.output_gradient(), network.output_box(), network.output_distribution().extents(), values, seed,
            stream + 3);
    network.backward(queue);
    network.reduce_gradients(queue);
  }
};

/// Compares output, input gradient and parameter gradients; with tolerance 0 all bits must agree. Returns false on
/// all ranks if any rank saw a difference. Collective.
template <class T>
bool expect_split_equals_unsplit(const comm::Communicator& comm, const NetworkDescription& net,
                                 const Strategy& strategy, Index samples, Values values, std::uint64_t seed,
                                 double tolerance,
                                 local::ConvolutionBackend backend = local::ConvolutionBackend::automatic) {
  // The kernels of a device round the gradients of filters to 16 bits on each rank, before the sum over ranks.
  constexpr bool on_host =
      Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename execution_space_t<T>::memory_space>::accessible;
  const double gradient_tolerance = is_16_bit(element_type<T>) && !on_host ? std::max(tolerance, 1.0 / 128) : tolerance;
  const auto self = comm.split(comm.rank(), 0);
  Run<T> one(self, net, Strategy::uniform({}), samples, values, seed, backend);
  const Weights weights = seed % 2 == 0 ? Weights::split : Weights::whole;
  const std::uint64_t schedule_seed = seed % 3 == 0 ? seed : 0;  // default order, or a random allowed order
  // Layers as small as these are computed at once by default.
  const std::optional<double> largest_overhead = seed / 2 % 2 == 0 ? std::optional(1.0) : std::nullopt;
  Run<T> many(comm, net, strategy, samples, values, seed, backend, weights, schedule_seed, largest_overhead);
  for (std::uint64_t step = 0; step < 2; ++step) {  // in the second step buffers are full of other values
    for (Run<T>* run : {&one, &many}) {
      run->fill_parameters(step);
      run->step(step);
    }
    const std::string where = "strategy " + to_string(strategy) + ", step " + std::to_string(step) + ", seed " +
                              std::to_string(seed) + (weights == Weights::split ? ", weights split" : "") +
                              (schedule_seed > 0 ? ", in any order" : "") +
                              (largest_overhead ? ", interiors first" : "");
    EXPECT_LE(difference(many.network.output(), many.network.output_box(), one.network.output()), tolerance)
        << "output, " << where;
    EXPECT_LE(difference(many.network.input_gradient(), many.network.input_box(), one.network.input_gradient()),
              tolerance)
        << "input gradient, " << where;
    for (std::size_t p = 0; p < one.parameters.descriptions().size(); ++p) {
      const int i = static_cast<int>(p);
      if (many.parameters.blocks(i).count() > 1) continue;
      EXPECT_LE(difference(many.parameters.gradient(i), many.parameters.kept(i), one.parameters.gradient(i)),
                gradient_tolerance)
          << "gradient of " << one.parameters.descriptions()[p].name << ", " << where;
    }
    // Gathers the gradients of split tensors from the ranks that keep their blocks.
    const auto gathered = many.parameters.gather_gradients(many.queue);
    const auto alone = one.parameters.gather_gradients(one.queue);
    double worst = 0, largest = 1;
    for (std::size_t k = 0; k < alone.extent(0); ++k) {
      worst = std::max(worst, std::abs(static_cast<double>(gathered(k)) - static_cast<double>(alone(k))));
      largest = std::max(largest, std::abs(static_cast<double>(alone(k))));
    }
    EXPECT_LE(worst / largest, gradient_tolerance) << "gathered gradients, " << where;
  }
  return comm.all_reduce(testing::Test::HasFailure() ? 1 : 0, comm::Reduction::max) == 0;
}

}  // namespace aloni::nn::test
