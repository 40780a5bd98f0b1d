#include <aloni/halo/exchange.hpp>

#include "support/transport.hpp"

#include <aloni/core/error.hpp>

#include <gmock/gmock.h>
#include <halo/distributed.hpp>

namespace aloni::halo {
namespace test_exchange {

using namespace testing_support;
using views::DistributedView;
using views::GhostState;
using views::GhostWidths;
using views::make_extents;

class Exchanges : public testing::Test {
 protected:
  comm::Communicator comm_ = aloni::test::make_communicator();
  Queue<Exec> queue_;
  const int ranks_ = comm_.size(), rank_ = comm_.rank();

  std::vector<ProcessGrid> grids() const {
    return views::all_grids(ranks_, {Dim::sample, Dim::depth, Dim::height, Dim::width, Dim::channel});
  }
};

// Fills owned values by global index, exchanges, and compares every cell with where its index leads.
template <class T, int R>
void check_exchange(const comm::Communicator& comm, const Queue<Exec>& queue, const DistributedView<T, R>& x,
                    const BoundaryConditions& boundaries, const TransferOptions& options = {}) {
  const Exchange<> exchange(comm, queue, {{x, boundaries}}, options);
  for (int repeat = 0; repeat < 2; ++repeat) {
    set_cells(x, [&](const Cell& c) { return holds(x.owned_box(), c) ? value_of(c, repeat) : -1; });
    x.mark_stale();
    auto pending = exchange.start(queue);
    EXPECT_EQ(x.shared_ghost_state() != nullptr && *x.shared_ghost_state() == GhostState::stale, true);
    pending.finish();
    EXPECT_EQ(x.ghost_state(), GhostState::fresh);
    queue.fence("aloni::test: before reading");
    for_each_value(x, [&](const Cell& c, double value) {
      Cell from;
      const Origin origin = trace_cell(c, x.distribution().extents(), boundaries, from);
      ASSERT_EQ(value, origin == Origin::value  ? value_of(from, repeat)
                       : origin == Origin::zero ? 0
                                                : -1)
          << "rank " << comm.rank() << ", " << to_string(x.distribution()) << ", ghosts to "
          << to_string(x.box_with_ghosts());
    });
  }
}

GhostWidths widths(std::array<std::array<Index, 2>, 5> w) { return {w}; }

TEST_F(Exchanges, FillGhostsOnEveryGrid) {
  for (const ProcessGrid& grid : grids()) {
    const auto d = Distribution::block(make_extents(5, {6, 7, 9}, 4), grid, ranks_);
    const auto g = widths({{{0, 0}, {1, 2}, {2, 1}, {1, 1}, {0, 0}}});
    check_exchange(comm_, queue_, DistributedView<double, 3>(queue_.space(), "x", d, rank_, g),
                   BoundaryConditions::all(Boundary::reflect));
    if (grid[Dim::depth] > 1) continue;
    const auto flat = Distribution::block(make_extents(5, {7, 9}, 4), grid, ranks_);
    const auto h = widths({{{0, 0}, {0, 0}, {2, 1}, {1, 1}, {0, 0}}});
    check_exchange(comm_, queue_, DistributedView<float, 2>(queue_.space(), "x", flat, rank_, h), {});
  }
}

TEST_F(Exchanges, CopyFromViewToViewWithinANode) {
  const auto g = widths({{{0, 0}, {1, 2}, {2, 1}, {1, 1}, {0, 0}}});
  for (const ProcessGrid& grid : grids()) {
    const auto d = Distribution::block(make_extents(5, {6, 7, 9}, 4), grid, ranks_);
    for (const Boundary b : {Boundary::periodic, Boundary::reflect})
      check_exchange(comm_, queue_, DistributedView<double, 3>(comm_, queue_.space(), "x", d, g),
                     BoundaryConditions::all(b), {.direct_bytes = 0});
  }
  // Faces that are large enough by themselves, of Views in shared memory on some ranks only.
  const auto large =
      Distribution::block(make_extents(1, {4 * ranks_, 64}, 64), ProcessGrid{{1, 1, ranks_, 1, 1}}, ranks_);
  const auto rows = widths({{{0, 0}, {0, 0}, {2, 1}, {0, 0}, {0, 0}}});
  check_exchange(comm_, queue_,
                 rank_ % 2 == 0 ? DistributedView<float, 2>(comm_, queue_.space(), "x", large, rows)
                                : DistributedView<float, 2>(queue_.space(), "x", large, rank_, rows),
                 BoundaryConditions::all(Boundary::periodic));
}

TEST_F(Exchanges, KnowEveryBoundaryKindOnEachSide) {
  const auto d =
      Distribution::block(make_extents(2, {2 * ranks_ + 1, 5}, 3), ProcessGrid{{1, 1, ranks_, 1, 1}}, ranks_);
  const DistributedView<float, 2> x(queue_.space(), "x", d, rank_, widths({{{0, 0}, {0, 0}, {2, 3}, {3, 1}, {0, 0}}}));
  for (int low = 0; low < 5; ++low)
    for (int high = 0; high < 5; ++high) {
      BoundaryConditions b;
      b(Dim::height, Side::low) = static_cast<Boundary>(low);
      b(Dim::height, Side::high) = static_cast<Boundary>(high);
      b(Dim::width, Side::low) = static_cast<Boundary>(high);
      b(Dim::width, Side::high) = static_cast<Boundary>(low);
      check_exchange(comm_, queue_, x, b);
    }
}

TEST_F(Exchanges, ReachOverSeveralRanksAndTheWholeDomain) {
  const auto d = Distribution::block(make_extents(1, {ranks_}, 2), ProcessGrid{{1, 1, 1, ranks_, 1}}, ranks_);
  for (Index reach : {Index{1}, Index{2}, Index{ranks_}, Index{3 * ranks_}})
    for (Boundary b : {Boundary::zero, Boundary::periodic, Boundary::replicate, Boundary::reflect})
      check_exchange(comm_, queue_,
                     DistributedView<double, 1>(queue_.space(), "x", d, rank_,
                                                widths({{{0, 0}, {0, 0}, {0, 0}, {reach, reach}, {0, 0}}})),
                     BoundaryConditions::all(b));
}

TEST_F(Exchanges, AllowUnevenAndEmptyBlocksAndGhostsThatDifferByRank) {
  std::vector<Index> sizes(static_cast<std::size_t>(ranks_), 0);
  sizes.back() = 7;
  if (ranks_ > 2) sizes[1] = 2, sizes.back() = 5;
  const auto d = Distribution::block(make_extents(2, {7, 4}, 3), ProcessGrid{{1, 1, ranks_, 1, 1}}, ranks_)
                     .with_blocks(Dim::height, sizes);
  const DistributedView<float, 2> x(queue_.space(), "x", d, rank_,
                                    widths({{{0, 0}, {0, 0}, {rank_ % 3, 1 + rank_ % 2}, {0, 1}, {0, 0}}}));
  check_exchange(comm_, queue_, x, BoundaryConditions::all(Boundary::periodic));
}

TEST_F(Exchanges, StayWithinReplicas) {
  const auto d = Distribution::block(make_extents(4, {9, 4}, 3), ProcessGrid{}, ranks_);
  check_exchange(
      comm_, queue_,
      DistributedView<float, 2>(queue_.space(), "x", d, rank_, widths({{{0, 0}, {0, 0}, {2, 2}, {0, 1}, {0, 0}}})),
      BoundaryConditions::all(Boundary::periodic));
  const auto h = Distribution::block(make_extents(4, {9, 4}, 3), ProcessGrid{{1, 1, ranks_, 1, 1}}, ranks_)
                     .with_replicated(Dim::height);
  check_exchange(
      comm_, queue_,
      DistributedView<float, 2>(queue_.space(), "x", h, rank_, widths({{{0, 0}, {0, 0}, {2, 2}, {0, 1}, {0, 0}}})),
      BoundaryConditions::all(Boundary::replicate));
}

TEST_F(Exchanges, WorkOnTheMemoryOfTheirHost) {
  // A simulation's own arrays: LayoutLeft, and channels in front.
  const auto d = Distribution::block(make_extents(2, {3 * ranks_, 5}, 3), ProcessGrid{{1, 1, ranks_, 1, 1}}, ranks_);
  const auto g = widths({{{0, 0}, {0, 0}, {1, 2}, {1, 1}, {0, 0}}});
  const Kokkos::View<double****, Kokkos::LayoutLeft, Memory> left("left", 2, 6, 7, 3);
  check_exchange(comm_, queue_, DistributedView<double, 2>::wrap(left, d, rank_, g),
                 BoundaryConditions::all(Boundary::periodic));
  const Kokkos::View<double****, Kokkos::LayoutRight, Memory> nchw("nchw", 2, 3, 6, 7);
  check_exchange(comm_, queue_,
                 DistributedView<double, 2>::wrap_permuted(nchw, {Dim::sample, Dim::channel, Dim::height, Dim::width},
                                                           d, rank_, g),
                 BoundaryConditions::all(Boundary::reflect));
}

TEST_F(Exchanges, SendOneMessagePerPeerForSeveralViews) {
  const auto d = Distribution::block(make_extents(2, {3 * ranks_, 5}, 3), ProcessGrid{{1, 1, ranks_, 1, 1}}, ranks_);
  const auto e = Distribution::block(make_extents(1, {2, 2 * ranks_, 5}, 2), ProcessGrid{{1, 1, ranks_, 1, 1}}, ranks_);
  const auto g = widths({{{0, 0}, {0, 0}, {1, 1}, {0, 0}, {0, 0}}});
  const DistributedView<float, 2> x(queue_.space(), "x", d, rank_, g);
  const DistributedView<float, 3> y(queue_.space(), "y", e, rank_, g);
  const auto periodic = BoundaryConditions::all(Boundary::periodic);
  const Exchange<> both(comm_, queue_, {{x, periodic}, y});
  EXPECT_EQ(both.counts().sent_messages, std::min(ranks_ - 1, 2));
  set_cells(x, [&](const Cell& c) { return holds(x.owned_box(), c) ? value_of(c) : -1; });
  set_cells(y, [&](const Cell& c) { return holds(y.owned_box(), c) ? value_of(c, 1) : -1; });
  both.run(queue_);
  queue_.fence("aloni::test: before reading");
  for_each_value(x, [&](const Cell& c, double value) {
    Cell from;
    trace_cell(c, d.extents(), periodic, from);
    ASSERT_EQ(value, value_of(from));
  });
  for_each_value(y, [&](const Cell& c, double value) {
    Cell from;
    ASSERT_EQ(value, trace_cell(c, e.extents(), {}, from) == Origin::value ? value_of(from, 1) : 0);
  });
}

// Small integers: whatever the order of sums, they are exact.
TEST_F(Exchanges, GiveTheSameByEveryMethod) {
  const auto grids = views::all_grids(ranks_, {Dim::depth, Dim::height, Dim::width});
  const auto boundaries = BoundaryConditions::all(Boundary::periodic).set(Dim::height, Boundary::reflect);
  for (const ProcessGrid& grid : grids) {
    const auto d = Distribution::block(
        make_extents(1, {2 * grid[Dim::depth] + 1, 2 * grid[Dim::height], grid[Dim::width] + 1}, 2), grid, ranks_);
    const auto g = widths({{{0, 0}, {1, 2}, {1, 1}, {2, 0}, {0, 0}}});
    const DistributedView<float, 3> x(queue_.space(), "x", d, rank_, g), x0(queue_.space(), "x0", d, rank_, g);
    const DistributedView<double, 3> y(comm_, queue_.space(), "y", d, g), y0(queue_.space(), "y0", d, rank_, g);
    const auto fill = [&](const auto& view, int variant) {
      set_cells(view, [&](const Cell& c) {
        return holds(view.owned_box(), c) ? value_of(c, variant)
                                          : static_cast<double>((c[1] + 2 * c[2] + 3 * c[3]) % 5);
      });
    };
    const auto expect_equal = [&](const auto& view, const auto& reference) {
      queue_.fence("aloni::test: before reading");
      std::vector<double> expected;
      for_each_value(reference, [&](const Cell&, double value) { expected.push_back(value); });
      std::size_t i = 0;
      for_each_value(view, [&](const Cell& c, double value) {
        ASSERT_EQ(value, expected[i++]) << to_string(Box{c, c});
      });
    };
    const Exchange<> reference(comm_, queue_, {{x0, boundaries}, {y0, boundaries}});
    for (const bool fused : {true, false}) {
      for (const bool by_dimension : {true, false}) {
        const ExchangeMethod method{.fused = fused, .by_dimension = by_dimension};
        SCOPED_TRACE(to_string(grid) + ", " + to_string(method));
        const Exchange<> exchange(comm_, queue_, {{x, boundaries}, {y, boundaries}}, method);
        EXPECT_EQ(exchange.explain().substr(0, to_string(method).size()), to_string(method));
        for (const bool adjoint : {false, true, false}) {
          for (const auto* view : {&x, &x0}) fill(*view, 0);
          for (const auto* view : {&y, &y0}) fill(*view, 1);
          for (const auto* e : {&reference, &exchange}) adjoint ? e->run_adjoint(queue_) : e->run(queue_);
          expect_equal(x, x0);
          expect_equal(y, y0);
        }
        if (fused && by_dimension) {
          EXPECT_LE(exchange.counts().sent_messages, 6);
        }
      }
    }
  }
}

TEST_F(Exchanges, AreInFlightOnceByEveryMethod) {
  const auto d = Distribution::block(make_extents(1, {2 * ranks_, 3}, 1), ProcessGrid{{1, 1, ranks_, 1, 1}}, ranks_);
  const auto g = widths({{{0, 0}, {0, 0}, {1, 1}, {1, 1}, {0, 0}}});
  const DistributedView<float, 2> x(queue_.space(), "x", d, rank_, g), y(queue_.space(), "y", d, rank_, g);
  const Exchange<> exchange(comm_, queue_, {x, y}, {.fused = false, .by_dimension = true});
  Pending pending = exchange.start(queue_);
  try {
    (void)exchange.start(queue_);
    ADD_FAILURE() << "started twice";
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(),
                 "aloni::halo::Exchange::start: exchange = each View by itself, one dimension after the other: "
                 "expected one that is "
                 "not in flight: finish() the Pending of its last start first");
  }
  pending.finish();
  exchange.run(queue_);
}

TEST_F(Exchanges, FillOnlyWhatIsNeeded) {
  const auto d = Distribution::block(make_extents(2, {4 * ranks_, 5}, 3), ProcessGrid{{1, 1, ranks_, 1, 1}}, ranks_);
  const DistributedView<float, 2> x(queue_.space(), "x", d, rank_, widths({{{0, 0}, {0, 0}, {2, 2}, {0, 0}, {0, 0}}}));
  const auto needed = [&](int r) {
    Box b = d.owned(r);
    b.set(Dim::height, b.lower(Dim::height) - 1, b.upper(Dim::height));
    return b;
  };
  const Exchange<> exchange(comm_, queue_, {{x, {}, needed}});
  set_cells(x, [](const Cell&) { return 5; });
  exchange.run(queue_);
  EXPECT_EQ(exchange.counts().received_elements, rank_ == 0 ? 0 : 2 * 5 * 3);
  queue_.fence("aloni::test: before reading");
  for_each_value(x, [&](const Cell& c, double value) { ASSERT_EQ(value, rank_ == 0 && c[2] == -1 ? 0 : 5); });
}

TEST_F(Exchanges, AddGhostsToTheirOwnersInTheAdjoint) {
  // Every ghost holds 1: an owned cell grows by the number of ghosts that mirror it anywhere.
  const auto d = Distribution::block(make_extents(1, {2 * ranks_}, 1), ProcessGrid{{1, 1, 1, ranks_, 1}}, ranks_);
  const DistributedView<double, 1> x(queue_.space(), "x", d, rank_, widths({{{0, 0}, {0, 0}, {0, 0}, {1, 1}, {0, 0}}}));
  const Exchange<> exchange(comm_, queue_, {{x, BoundaryConditions::all(Boundary::replicate)}});
  set_cells(x, [](const Cell&) { return 1; });
  x.mark_fresh();
  exchange.run_adjoint(queue_);
  EXPECT_EQ(x.ghost_state(), GhostState::stale);
  queue_.fence("aloni::test: before reading");
  for_each_value(x, [&](const Cell& c, double value) {
    const bool ghost = !holds(x.owned_box(), c);
    ASSERT_EQ(value, ghost ? 0 : 2) << "cell " << c[3]
                                    << ": its own 1 and one ghost, a neighbour's or the one beyond the edge";
  });
}

TEST_F(Exchanges, RefuseArgumentsThatDifferBetweenRanks) {
  const auto d = Distribution::block(make_extents(2, {3 * ranks_, 5}, 3), ProcessGrid{{1, 1, ranks_, 1, 1}}, ranks_);
  const DistributedView<float, 2> x(queue_.space(), "x", d, rank_, widths({{{0, 0}, {0, 0}, {1, 1}, {0, 0}, {0, 0}}}));
  const auto boundaries = BoundaryConditions::all(rank_ == 0 ? Boundary::zero : Boundary::periodic);
  if (ranks_ > 1) {
    try {
      Exchange<>(comm_, queue_, {{x, boundaries}});
      FAIL();
    } catch (const InvalidArgument& e) {
      EXPECT_STREQ(
          e.what(),
          "aloni::halo::Exchange: arguments = different ones on different ranks: expected the same number of tensors, "
          "distributions, needed boxes and boundaries on all ranks");
    }
  }
  const auto other = Distribution::block(make_extents(2, {3, 5}, 3), ProcessGrid{}, ranks_ + 1);
  try {
    Exchange<>(comm_, queue_, {DistributedView<float, 2>(queue_.space(), "y", other, rank_)});
    FAIL();
  } catch (const InvalidArgument& e) {
    EXPECT_EQ(std::string(e.what()), "aloni::halo::Exchange: distribution of \"y\" = 2x1x3x5x3 over 1 (" +
                                         std::to_string(ranks_ + 1) + " ranks): expected one over the " +
                                         std::to_string(ranks_) + " ranks of the communicator");
  }
}

}  // namespace test_exchange
}  // namespace aloni::halo
