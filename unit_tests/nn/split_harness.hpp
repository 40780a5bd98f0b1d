#pragma once
// Runs one network unsplit on rank 0 and split over all ranks, and compares each rank's part.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/random.hpp>
#include <aloni/nn/model_file.hpp>
#include <aloni/nn/network.hpp>
#include <aloni/nn/tensor.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
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

/// A whole tensor, elements in the order of its indices.
struct Whole {
  Extents extents;
  std::vector<double> values;

  double operator()(Index n, Index d, Index h, Index w, Index c) const {
    return values[static_cast<std::size_t>(linear(extents, {n, d, h, w, c}))];
  }
};

inline const Whole& on_host(const Whole& whole) { return whole; }

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
  const auto& p = on_host(part);
  const auto& w = on_host(whole);
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

/// The results of one step of a whole network.
struct StepResults {
  Whole output, input_gradient;
  std::vector<Whole> gradients;       // of each parameter
  std::vector<double> all_gradients;  // as gather_gradients() returns them

  /// With the extents of the given run, all values zero.
  template <class T>
  explicit StepResults(const Run<T>& run)
      : output(zeros(run.network.output_distribution().extents())),
        input_gradient(zeros(run.network.input_distribution().extents())) {
    for (const ParameterDescription& d : run.parameters.descriptions()) {
      gradients.push_back(zeros(d.extents));
      all_gradients.resize(all_gradients.size() + static_cast<std::size_t>(d.extents.size()));
    }
  }

  static Whole zeros(const Extents& extents) {
    return {extents, std::vector<double>(static_cast<std::size_t>(extents.size()))};
  }

  /// Takes the results of an unsplit run.
  template <class T>
  void read(Run<T>& one) {
    const auto copy = [](const auto& view, std::vector<double>& to) {
      const auto host = on_host(view);
      ASSERT_EQ(host.size(), to.size());
      std::transform(host.data(), host.data() + host.size(), to.begin(), [](auto x) { return static_cast<double>(x); });
    };
    copy(one.network.output(), output.values);
    copy(one.network.input_gradient(), input_gradient.values);
    for (std::size_t p = 0; p < gradients.size(); ++p)
      copy(one.parameters.gradient(static_cast<int>(p)), gradients[p].values);
    const auto gathered = one.parameters.gather_gradients(one.queue);
    ASSERT_EQ(gathered.size(), all_gradients.size());
    std::copy_n(gathered.data(), gathered.size(), all_gradients.begin());
  }

  /// Collective.
  void broadcast(const comm::Communicator& comm) {
    const auto send = [&](std::vector<double>& values) { comm.run(comm::Broadcast{std::span(values), 0}); };
    send(output.values);
    send(input_gradient.values);
    for (Whole& gradient : gradients) send(gradient.values);
    send(all_gradients);
  }
};

/// In the second step buffers are full of other values.
constexpr std::uint64_t compared_steps = 2;

/// The results of the unsplit network, which rank 0 computes. Many strategies in turn are compared with one network, so
/// the last results are kept. `like`: a run of the same network. Collective.
template <class T>
const std::vector<StepResults>& unsplit_results(const comm::Communicator& comm, const NetworkDescription& net,
                                                Index samples, Values values, std::uint64_t seed,
                                                local::ConvolutionBackend backend, const Run<T>& like) {
  static std::vector<StepResults> results;
  static std::string name_of_results;
  const std::string name = to_json(net) + std::to_string(samples) + (values == Values::reals ? " reals " : " ") +
                           std::to_string(seed) + " " + std::to_string(static_cast<int>(backend));
  if (name == name_of_results) return results;
  name_of_results.clear();  // what follows may throw
  results.assign(compared_steps, StepResults(like));
  const auto self = comm.split(comm.rank(), 0);
  if (comm.rank() == 0) {
    Run<T> one(self, net, Strategy::uniform({}), samples, values, seed, backend);
    for (std::uint64_t step = 0; step < compared_steps; ++step) {
      one.fill_parameters(step);
      one.step(step);
      results[step].read(one);
    }
  }
  for (StepResults& step : results) step.broadcast(comm);
  name_of_results = name;
  return results;
}

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
  const Weights weights = seed % 2 == 0 ? Weights::split : Weights::whole;
  const std::uint64_t schedule_seed = seed % 3 == 0 ? seed : 0;  // default order, or a random allowed order
  // Layers as small as these are computed at once by default.
  const std::optional<double> largest_overhead = seed / 2 % 2 == 0 ? std::optional(1.0) : std::nullopt;
  Run<T> many(comm, net, strategy, samples, values, seed, backend, weights, schedule_seed, largest_overhead);
  const std::vector<StepResults>& unsplit = unsplit_results(comm, net, samples, values, seed, backend, many);
  for (std::uint64_t step = 0; step < compared_steps; ++step) {
    const StepResults& one = unsplit[step];
    many.fill_parameters(step);
    many.step(step);
    const std::string where = "strategy " + to_string(strategy) + ", step " + std::to_string(step) + ", seed " +
                              std::to_string(seed) + (weights == Weights::split ? ", weights split" : "") +
                              (schedule_seed > 0 ? ", in any order" : "") +
                              (largest_overhead ? ", interiors first" : "");
    EXPECT_LE(difference(many.network.output(), many.network.output_box(), one.output), tolerance)
        << "output, " << where;
    EXPECT_LE(difference(many.network.input_gradient(), many.network.input_box(), one.input_gradient), tolerance)
        << "input gradient, " << where;
    for (std::size_t p = 0; p < one.gradients.size(); ++p) {
      const int i = static_cast<int>(p);
      if (many.parameters.blocks(i).count() > 1) continue;
      EXPECT_LE(difference(many.parameters.gradient(i), many.parameters.kept(i), one.gradients[p]), gradient_tolerance)
          << "gradient of " << many.parameters.descriptions()[p].name << ", " << where;
    }
    // Gathers the gradients of split tensors from the ranks that keep their blocks.
    const auto gathered = many.parameters.gather_gradients(many.queue);
    double worst = 0, largest = 1;
    for (std::size_t k = 0; k < one.all_gradients.size(); ++k) {
      worst = std::max(worst, std::abs(static_cast<double>(gathered(k)) - one.all_gradients[k]));
      largest = std::max(largest, std::abs(one.all_gradients[k]));
    }
    EXPECT_LE(worst / largest, gradient_tolerance) << "gathered gradients, " << where;
  }
  return comm.all_reduce(testing::Test::HasFailure() ? 1 : 0, comm::Reduction::max) == 0;
}

}  // namespace aloni::nn::test
