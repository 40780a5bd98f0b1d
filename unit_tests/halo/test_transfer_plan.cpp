#include <aloni/halo/transfer_plan.hpp>

#include <aloni/core/error.hpp>

#include <gmock/gmock.h>
#include <halo/reference.hpp>

#include <functional>
#include <map>
#include <tuple>

namespace aloni::halo {
namespace test_transfer_plan {

using namespace testing_support;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

Distribution rows(Index height, int blocks) {
  ProcessGrid grid;
  grid[Dim::height] = blocks;
  return Distribution::block(views::make_extents(2, {height, 4}, 3), grid, blocks);
}

NeededBox rows_around(const Distribution& d, Index below, Index above) {
  return [&d, below, above](int rank) {
    Box box = d.owned(rank);
    if (!box.empty()) box.set(Dim::height, box.lower(Dim::height) - below, box.upper(Dim::height) + above);
    return box;
  };
}

Box rows_box(Index lo, Index hi) { return {{0, 0, lo, 0, 0}, {2, 1, hi, 4, 3}}; }

// Calls f(destination cell, source cell) for all cells of a move, by the definition of `step`.
void for_each_pair(const Move& m, const std::function<void(const Cell&, const Cell&)>& f) {
  for (std::size_t i = 0; i < views::num_dims; ++i) {
    const Index to = m.destination.hi[i] - m.destination.lo[i], from = m.source.hi[i] - m.source.lo[i];
    ASSERT_TRUE(m.step[i] == 0 ? from == 1 : from == to) << to_string(m.destination) << " from " << to_string(m.source);
  }
  for_each_cell(m.destination, [&](const Cell& to) {
    Cell from;
    for (std::size_t i = 0; i < views::num_dims; ++i) {
      const Index offset = to[i] - m.destination.lo[i];
      from[i] = m.step[i] > 0 ? m.source.lo[i] + offset : m.step[i] < 0 ? m.source.hi[i] - 1 - offset : m.source.lo[i];
    }
    f(to, from);
  });
}

enum class Kind { halo, redistribution };

// Checks the contract of the header, cell by cell.
void check_plans(const RandomCase& c, Kind kind) {
  const int ranks = c.source.ranks();
  std::vector<TransferPlan> plans;
  for (int r = 0; r < ranks; ++r)
    plans.push_back(kind == Kind::halo ? plan_halo(c.source, c.needed_box(), c.boundaries, r)
                                       : plan_redistribution(c.source, c.destination, c.needed_box(), c.boundaries, r));

  std::map<std::pair<int, int>, const Message*> sends, receives;
  const auto collect = [&](const std::vector<Message>& messages, bool sending, int rank, auto& into) {
    for (std::size_t m = 0; m < messages.size(); ++m) {
      const Message& message = messages[m];
      ASSERT_NE(message.peer, rank) << "a rank sends no message to itself";
      if (m > 0) {
        ASSERT_LT(messages[m - 1].peer, message.peer) << "ascending, one message per peer";
      }
      Index elements = 0;
      for (const Move& move : message.moves) elements += move.source.size();
      ASSERT_EQ(message.elements, elements);
      ASSERT_GT(elements, 0) << "no empty message";
      into[sending ? std::pair(rank, message.peer) : std::pair(message.peer, rank)] = &message;
    }
  };
  for (int r = 0; r < ranks; ++r) {
    collect(plans[static_cast<std::size_t>(r)].sends, true, r, sends);
    collect(plans[static_cast<std::size_t>(r)].receives, false, r, receives);
  }
  ASSERT_EQ(sends.size(), receives.size());
  for (const auto& [pair, message] : sends) {
    const auto found = receives.find(pair);
    ASSERT_NE(found, receives.end()) << "from " << pair.first << " to " << pair.second;
    ASSERT_EQ(message->moves, found->second->moves) << "from " << pair.first << " to " << pair.second;
  }

  for (int r = 0; r < ranks; ++r) {
    const Box needed = c.needed[static_cast<std::size_t>(r)], own = c.source.owned(r);
    const TransferPlan& plan = plans[static_cast<std::size_t>(r)];
    std::vector<int> written(static_cast<std::size_t>(needed.size()), 0);
    const auto check_moves = [&](const std::vector<Move>& moves, int owner) {
      for (const Move& move : moves) {
        ASSERT_TRUE(views::contains(needed, move.destination)) << to_string(move.destination);
        ASSERT_TRUE(views::contains(c.source.owned(owner), move.source)) << to_string(move.source);
        for_each_pair(move, [&](const Cell& to, const Cell& from) {
          ++written[number(to, needed)];
          Cell expected;
          ASSERT_EQ(trace_cell(to, c.source.extents(), c.boundaries, expected), Origin::value);
          ASSERT_EQ(from, expected) << "rank " << r << " from " << owner;
          if (owner != r) {
            ASSERT_FALSE(holds(own, from)) << "rank " << r << " owns a value that it receives from " << owner;
          }
        });
      }
    };
    for (const Message& m : plan.receives) check_moves(m.moves, m.peer);
    check_moves(plan.local, r);
    for (const Box& fill : plan.fills) {
      ASSERT_TRUE(views::contains(needed, fill)) << to_string(fill);
      for_each_cell(fill, [&](const Cell& to) {
        ++written[number(to, needed)];
        Cell source;
        ASSERT_EQ(trace_cell(to, c.source.extents(), c.boundaries, source), Origin::zero);
      });
    }
    for_each_cell(needed, [&](const Cell& cell) {
      Cell source;
      const bool untouched = trace_cell(cell, c.source.extents(), c.boundaries, source) == Origin::untouched ||
                             (kind == Kind::halo && holds(own, cell));
      ASSERT_EQ(written[number(cell, needed)], untouched ? 0 : 1) << "rank " << r;
    });
    if (testing::Test::HasFatalFailure()) return;
  }
}

/// A caller that names the readers of each rank gets the same plans.
void check_readers(const RandomCase& c) {
  for (int r = 0; r < c.source.ranks(); ++r) {
    const TransferPlan halo = plan_halo(c.source, c.needed_box(), c.boundaries, r);
    const TransferPlan redistribution = plan_redistribution(c.source, c.destination, c.needed_box(), c.boundaries, r);
    const auto readers = [](const TransferPlan& plan) {
      std::vector<int> peers;
      for (const Message& m : plan.sends) peers.push_back(m.peer);
      return peers;
    };
    ASSERT_EQ(plan_halo(c.source, c.needed_box(), c.boundaries, r, readers(halo)), halo);
    ASSERT_EQ(plan_redistribution(c.source, c.destination, c.needed_box(), c.boundaries, r, readers(redistribution)),
              redistribution);
    const auto owned = [&](int rank) { return c.destination.owned(rank); };
    ASSERT_EQ(plan_redistribution(c.source, c.destination, r),
              plan_redistribution(c.source, c.destination, owned, BoundaryConditions{}, r));
  }
}

TEST(TransferPlan, CoversEveryNeededCellOnceWithTheRightValue) {
  for (unsigned seed = 0; seed < 600; ++seed) {
    Random pick(seed);
    const int ranks = pick.one_in(8) ? pick(17, 64) : pick(1, 16);
    const RandomCase c = random_case(pick, ranks);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + describe(c));
    check_plans(c, Kind::halo);
    check_plans(c, Kind::redistribution);
    check_readers(c);
    if (HasFatalFailure()) return;
  }
}

TEST(TransferPlan, IsRightForEveryRankCountUpTo64) {
  for (int ranks = 1; ranks <= 64; ++ranks) {
    Random pick(1000U + static_cast<unsigned>(ranks));
    const RandomCase c = random_case(pick, ranks, 4);
    SCOPED_TRACE("ranks " + std::to_string(ranks) + ": " + describe(c));
    check_plans(c, Kind::halo);
    check_plans(c, Kind::redistribution);
    if (HasFatalFailure()) return;
  }
}

// Runs the steps on the tensors of all ranks and checks the value of every cell.
TEST(HaloPlanByDimension, FillsAllGhostsFromNeighboursAlongTheAxes) {
  int served = 0;
  for (unsigned seed = 0; seed < 600; ++seed) {
    Random pick(seed);
    const int ranks = pick(1, 12);
    RandomCase c = random_case(pick, ranks);
    std::array<std::array<Index, 2>, views::num_dims> widths{};
    for (auto& sides : widths)
      for (Index& width : sides) width = pick.one_in(2) ? pick(1, 4) : 0;
    bool blocks = true;
    for (int r = 0; r < ranks; ++r) {
      Box& box = c.needed[static_cast<std::size_t>(r)] = c.source.owned(r);
      blocks = blocks && !box.empty();
      for (Dim d : all_dims) {
        const auto i = static_cast<std::size_t>(position(d));
        box.set(d, box.lower(d) - widths[i][0], box.upper(d) + widths[i][1]);
      }
    }
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + describe(c));
    if (!blocks) {
      EXPECT_THROW((void)plan_halo_by_dimension(c.source, c.needed_box(), c.boundaries, 0), Unsupported);
      continue;
    }
    ++served;
    std::vector<std::array<TransferPlan, views::num_dims>> plans;
    std::vector<std::vector<double>> tensors;
    const auto index = [](int r) { return static_cast<std::size_t>(r); };
    const auto value_of = [](const Cell& cell) {
      return static_cast<double>(1 + cell[4] + 100 * (cell[3] + 100 * (cell[2] + 100 * (cell[1] + 100 * cell[0]))));
    };
    for (int r = 0; r < ranks; ++r) {
      plans.push_back(plan_halo_by_dimension(c.source, c.needed_box(), c.boundaries, r));
      std::vector<double>& tensor = tensors.emplace_back(static_cast<std::size_t>(c.needed[index(r)].size()), -1.0);
      for_each_cell(c.source.owned(r),
                    [&](const Cell& cell) { tensor[number(cell, c.needed[index(r)])] = value_of(cell); });
    }
    for (std::size_t step = 0; step < views::num_dims; ++step) {
      const auto before = tensors;
      for (int r = 0; r < ranks; ++r) {
        const TransferPlan& plan = plans[index(r)][step];
        const auto copy = [&](const std::vector<Move>& moves, int from_rank) {
          for (const Move& m : moves) {
            ASSERT_TRUE(views::contains(c.needed[index(from_rank)], m.source)) << to_string(m.source);
            for_each_pair(m, [&](const Cell& to, const Cell& from) {
              tensors[index(r)][number(to, c.needed[index(r)])] =
                  before[index(from_rank)][number(from, c.needed[index(from_rank)])];
            });
          }
        };
        for (const Message& m : plan.receives) {
          const auto& sends = plans[index(m.peer)][step].sends;
          const auto sent = std::ranges::find(sends, r, &Message::peer);
          ASSERT_NE(sent, sends.end());
          ASSERT_EQ(sent->moves, m.moves);
          ASSERT_EQ(sent->elements, m.elements);
          const auto mine = c.source.grid().coordinate(r), theirs = c.source.grid().coordinate(m.peer);
          for (std::size_t i = 0; i < views::num_dims; ++i) {
            if (i == step) continue;
            ASSERT_EQ(mine[i], theirs[i]) << "rank " << m.peer << " is not a neighbour along the axis";
          }
          copy(m.moves, m.peer);
        }
        copy(plan.local, r);
        for (const Box& fill : plan.fills)
          for_each_cell(fill, [&](const Cell& cell) { tensors[index(r)][number(cell, c.needed[index(r)])] = 0; });
      }
    }
    for (int r = 0; r < ranks; ++r) {
      for_each_cell(c.needed[index(r)], [&](const Cell& cell) {
        Cell source;
        const Origin origin = trace_cell(cell, c.source.extents(), c.boundaries, source);
        const double expected = origin == Origin::value ? value_of(source) : origin == Origin::zero ? 0 : -1;
        ASSERT_EQ(tensors[index(r)][number(cell, c.needed[index(r)])], expected) << "rank " << r;
      });
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(served, 100);
}

TEST(HaloPlanByDimension, RefusesDifferentGhostWidthsAlongAnAxis) {
  const auto d = Distribution::block(views::make_extents(1, {4, 4}, 1), ProcessGrid::parse("h2w2"), 4);
  const auto needed = [&](int rank) {
    Box box = d.owned(rank);
    if (rank == 3) box.set(Dim::width, box.lower(Dim::width) - 1, box.upper(Dim::width));
    return box;
  };
  try {
    (void)plan_halo_by_dimension(d, needed, {}, 0);
    FAIL();
  } catch (const Unsupported& e) {
    EXPECT_STREQ(e.what(),
                 "aloni::halo::plan_halo_by_dimension: width of rank 3 = needs [1,4): expected equal ghost widths on "
                 "all ranks that own the same indices there; exchange with all neighbours at once instead");
  }
}

TEST(HaloPlan, SendsOnlyRowsTheNeighbourNeeds) {
  const auto d = rows(28, 2);
  const auto plan = plan_halo(d, rows_around(d, 2, 1), {}, 0);
  ASSERT_THAT(plan.sends, SizeIs(1));
  EXPECT_EQ(plan.sends[0].peer, 1);
  EXPECT_THAT(plan.sends[0].moves, ElementsAre(Move{rows_box(12, 14), rows_box(12, 14)}));
  ASSERT_THAT(plan.receives, SizeIs(1));
  EXPECT_THAT(plan.receives[0].moves, ElementsAre(Move{rows_box(14, 15), rows_box(14, 15)}));
  EXPECT_THAT(plan.local, IsEmpty());
  EXPECT_THAT(plan.fills, ElementsAre(rows_box(-2, 0)));
  EXPECT_EQ(count(plan), (TransferCount{1, 2 * 2 * 4 * 3, 1, 2 * 4 * 3, 0, 2 * 2 * 4 * 3}));
}

TEST(HaloPlan, ReceivesFromSeveralThinBlocks) {
  const auto d = rows(6, 6);
  const auto plan = plan_halo(d, rows_around(d, 3, 0), {}, 4);
  std::vector<int> peers;
  for (const auto& m : plan.receives) peers.push_back(m.peer);
  EXPECT_THAT(peers, ElementsAre(1, 2, 3));
}

TEST(HaloPlan, DistinguishesTheTwoSidesOfAPeriodicAxisOfTwoRanks) {
  const auto d = rows(8, 2);
  const auto periodic = BoundaryConditions{}.set(Dim::height, Boundary::periodic);
  const auto plan = plan_halo(d, rows_around(d, 1, 1), periodic, 0);
  ASSERT_THAT(plan.receives, SizeIs(1)) << "both sides are the same peer: one message";
  EXPECT_THAT(plan.receives[0].moves,
              ElementsAre(Move{rows_box(-1, 0), rows_box(7, 8)}, Move{rows_box(4, 5), rows_box(4, 5)}));
}

TEST(HaloPlan, CopiesLocallyOnAPeriodicAxisOfOneRank) {
  const auto d = rows(2, 1);
  const auto plan = plan_halo(d, rows_around(d, 3, 0), BoundaryConditions{}.set(Dim::height, Boundary::periodic), 0);
  EXPECT_THAT(plan.receives, IsEmpty());
  EXPECT_THAT(plan.local, ElementsAre(Move{rows_box(-3, -2), rows_box(1, 2)}, Move{rows_box(-2, 0), rows_box(0, 2)}));
}

TEST(HaloPlan, MirrorsWithoutRepeatingTheEdge) {
  const auto d = rows(5, 1);
  const auto plan = plan_halo(d, rows_around(d, 3, 3), BoundaryConditions{}.set(Dim::height, Boundary::reflect), 0);
  EXPECT_THAT(plan.local, ElementsAre(Move{rows_box(-3, 0), rows_box(1, 4), {1, 1, -1, 1, 1}},
                                      Move{rows_box(5, 8), rows_box(1, 4), {1, 1, -1, 1, 1}}));
}

TEST(HaloPlan, SendsAReplicatedEdgeOnce) {
  const auto d = rows(4, 2).with_blocks(Dim::height, {4, 0});
  const auto needed = [](int rank) { return rank == 1 ? rows_box(4, 9) : Box{}; };
  const auto plan = plan_halo(d, needed, BoundaryConditions{}.set(Dim::height, Boundary::replicate), 1);
  ASSERT_THAT(plan.receives, SizeIs(1));
  EXPECT_THAT(plan.receives[0].moves, ElementsAre(Move{rows_box(4, 9), rows_box(3, 4), {1, 1, 0, 1, 1}}));
  EXPECT_EQ(plan.receives[0].elements, 2 * 4 * 3);
}

TEST(HaloPlan, IsEmptyForASplitOfSamples) {
  const auto d = Distribution::block(views::make_extents(8, {28, 28}, 1), ProcessGrid::parse("n4"), 4);
  for (int r = 0; r < 4; ++r)
    EXPECT_EQ(plan_halo(
                  d, [&](int q) { return d.owned(q); }, {}, r),
              (TransferPlan{}));
}

TEST(HaloPlan, StaysWithinAReplica) {
  const auto d = Distribution::block(views::make_extents(1, {8, 8}, 1), ProcessGrid::parse("h2"), 4);
  const auto plan = plan_halo(d, rows_around(d, 1, 1), {}, 3);
  ASSERT_THAT(plan.receives, SizeIs(1));
  EXPECT_EQ(plan.receives[0].peer, 2);
}

TEST(RedistributionPlan, GathersAndScatters) {
  const auto d = rows(7, 3);
  const auto root = Distribution::on_root(d.extents(), 3, 1);
  const auto gather = plan_redistribution(d, root, 1);
  EXPECT_THAT(gather.receives, SizeIs(2));
  EXPECT_THAT(gather.sends, IsEmpty());
  EXPECT_EQ(count(gather).local_elements, d.owned(1).size());
  EXPECT_THAT(plan_redistribution(d, root, 0).sends, SizeIs(1));
  const auto scatter = plan_redistribution(root, d, 1);
  EXPECT_EQ(scatter.sends, [&] {
    auto messages = gather.receives;  // scatter sends the same boxes back
    return messages;
  }());
}

TEST(RedistributionPlan, TakesOwnedValuesFromTheRankItself) {
  const auto d = Distribution::block(views::make_extents(8, {4, 4}, 2), ProcessGrid::parse("h4"), 4);
  const auto replicated = d.with_replicated(Dim::height);
  for (int r = 0; r < 4; ++r) {
    const auto plan = plan_redistribution(replicated, d, r);
    EXPECT_THAT(plan.receives, IsEmpty());
    EXPECT_EQ(count(plan).local_elements, d.owned(r).size());
  }
}

TEST(RedistributionPlan, SpreadsTheLoadOverReplicas) {
  // Two replicas of rows in halves become four blocks of samples: each replica sends to its own ranks.
  const auto extents = views::make_extents(8, {4, 4}, 2);
  const auto halves = Distribution::block(extents, ProcessGrid::parse("h2"), 4);
  const auto samples = Distribution::block(extents, ProcessGrid::parse("n4"), 4);
  for (int r = 0; r < 4; ++r)
    EXPECT_EQ(count(plan_redistribution(halves, samples, r)).sent_elements, extents.size() / 8);
}

TEST(RedistributionPlan, RefusesTensorsOfDifferentExtentsOrRanks) {
  const auto a = rows(7, 3), b = rows(8, 3);
  try {
    plan_redistribution(a, b, 0);
    FAIL();
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(
        e.what(),
        "aloni::halo::plan_redistribution: destination.extents() = 2x1x8x4x3: expected 2x1x7x4x3, the extents of "
        "the source");
  }
  EXPECT_THROW(plan_redistribution(a, Distribution::block(a.extents(), ProcessGrid{}, 1), 0), InvalidArgument);
  EXPECT_THROW(plan_redistribution(a, a, 3), InvalidArgument);
}

TEST(HaloPlan, RefusesBoundariesThatReadAnEmptyTensor) {
  const auto d = rows(0, 1);
  const auto needed = [](int) { return rows_box(0, 2); };
  EXPECT_THROW(plan_halo(d, needed, BoundaryConditions{}.set(Dim::height, Boundary::periodic), 0), InvalidArgument);
  EXPECT_THAT(plan_halo(d, needed, {}, 0).fills, ElementsAre(rows_box(0, 2)));
}

TEST(AgreementDigest, DiffersForEveryChangedArgument) {
  const auto a = rows(28, 2);
  const auto one = rows_around(a, 1, 1), other = rows_around(a, 1, 2);
  const auto digest = agreement_digest(a, a, one, {});
  EXPECT_EQ(digest, agreement_digest(rows(28, 2), a, one, {}));
  EXPECT_NE(digest, agreement_digest(a, a, other, {}));
  EXPECT_NE(digest, agreement_digest(a, a, one, BoundaryConditions::all(Boundary::periodic)));
  EXPECT_NE(digest, agreement_digest(a, a.with_replicated(Dim::height), one, {}));
  EXPECT_NE(digest, agreement_digest(a.with_blocks(Dim::height, {13, 15}), a, one, {}));
}

}  // namespace test_transfer_plan
}  // namespace aloni::halo
