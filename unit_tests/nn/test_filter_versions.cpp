// Versions of parameter values: how often convolutions make their filters ready, and that they never use old ones.
#include "split_harness.hpp"
#include "support/sanitizer.hpp"
#include "support/transport.hpp"

#include <aloni/core/config.hpp>
#include <aloni/core/error.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace aloni::nn::test {
namespace test_filter_versions {

constexpr std::uint64_t convolutions = 3;

/// Channels that fill the vectors of oneDNN, which then has its own order of filters.
NetworkDescription net() {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {8, 12}, 16);
  net.loss = Loss::mean_squared_error;
  net.layers = {{"conv", Convolution{32, square_window(2, 3, 1, 1)}, {"input"}},
                {"relu", Relu{}, {"conv"}},
                {"down", Convolution{32, square_window(2, 3, 2, 1), true}, {"relu"}},
                {"up", TransposedConvolution{16, square_window(2, 2, 2, 0)}, {"down"}}};
  return net;
}

std::vector<LayerSplit> splits(int ranks) {
  std::vector<LayerSplit> some;
  for (const char* text : {"1", "n2", "h2", "c2", "f2", "h2w2", "n2f2"}) {
    const LayerSplit split = LayerSplit::parse(text);
    if (aloni::test::sanitized && split.size() > 1 && split.size() < ranks) continue;
    if (ranks % split.size() == 0) some.push_back(split);
  }
  return some;
}

struct Trained {
  Queue<> queue;
  Parameters<float> parameters;
  Network<float> network;

  Trained(const comm::Communicator& comm, const LayerSplit& split, ParameterWrites writes, bool update = false)
      : parameters(comm, queue, net(), resolve(Strategy::uniform(split), net(), comm.size()), 5),
        network(comm, queue, net(), Strategy::uniform(split), 4, parameters,
                {.update = update, .input_gradient = true}) {
    parameters.set_writes(writes);
    fill<float>(network.input(), network.input_box(), network.input_distribution().extents(), Values::reals, 6, 2);
    fill<float>(network.targets(), network.output_box(), network.output_distribution().extents(), Values::reals, 6, 3);
  }

  /// How often filters are made ready in a call.
  template <class F>
  std::uint64_t refreshes(const F& call) {
    const std::uint64_t before = network.filter_refreshes();
    call();
    return network.filter_refreshes() - before;
  }
  /// A write of the caller: all values times a factor.
  void write(float factor) {
    for (const auto& segment : parameters.segments()) {
      const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, segment.values);
      for (std::size_t i = 0; i < host.extent(0); ++i) host(i) *= factor;
      Kokkos::deep_copy(segment.values, host);
    }
  }
};

TEST(FilterVersions, OfAStepAreMadeReadyOnceForForwardAndBackward) {
  const auto comm = aloni::test::make_communicator();
  for (const ParameterWrites writes : {ParameterWrites::at_any_time, ParameterWrites::announced}) {
    for (const LayerSplit& split : splits(comm.size())) {
      SCOPED_TRACE(to_string(split));
      Trained after(comm, split, writes), inside(comm, split, writes, true);
      for (std::int64_t step = 1; step <= 3; ++step) {
        EXPECT_EQ(after.refreshes([&] {
          after.network.train_step(after.queue);
          after.parameters.sgd(after.queue, {});
        }),
                  convolutions);
        EXPECT_EQ(inside.refreshes([&] { inside.network.train_step(inside.queue, SgdOptions{}, step); }), convolutions);
      }
    }
  }
}

TEST(FilterVersions, OfManyMiniBatchesAreMadeReadyOnceIfWritesAreAnnounced) {
  const auto comm = aloni::test::make_communicator();
  for (const LayerSplit& split : splits(comm.size())) {
    SCOPED_TRACE(to_string(split));
    Trained any(comm, split, ParameterWrites::at_any_time), announced(comm, split, ParameterWrites::announced);
    const auto evaluate = [](Trained& t) {
      return t.refreshes([&] {
        for (int batch = 0; batch < 5; ++batch) t.network.evaluate(t.queue);
      });
    };
    EXPECT_EQ(evaluate(any), 5 * convolutions);
    EXPECT_EQ(evaluate(announced), convolutions);
    EXPECT_EQ(evaluate(announced), 0u);
    announced.network.train_step(announced.queue);
    EXPECT_EQ(evaluate(announced), 0u);  // the values are still the same
    announced.parameters.sgd(announced.queue, {});
    EXPECT_EQ(evaluate(announced), convolutions);
    announced.parameters.scatter_values(announced.queue, announced.parameters.gather_values(announced.queue));
    EXPECT_EQ(evaluate(announced), convolutions);
    announced.parameters.values_changed();
    EXPECT_EQ(evaluate(announced), convolutions);
  }
}

TEST(FilterVersions, NeverGiveOldFiltersAfterAWriteOfTheCaller) {
  const auto comm = aloni::test::make_communicator();
  for (const LayerSplit& split : splits(comm.size())) {
    SCOPED_TRACE(to_string(split));
    Trained any(comm, split, ParameterWrites::at_any_time), announced(comm, split, ParameterWrites::announced);
    for (const float factor : {1.0F, 0.5F, -2.0F}) {
      any.write(factor);
      announced.write(factor);
      announced.parameters.values_changed();
      Trained fresh(comm, split, ParameterWrites::at_any_time);
      fresh.parameters.scatter_values(fresh.queue, any.parameters.gather_values(any.queue));
      const double expected = fresh.network.evaluate(fresh.queue).loss;
      const double expected_in_training = fresh.network.train_step(fresh.queue).loss;
      for (Trained* const t : {&any, &announced}) {
        EXPECT_EQ(t->network.evaluate(t->queue).loss, expected) << factor;
        EXPECT_EQ(t->network.train_step(t->queue).loss, expected_in_training) << factor;
        const Box all = t->network.input_box();
        EXPECT_EQ(difference(t->network.input_gradient(), views::whole(views::extents_of(all)),
                             fresh.network.input_gradient()),
                  0);
      }
    }
    // A write between the parts of a step.
    any.network.forward(any.queue, Mode::training);
    any.write(3);
    any.network.backward(any.queue);
    Trained fresh(comm, split, ParameterWrites::at_any_time);
    fresh.parameters.scatter_values(fresh.queue, any.parameters.gather_values(any.queue));
    fresh.network.forward(fresh.queue, Mode::evaluation);
    any.network.forward(any.queue, Mode::evaluation);
    EXPECT_EQ(difference(any.network.output(), views::whole(views::extents_of(any.network.output_box())),
                         fresh.network.output()),
              0);
  }
}

TEST(FilterVersions, WithAnnouncedWritesLearnTheSameBits) {
  const auto comm = aloni::test::make_communicator();
  for (const LayerSplit& split : splits(comm.size())) {
    SCOPED_TRACE(to_string(split));
    std::vector<std::vector<double>> losses;
    for (const ParameterWrites writes : {ParameterWrites::at_any_time, ParameterWrites::announced}) {
      Trained t(comm, split, writes, true);
      losses.emplace_back();
      for (std::int64_t step = 1; step <= 3; ++step) {
        losses.back().push_back(t.network.train_step(t.queue, SgdOptions{.learning_rate = 0.01}, step).loss);
        losses.back().push_back(t.network.evaluate(t.queue).loss);
      }
      EXPECT_NE(losses.back()[0], losses.back()[2]);
    }
    EXPECT_EQ(losses[0], losses[1]);
  }
}

TEST(FilterVersions, ForgottenAnnouncementsAreFoundByDebugChecks) {
  if (!config::debug_checks) GTEST_SKIP() << "needs aloni_ENABLE_DEBUG_CHECKS";
  const auto comm = aloni::test::make_communicator().split(0, 0);
  Trained t(comm, {}, ParameterWrites::announced);
  t.network.evaluate(t.queue);
  t.network.evaluate(t.queue);
  t.write(2);
  EXPECT_THROW(t.network.evaluate(t.queue), InvalidArgument);
  t.parameters.values_changed();
  EXPECT_NO_THROW(t.network.evaluate(t.queue));
}

TEST(FilterVersions, AreSharedByCopiesOfTheParameters) {
  const Queue<> queue;
  const Parameters<float> parameters(queue, net(), 1), copy = parameters;
  const std::uint64_t before = parameters.version();
  copy.sgd(queue, {});
  EXPECT_GT(parameters.version(), before);
  Parameters<float> other(queue, net(), 1);
  EXPECT_EQ(other.version(), before);
}

TEST(FilterVersions, AnnouncementsCanBeCheckedInEveryBuild) {
  const Queue<> queue;
  const Parameters<float> parameters(queue, net(), 1);
  parameters.check_announced(queue, "test");
  EXPECT_NO_THROW(parameters.check_announced(queue, "test"));
  Kokkos::deep_copy(queue.space(), parameters.values(), 2.0F);
  EXPECT_THROW(parameters.check_announced(queue, "test"), InvalidArgument);
  parameters.values_changed();
  EXPECT_NO_THROW(parameters.check_announced(queue, "test"));
}

}  // namespace test_filter_versions
}  // namespace aloni::nn::test
