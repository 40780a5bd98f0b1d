#include <aloni/halo/redistribution.hpp>

#include "support/transport.hpp"

#include <aloni/core/error.hpp>

#include <gmock/gmock.h>
#include <halo/distributed.hpp>

#include <map>

namespace aloni::halo {
namespace test_redistribution {

using namespace testing_support;
using views::DistributedView;
using views::GhostState;
using views::GhostWidths;
using views::make_extents;

class Redistributions : public testing::Test {
 protected:
  comm::Communicator comm_ = aloni::test::make_communicator();
  Queue<Exec> queue_;
  const int ranks_ = comm_.size(), rank_ = comm_.rank();

  template <class T, int R>
  void check(const DistributedView<T, R>& x, const DistributedView<T, R>& y,
             const BoundaryConditions& boundaries = {}) {
    const Redistribution<> redistribution(comm_, queue_, x, {y, boundaries});
    set_cells(x, [&](const Cell& c) { return holds(x.owned_box(), c) ? value_of(c) : -1; });
    set_cells(y, [](const Cell&) { return -1; });
    auto pending = redistribution.start(queue_);
    pending.finish();
    EXPECT_EQ(y.ghost_state(), GhostState::fresh);
    queue_.fence("aloni::test: before reading");
    for_each_value(y, [&](const Cell& c, double value) {
      Cell from;
      const Origin origin = trace_cell(c, x.distribution().extents(), boundaries, from);
      ASSERT_EQ(value, origin == Origin::value  ? value_of(from)
                       : origin == Origin::zero ? 0
                                                : -1)
          << to_string(x.distribution()) << " -> " << to_string(y.distribution()) << ", rank " << rank_;
    });
  }
};

TEST_F(Redistributions, MoveFromEveryGridToEveryGrid) {
  const auto extents = make_extents(5, {7, 6}, 4);
  const auto grids = views::all_grids(ranks_, {Dim::sample, Dim::height, Dim::width, Dim::channel});
  GhostWidths ghosts;
  ghosts(Dim::height, Side::low) = ghosts(Dim::width, Side::high) = 1;
  for (const ProcessGrid& from : grids)
    for (const ProcessGrid& to : grids) {
      const DistributedView<float, 2> x(queue_.space(), "x", Distribution::block(extents, from, ranks_), rank_);
      const DistributedView<float, 2> y(queue_.space(), "y", Distribution::block(extents, to, ranks_), rank_, ghosts);
      check(x, y, BoundaryConditions::all(Boundary::replicate));
    }
}

TEST_F(Redistributions, GatherAndScatter) {
  const auto extents = make_extents(3, {4, 5, 2 * ranks_}, 2);
  const auto spread = Distribution::block(extents, ProcessGrid{{1, 1, 1, ranks_, 1}}, ranks_);
  for (int root = 0; root < ranks_; ++root) {
    const DistributedView<double, 3> x(queue_.space(), "x", spread, rank_),
        y(queue_.space(), "y", Distribution::on_root(extents, ranks_, root), rank_);
    check(x, y);
    check(y, x);
  }
}

TEST_F(Redistributions, ReplicateAndReadFromReplicas) {
  const auto extents = make_extents(4, {2 * ranks_ + 1}, 3);
  const auto spread = Distribution::block(extents, ProcessGrid{{1, 1, 1, ranks_, 1}}, ranks_);
  const auto everywhere = Distribution::block(extents, ProcessGrid{}, ranks_);
  const DistributedView<float, 1> x(queue_.space(), "x", spread, rank_), y(queue_.space(), "y", everywhere, rank_),
      z(queue_.space(), "z", spread.with_replicated(Dim::width), rank_);
  check(x, y);
  check(y, x);
  check(x, z);
  check(z, y);
  EXPECT_EQ(Redistribution<>(comm_, queue_, y, x).counts().sent_messages, 0) << "every rank has all values already";
}

TEST_F(Redistributions, ConvertLayouts) {
  const auto extents = make_extents(2, {2 * ranks_, 5}, 3);
  const auto rows = Distribution::block(extents, ProcessGrid{{1, 1, ranks_, 1, 1}}, ranks_);
  const Kokkos::View<float****, Kokkos::LayoutRight, Memory> nchw("nchw", 2, 3, 2, 5);
  const auto x =
      DistributedView<float, 2>::wrap_permuted(nchw, {Dim::sample, Dim::channel, Dim::height, Dim::width}, rows, rank_);
  check(x, DistributedView<float, 2>(queue_.space(), "y", rows, rank_));
}

TEST_F(Redistributions, KeepEveryBitInARoundTrip) {
  const auto extents = make_extents(5, {7, 9}, 3);
  const auto grids = views::all_grids(ranks_, {Dim::sample, Dim::height, Dim::width});
  const DistributedView<float, 2> x(queue_.space(), "x", Distribution::block(extents, grids.front(), ranks_), rank_);
  const DistributedView<float, 2> back(queue_.space(), "back", x.distribution(), rank_);
  for (const ProcessGrid& grid : grids) {
    const DistributedView<float, 2> y(queue_.space(), "y", Distribution::block(extents, grid, ranks_), rank_);
    const Redistribution<> there(comm_, queue_, x, y), home(comm_, queue_, y, back);
    set_cells(x, [](const Cell& c) { return 1 / (value_of(c) + 0.3); });
    there.run(queue_);
    home.run(queue_);
    queue_.fence("aloni::test: before reading");
    for_each_value(back,
                   [](const Cell& c, double value) { ASSERT_EQ(value, static_cast<float>(1 / (value_of(c) + 0.3))); });
  }
}

TEST_F(Redistributions, SumMirroredGhostsInTheAdjoint) {
  // Rows of 64 bytes and more in shared memory: peers may read them in place, but mirrored ghosts are not in the order
  // of the message.
  const auto extents = make_extents(1, {4 * ranks_, 6}, 4);
  const auto rows = Distribution::block(extents, ProcessGrid{{1, 1, ranks_, 1, 1}}, ranks_);
  GhostWidths ghosts;
  for (const Side side : {Side::low, Side::high}) ghosts(Dim::height, side) = 3;
  const auto boundaries = BoundaryConditions::all(Boundary::reflect);
  const auto weight = [](const Cell& c, int rank) { return value_of(c) + 1000 * rank; };
  for (int root = 0; root < ranks_; ++root) {
    for (const std::size_t direct_bytes : {std::size_t{0}, ~std::size_t{0}}) {
      const DistributedView<double, 2> x(comm_, queue_.space(), "x", Distribution::on_root(extents, ranks_, root)),
          y(comm_, queue_.space(), "y", rows, ghosts);
      const Redistribution<> redistribution(comm_, queue_, x, {y, boundaries}, {.direct_bytes = direct_bytes});
      set_cells(x, [](const Cell&) { return 99; });
      set_cells(y, [&](const Cell& c) { return weight(c, rank_); });
      redistribution.run_adjoint(queue_);
      queue_.fence("aloni::test: before reading");
      std::map<Cell, double> sums;
      for (int rank = 0; rank < ranks_; ++rank) {
        const DistributedView<double, 2> other(queue_.space(), "other", rows, rank, ghosts);
        for_each_value(other, [&](const Cell& c, double) {
          Cell from;
          if (trace_cell(c, extents, boundaries, from) == Origin::value) sums[from] += weight(c, rank);
        });
      }
      for_each_value(x, [&](const Cell& c, double value) { ASSERT_EQ(value, sums[c]) << testing::PrintToString(c); });
    }
  }
}

TEST_F(Redistributions, SumTheReplicasInTheAdjoint) {
  const auto extents = make_extents(1, {ranks_}, 1);
  const auto spread = Distribution::block(extents, ProcessGrid{{1, 1, 1, ranks_, 1}}, ranks_);
  const DistributedView<double, 1> x(queue_.space(), "x", spread, rank_),
      y(queue_.space(), "y", Distribution::block(extents, ProcessGrid{}, ranks_), rank_);
  const Redistribution<> replicate(comm_, queue_, x, y);
  set_cells(x, [](const Cell&) { return 99; });
  set_cells(y, [&](const Cell& c) { return 1 + rank_ + 100 * c[3]; });
  replicate.run_adjoint(queue_);
  queue_.fence("aloni::test: before reading");
  for_each_value(x, [&](const Cell& c, double value) {
    ASSERT_EQ(value, ranks_ * (ranks_ + 1) / 2 + 100.0 * ranks_ * static_cast<double>(c[3]));
  });
}

TEST_F(Redistributions, RefuseTensorsOfDifferentExtents) {
  const auto a = Distribution::block(make_extents(2, {8, 4}, 1), ProcessGrid{}, ranks_);
  const auto b = Distribution::block(make_extents(2, {8, 5}, 1), ProcessGrid{}, ranks_);
  try {
    Redistribution<>(comm_, queue_, DistributedView<float, 2>(queue_.space(), "a", a, rank_),
                     DistributedView<float, 2>(queue_.space(), "b", b, rank_));
    FAIL();
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(
        e.what(),
        "aloni::halo::plan_redistribution: destination.extents() = 2x1x8x5x1: expected 2x1x8x4x1, the extents of the "
        "source");
  }
}

}  // namespace test_redistribution
}  // namespace aloni::halo
