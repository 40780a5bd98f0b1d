#include <aloni/halo/exchange_tuning.hpp>

#include <aloni/core/error.hpp>

#include "support/transport.hpp"

#include <gmock/gmock.h>
#include <halo/distributed.hpp>

#include <vector>

namespace aloni::halo {
namespace test_exchange_tuning {

using namespace testing_support;
using views::DistributedView;
using views::make_extents;

class ExchangeTuning : public testing::Test {
 protected:
  comm::Communicator comm_ = test::make_communicator();
  const int ranks_ = comm_.size();
  Queue<Exec> queue_;
  BoundaryConditions periodic_ = BoundaryConditions::all(Boundary::periodic);

  /// With ghosts of one cell in two dimensions, both split where the ranks allow it.
  DistributedView<double, 2> make_view() const {
    const ProcessGrid grid =
        ranks_ % 2 == 0 ? ProcessGrid{{1, 1, 2, ranks_ / 2, 1}} : ProcessGrid{{1, 1, ranks_, 1, 1}};
    const auto d = Distribution::block(make_extents(1, {4 * grid[Dim::height], 4 * grid[Dim::width]}, 3), grid, ranks_);
    views::GhostWidths ghosts;
    for (const Dim dim : {Dim::height, Dim::width}) ghosts(dim, Side::low) = ghosts(dim, Side::high) = 1;
    return {queue_.space(), "x", d, comm_.rank(), ghosts};
  }
  void expect_equal_on_all_ranks(const std::vector<MethodTime>& times) const {
    for (const MethodTime& t : times) {
      EXPECT_EQ(comm_.all_reduce(t.seconds, comm::Reduction::min), comm_.all_reduce(t.seconds, comm::Reduction::max));
      const std::int64_t number = (t.method.fused ? 1 : 0) + (t.method.by_dimension ? 2 : 0);
      EXPECT_EQ(comm_.all_reduce(number, comm::Reduction::max), number);
    }
  }
};

TEST_F(ExchangeTuning, MeasuresEveryMethodThatServes) {
  const auto x = make_view(), y = make_view();
  set_cells(x, [&](const Cell& c) { return holds(x.owned_box(), c) ? c[2] * 100 + c[3] : -1; });
  const auto times = measure_methods(comm_, queue_, {{x, periodic_}, {y, periodic_}}, {}, 3);
  expect_equal_on_all_ranks(times);
  const int mates = comm_.node().size();
  const bool nodes = mates < ranks_ && comm_.all_reduce(mates, comm::Reduction::max) > 1;
  EXPECT_EQ(times.size(), nodes ? 12u : 4u) << to_string(times);
  for (const MethodTime& t : times) {
    EXPECT_GT(t.seconds, 0);
    EXPECT_THAT(to_string(times), testing::HasSubstr(" us: " + to_string(t.method)));
  }
  for (std::size_t i = 2; i < times.size(); ++i) EXPECT_LE(times[i - 1].seconds, times[i].seconds);
  queue_.fence("aloni::test: before reading");
  for_each_value(x, [&](const Cell& c, double value) {
    Cell from;
    trace_cell(c, x.distribution().extents(), periodic_, from);
    ASSERT_EQ(value, static_cast<double>(from[2] * 100 + from[3])) << "ghosts hold what belongs there";
  });
}

TEST_F(ExchangeTuning, LeavesOutMethodsThatCannotServe) {
  const auto d = Distribution::on_root(make_extents(1, {4, 4}, 1), ranks_, 0);  // empty blocks elsewhere
  views::GhostWidths ghosts;
  ghosts(Dim::height, Side::low) = ghosts(Dim::width, Side::low) = 1;
  const DistributedView<float, 2> x(queue_.space(), "x", d, comm_.rank(), ghosts);
  for (const MethodTime& t : measure_methods(comm_, queue_, {{x, periodic_}}, {}, 1))
    EXPECT_EQ(t.method.by_dimension && ranks_ > 1, false);
}

TEST_F(ExchangeTuning, EstimatesFromTheLinks) {
  const auto x = make_view(), y = make_view();
  LinkTable slow_messages{SquareMatrix(ranks_), SquareMatrix(ranks_, 1e-3)},
      slow_bytes{SquareMatrix(ranks_, 1e-6), SquareMatrix(ranks_)};
  const auto latency = estimate_methods<Memory>(comm_, {{x, periodic_}, {y, periodic_}}, slow_messages);
  expect_equal_on_all_ranks(latency);
  ASSERT_EQ(latency.size(), 4u);
  EXPECT_TRUE(latency.front().method.fused) << "each message costs";
  // Blocks of a grid of 2 x n have neighbours across corners from n = 2 on.
  if (ranks_ == 4) {
    EXPECT_TRUE(latency.front().method.by_dimension) << to_string(latency);
    EXPECT_DOUBLE_EQ(latency.front().seconds, 2e-3) << "one message per axis: both neighbours are the same rank";
    EXPECT_DOUBLE_EQ(latency.back().seconds, 6e-3) << "three neighbours, two Views";
  }
  const auto bandwidth = estimate_methods<Memory>(comm_, {{x, periodic_}, {y, periodic_}}, slow_bytes);
  if (ranks_ == 4) {
    EXPECT_EQ(bandwidth.front().method, ExchangeMethod{}) << "the simplest of those that take as long";
  }
  EXPECT_THROW((void)estimate_methods<Memory>(comm_, {{x, periodic_}}, LinkTable{}), InvalidArgument);
}

TEST_F(ExchangeTuning, RefusesToMeasureNothing) {
  const auto x = make_view();
  EXPECT_THROW((void)measure_methods(comm_, queue_, {{x, periodic_}}, {}, 0), InvalidArgument);
}

}  // namespace test_exchange_tuning
}  // namespace aloni::halo
