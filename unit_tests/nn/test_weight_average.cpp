// The moving average of parameters, against a loop in double, in every split of the weights.
#include "host_flat.hpp"
#include "split_harness.hpp"
#include "support/transport.hpp"

#include <aloni/core/error.hpp>
#include <aloni/nn/weight_average.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace aloni::nn::test {
namespace test_weight_average {

using Exec = Kokkos::DefaultExecutionSpace;

NetworkDescription net() {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {5, 4}, 6);
  net.loss = Loss::mean_squared_error;
  net.layers = {{"conv", Convolution{10, square_window(2, 3, 1, 1)}, {"input"}},
                {"relu", Relu{}, {"conv"}},
                {"last", Convolution{4, square_window(2, 1)}, {"relu"}}};
  return net;
}

/// The values after update t.
HostFlat values_at(std::size_t count, std::int64_t t) {
  HostFlat values("aloni::test", count);
  for (std::size_t i = 0; i < count; ++i) values(i) = std::sin(static_cast<double>(i) + static_cast<double>(t));
  return values;
}

Parameters<double> parameters_of(const comm::Communicator& comm, const Queue<>& queue) {
  const char* const split = comm.size() % 4 == 0 ? "c2f2" : comm.size() % 2 == 0 ? "f2" : "1";
  return {comm, queue, net(), resolve(Strategy::uniform(LayerSplit::parse(split)), net(), comm.size()), 1};
}

TEST(WeightAverage, FollowsItsFormula) {
  const auto comm = aloni::test::make_communicator();
  const Queue<> queue;
  const Parameters<double> parameters = parameters_of(comm, queue);
  const std::size_t count = parameters.gather_values(queue).extent(0);
  for (const bool warm_up : {false, true}) {
    const WeightAverage<double, Exec> average(queue, parameters, {.decay = 0.3, .warm_up = warm_up});
    HostFlat expected("aloni::test", count);
    for (std::int64_t t = 1; t <= 5; ++t) {
      const HostFlat values = values_at(count, t);
      parameters.scatter_values(queue, values);
      average.add(queue.space(), t);
      const double rising = (1.0 + static_cast<double>(t)) / (10.0 + static_cast<double>(t));
      const double d = t == 1 ? 0 : warm_up ? std::min(0.3, rising) : 0.3;
      for (std::size_t i = 0; i < count; ++i) expected(i) = d * expected(i) + (1 - d) * values(i);
      EXPECT_LE(largest_difference(average.gather(queue), expected), 1e-14) << "update " << t;
      EXPECT_EQ(largest_difference(parameters.gather_values(queue), values), 0);  // stay as they are
    }
  }
}

TEST(WeightAverage, IsExchangedWithTheValues) {
  const auto comm = aloni::test::make_communicator();
  const Queue<> queue;
  const Parameters<double> parameters = parameters_of(comm, queue);
  const std::size_t count = parameters.gather_values(queue).extent(0);
  const WeightAverage<double, Exec> average(queue, parameters, {});
  average.scatter(queue, values_at(count, 1));
  parameters.scatter_values(queue, values_at(count, 2));
  const std::uint64_t version = parameters.version();
  average.exchange(queue);
  EXPECT_GT(parameters.version(), version);
  EXPECT_EQ(largest_difference(parameters.gather_values(queue), values_at(count, 1)), 0);
  average.exchange(queue);
  EXPECT_EQ(largest_difference(parameters.gather_values(queue), values_at(count, 2)), 0);
  EXPECT_EQ(largest_difference(average.gather(queue), values_at(count, 1)), 0);
  EXPECT_THROW(average.scatter(queue, values_at(count + 1, 1)), InvalidArgument);
  EXPECT_EQ(largest_difference(average.gather(queue), values_at(count, 1)), 0);
  Index bytes = 0;
  for (const auto& segment : parameters.segments()) bytes += static_cast<Index>(segment.values.size() * sizeof(double));
  EXPECT_EQ(average.bytes(), bytes);
}

TEST(WeightAverage, RefusesADecayOutOfRange) {
  const auto comm = aloni::test::make_communicator();
  const Queue<> queue;
  const Parameters<double> parameters = parameters_of(comm, queue);
  for (const double decay : {-0.1, 1.0, std::nan("")})
    EXPECT_THROW((WeightAverage<double, Exec>(queue, parameters, {.decay = decay})), InvalidArgument);
}

}  // namespace test_weight_average
}  // namespace aloni::nn::test
