// Proves every collective algorithm for numbers of ranks up to 64 (a nightly run: for all of them). Compares its cost
// with the textbook.
#include <aloni/core/comm/schedule/algorithms.hpp>
#include <aloni/core/comm/schedule/verify.hpp>
#include <aloni/core/error.hpp>

#include "support/random_cases.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <string>
#include <vector>

namespace aloni::comm {
namespace test_algorithms {

/// Largest number of ranks; smaller under a sanitizer.
constexpr int most_ranks = aloni::test::share_of(64);

/// All numbers up to 24 and those around powers of two, in a nightly run all up to `most_ranks`.
bool is_proved(int ranks) {
  return aloni::test::nightly() || ranks <= 24 || (ranks >= 31 && ranks <= 33) || ranks == 48 || ranks >= 63;
}

int floor_log2(int p) { return std::bit_width(static_cast<unsigned>(p)) - 1; }
int ceil_log2(int p) { return p <= 1 ? 0 : floor_log2(p - 1) + 1; }

Cost prove(int size, const Goal& goal, const std::function<void(Builder&, const Team&)>& algorithm) {
  std::vector<Schedule> all;
  for (int r = 0; r < size; ++r) {
    Builder b(r);
    algorithm(b, Team::all(r, size));
    all.push_back(b.finish());
  }
  return verify(all, goal);
}

/// No elements, fewer elements than ranks, equal and uneven blocks.
std::vector<Index> counts_for(int p) { return {0, 1, p - 1, p, 3 * p + 1}; }

template <class F>
void for_all_ranks_and_counts(F&& f) {
  for (int p = 1; p <= most_ranks; ++p) {
    if (!is_proved(p)) continue;
    for (Index n : counts_for(p)) {
      SCOPED_TRACE(std::to_string(p) + " ranks, " + std::to_string(n) + " elements");
      ASSERT_NO_THROW(f(p, n));
    }
  }
}

TEST(AllReduce, ByRecursiveDoublingSendsAllDataInEachOfLogPRounds) {
  for_all_ranks_and_counts([](int p, Index n) {
    const Cost cost = prove(p, all_reduce_goal(p, n),
                            [&](Builder& b, const Team& team) { recursive_doubling_all_reduce(b, team, b.output(n)); });
    const int power = 1 << floor_log2(p), extra = p - power;
    EXPECT_EQ(cost.all_elements(), n * (power * floor_log2(p) + 2 * extra));
    EXPECT_LE(cost.rounds, floor_log2(p) + (extra > 0 ? 2 : 0));
    if (n > 0 && extra == 0) {
      EXPECT_EQ(cost.rounds, floor_log2(p));
    }
  });
}

TEST(AllReduce, ByRabenseifnerSendsAtMostTwiceTheData) {
  for_all_ranks_and_counts([](int p, Index n) {
    const Cost cost = prove(p, all_reduce_goal(p, n),
                            [&](Builder& b, const Team& team) { rabenseifner_all_reduce(b, team, b.output(n)); });
    const int power = 1 << floor_log2(p), extra = p - power;
    EXPECT_EQ(cost.all_elements(), 2 * n * (power - 1) + 2 * n * extra);
    if (n >= p) {
      EXPECT_EQ(cost.rounds, 2 * floor_log2(p) + (extra > 0 ? 2 : 0));
    }
  });
}

TEST(AllReduce, ByRingSendsTheLeastForEveryNumberOfRanks) {
  for_all_ranks_and_counts([](int p, Index n) {
    for (Index segment : {Index{0}, Index{2}}) {
      const Cost cost = prove(p, all_reduce_goal(p, n),
                              [&](Builder& b, const Team& team) { ring_all_reduce(b, team, b.output(n), segment); });
      EXPECT_EQ(cost.all_elements(), 2 * n * (p - 1));
      EXPECT_LE(cost.most_elements(), 2 * ((n + p - 1) / p) * (p - 1));
      if (segment == 0) {
        EXPECT_EQ(cost.most_messages(), 2 * (p - 1));
      }
    }
  });
}

TEST(AllReduce, ByNodesSendsTheLeastBetweenNodes) {
  for (int nodes = 1; nodes <= 8; ++nodes) {
    for (int per_node = 1; nodes * per_node <= most_ranks && per_node <= 8; ++per_node) {
      SCOPED_TRACE(std::to_string(nodes) + " nodes of " + std::to_string(per_node));
      const int p = nodes * per_node;
      const Index n = 5 * p + 3;
      // Ranks are placed round robin: the ranks of a node are not neighbours.
      std::vector<std::vector<int>> layout(static_cast<std::size_t>(nodes));
      for (int r = 0; r < p; ++r) layout[static_cast<std::size_t>(r % nodes)].push_back(r);
      std::vector<Schedule> all;
      Index between = 0;
      for (int r = 0; r < p; ++r) {
        Builder b(r);
        hierarchical_all_reduce(b, r, layout, b.output(n));
        all.push_back(b.finish());
        for (const Step& s : all.back().steps) {
          if (s.kind == Step::Kind::send && s.peer % nodes != r % nodes) between += s.from.count;
        }
      }
      ASSERT_NO_THROW(verify(all, all_reduce_goal(p, n)));
      const int power = 1 << floor_log2(nodes);
      EXPECT_EQ(between, 2 * n * (power - 1) + 2 * n * (nodes - power));
    }
  }
}

TEST(AllReduce, DirectlyInSharedMemorySendsNoData) {
  const auto prove_for = [](int p, Index n) {
    SCOPED_TRACE(std::to_string(p) + " ranks, " + std::to_string(n) + " elements");
    // Every third rank has its data outside shared memory.
    const Cost cost = prove(p, all_reduce_goal(p, n), [&](Builder& b, const Team& team) {
      direct_all_reduce(b, team, b.output(n), team.position() % 3 == 1);
    });
    EXPECT_EQ(cost.all_elements(), 0);
    EXPECT_EQ(cost.most_messages(), p == 1 ? 0 : 2 * (p - 1));
  };
  // The check of accesses between ranks is slow (a transitive closure over all steps). So there are only two counts,
  // with empty and with uneven blocks.
  for (int p = 1; p <= most_ranks; ++p) {
    if (!is_proved(p)) continue;
    ASSERT_NO_THROW(prove_for(p, 1));
    ASSERT_NO_THROW(prove_for(p, p + 1));
  }
}

TEST(AllReduce, ByNodesRefusesNodesOfDifferentSizes) {
  Builder b(0);
  const Region data = b.output(4);
  EXPECT_THROW(hierarchical_all_reduce(b, 0, {{0, 1}, {2}}, data), Unsupported);
  EXPECT_THROW(hierarchical_all_reduce(b, 0, {{1}, {2}}, data), InvalidArgument);
}

TEST(ReduceScatter, ByRingSendsEachBlockOnceAroundTheRing) {
  for_all_ranks_and_counts([](int p, Index n) {
    for (Index segment : {Index{0}, Index{2}}) {
      const Cost cost = prove(p, reduce_scatter_goal(p, n), [&](Builder& b, const Team& team) {
        ring_reduce_scatter(b, team, b.output(n), segment);
      });
      EXPECT_EQ(cost.all_elements(), n * (p - 1));
    }
  });
}

TEST(AllGather, ByRingSendsEachBlockOnceAroundTheRing) {
  for_all_ranks_and_counts([](int p, Index n) {
    const Cost cost =
        prove(p, all_gather_goal(p, n), [&](Builder& b, const Team& team) { ring_all_gather(b, team, b.output(n)); });
    EXPECT_EQ(cost.all_elements(), n * (p - 1));
    if (n >= p) {
      EXPECT_EQ(cost.rounds, p - 1);
    }
  });
}

TEST(AllGather, ByBruckNeedsLogPRoundsForEveryNumberOfRanks) {
  for (int p = 1; p <= most_ranks; ++p) {
    if (!is_proved(p)) continue;
    SCOPED_TRACE(std::to_string(p) + " ranks");
    const Index n = 3 * p;
    const Cost cost =
        prove(p, all_gather_goal(p, n), [&](Builder& b, const Team& team) { bruck_all_gather(b, team, b.output(n)); });
    EXPECT_EQ(cost.all_elements(), n * (p - 1));
    EXPECT_LE(cost.rounds, ceil_log2(p));
    EXPECT_EQ(cost.most_messages(), ceil_log2(p));
  }
  Builder b(0);
  const Region uneven = b.output(7);
  EXPECT_THROW(bruck_all_gather(b, Team::all(0, 3), uneven), InvalidArgument);
}

TEST(Broadcast, ByBinomialTreeReachesAllInLogPRounds) {
  for_all_ranks_and_counts([](int p, Index n) {
    for (int root : {0, p / 2, p - 1}) {
      const Cost cost = prove(p, broadcast_goal(p, n, root),
                              [&](Builder& b, const Team& team) { binomial_broadcast(b, team, b.output(n), root); });
      EXPECT_EQ(cost.all_elements(), n * (p - 1));
      EXPECT_LE(cost.rounds, ceil_log2(p));
      if (n > 0 && floor_log2(p) == ceil_log2(p)) {
        EXPECT_EQ(cost.rounds, ceil_log2(p));
      }
    }
  });
}

TEST(Broadcast, ByChainSendsEachSegmentOnceDownTheChain) {
  for_all_ranks_and_counts([](int p, Index n) {
    for (int root : {0, p - 1}) {
      const Cost cost = prove(p, broadcast_goal(p, n, root),
                              [&](Builder& b, const Team& team) { chain_broadcast(b, team, b.output(n), root, 3); });
      EXPECT_EQ(cost.all_elements(), n * (p - 1));
      EXPECT_EQ(cost.most_elements(), p > 1 ? n : 0);
    }
  });
}

TEST(Broadcast, ByNodesEntersEachNodeOnce) {
  const std::vector<std::vector<int>> nodes{{4, 0, 7}, {1}, {2, 3, 5, 6}};
  const std::vector<int> node_of{0, 1, 2, 2, 0, 2, 2, 0};
  for (int root = 0; root < 8; ++root) {
    SCOPED_TRACE("root " + std::to_string(root));
    std::vector<Schedule> all;
    int between = 0;
    for (int r = 0; r < 8; ++r) {
      Builder b(r);
      hierarchical_broadcast(b, r, nodes, b.output(5), root);
      all.push_back(b.finish());
      for (const Step& s : all.back().steps) {
        between += s.kind == Step::Kind::send &&
                   node_of[static_cast<std::size_t>(s.peer)] != node_of[static_cast<std::size_t>(r)];
      }
    }
    ASSERT_NO_THROW(verify(all, broadcast_goal(8, 5, root)));
    EXPECT_EQ(between, 2);
  }
}

TEST(AllToAll, PairwiseSendsEachBlockOnce) {
  for (int p = 1; p <= most_ranks; ++p) {
    if (!is_proved(p)) continue;
    SCOPED_TRACE(std::to_string(p) + " ranks");
    // Uneven counts; some pairs exchange nothing.
    const auto size = static_cast<std::size_t>(p);
    std::vector<std::vector<Index>> counts(size, std::vector<Index>(size));
    Index moved = 0;
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t j = 0; j < size; ++j) {
        counts[i][j] = static_cast<Index>((3 * i + 5 * j) % 4);
        if (i != j) moved += counts[i][j];
      }
    }
    const Goal goal = all_to_all_goal(counts);
    const Cost cost = prove(p, goal, [&](Builder& b, const Team& team) {
      const auto& mine = goal.ranks[static_cast<std::size_t>(team.position())];
      const Region in = b.input(static_cast<Index>(mine.input.size()));
      pairwise_all_to_all(b, team, in, b.output(static_cast<Index>(mine.after.size())), counts);
    });
    EXPECT_EQ(cost.all_elements(), moved);
    EXPECT_LE(cost.most_messages(), p - 1);
  }
}

TEST(AllToAll, ByBruckNeedsLogPMessages) {
  for (int p = 1; p <= most_ranks; ++p) {
    if (!is_proved(p)) continue;
    SCOPED_TRACE(std::to_string(p) + " ranks");
    const auto size = static_cast<std::size_t>(p);
    const std::vector<std::vector<Index>> counts(size, std::vector<Index>(size, 2));
    const Cost cost = prove(p, all_to_all_goal(counts), [&](Builder& b, const Team& team) {
      const Region in = b.input(2 * p);
      bruck_all_to_all(b, team, in, b.output(2 * p));
    });
    EXPECT_EQ(cost.most_messages(), ceil_log2(p));
    Index bits = 0;  // a block that travels j positions is sent once for each bit of j
    for (unsigned j = 0; j < size; ++j) bits += std::popcount(j);
    EXPECT_EQ(cost.most_elements(), 2 * bits);
  }
}

TEST(Barrier, ByDisseminationWaitsForAllInLogPRounds) {
  for (int p = 1; p <= most_ranks; ++p) {
    if (!is_proved(p)) continue;
    SCOPED_TRACE(std::to_string(p) + " ranks");
    const Cost cost = prove(p, barrier_goal(p), [](Builder& b, const Team& team) { dissemination_barrier(b, team); });
    EXPECT_EQ(cost.rounds, ceil_log2(p));
    EXPECT_EQ(cost.most_messages(), ceil_log2(p));
    EXPECT_EQ(cost.all_elements(), 0);
  }
}

TEST(Team, SendsToTheRanksOfAGroupThatDoesNotStartAtZero) {
  // Ranks 5, 1 and 6 of eight run an all-reduce; the other ranks do nothing.
  const std::vector<int> members{5, 1, 6};
  Goal goal = all_reduce_goal(8, 4);
  std::vector<Schedule> all;
  for (int r = 0; r < 8; ++r) {
    Builder b(r);
    const Region data = b.output(4);
    const bool member = r == 5 || r == 1 || r == 6;
    if (member) ring_all_reduce(b, Team(r, members), data);
    for (Content& c : goal.ranks[static_cast<std::size_t>(r)].after) c.ranks = member ? 0b1100010 : 1u << r;
    all.push_back(b.finish());
  }
  EXPECT_NO_THROW(verify(all, goal));
}

}  // namespace test_algorithms
}  // namespace aloni::comm
