#include <aloni/core/comm/all_reduce_traffic.hpp>
#include <aloni/core/comm/schedule/algorithms.hpp>
#include <aloni/core/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace aloni::comm {
namespace test_all_reduce_traffic {

/// `nodes` nodes with `each` positions.
std::vector<std::vector<int>> even_nodes(int nodes, int each) {
  std::vector<std::vector<int>> all(static_cast<std::size_t>(nodes), std::vector<int>(static_cast<std::size_t>(each)));
  for (int n = 0; n < nodes; ++n)
    std::iota(all[static_cast<std::size_t>(n)].begin(), all[static_cast<std::size_t>(n)].end(), n * each);
  return all;
}

TEST(AllReduceTraffic, OfFewBytesIsThatOfRecursiveDoubling) {
  const AllReduceTraffic t = all_reduce_traffic(even_nodes(1, 8), true, 3, 100, 8);
  EXPECT_EQ(t.algorithm, AllReduceAlgorithm::recursive_doubling);
  EXPECT_EQ(t.messages_sent, 3);
  EXPECT_EQ(t.messages_received, 3);
  EXPECT_EQ(t.elements_sent, 300);
  EXPECT_EQ(t.elements_combined, 300);
}

TEST(AllReduceTraffic, AddsUpThePartsOfLargeData) {
  // Parts of 4 MiB: three whole ones, and one of 1024 elements.
  const AllReduceTraffic t = all_reduce_traffic(even_nodes(4, 1), true, 1, 3 * (1 << 20) + 1024, 4);
  EXPECT_EQ(t.algorithm, AllReduceAlgorithm::rabenseifner);
  EXPECT_EQ(t.messages_sent, 4 * 4);
  EXPECT_EQ(t.elements_sent, 2 * (3 * (1 << 20) + 1024) * 3 / 4);
  EXPECT_EQ(t.elements_combined, (3 * (1 << 20) + 1024) * 3 / 4);
}

TEST(AllReduceTraffic, InSharedMemoryHasTheMessagesOfTheSchedule) {
  for (const int p : {2, 3, 7}) {
    for (int me = 0; me < p; ++me) {
      const Index count = 10'007;
      const AllReduceTraffic t = all_reduce_traffic(even_nodes(1, p), true, me, count, 8);
      EXPECT_EQ(t.algorithm, AllReduceAlgorithm::direct);
      Builder b(me);
      direct_all_reduce(b, Team::all(me, p), b.output(count), false);
      const Schedule s = b.finish();
      EXPECT_EQ(t.messages_sent, s.messages_sent());
      const Index block = block_of({Buffer::output, 0, count}, me, p).count;
      EXPECT_EQ(t.elements_sent, count - block + (p - 1) * block);
      EXPECT_EQ(t.elements_combined, (p - 1) * block);
    }
  }
}

void add(AllReduceTraffic& sum, const Schedule& s) {
  for (const Step& step : s.steps) {
    if (step.kind == Step::Kind::send) {
      ++sum.messages_sent;
      sum.elements_sent += step.from.count;
    } else if (step.kind == Step::Kind::receive) {
      ++sum.messages_received;
      sum.elements_received += step.to.count;
    } else if (step.kind == Step::Kind::reduce) {
      sum.elements_combined += step.to.count;
    }
  }
}

TEST(AllReduceTraffic, CountsTheStepsOfTheSchedule) {
  std::vector<std::vector<std::vector<int>>> all_nodes;
  for (int p = 2; p <= 17; ++p) all_nodes.push_back(even_nodes(p, 1));
  for (const int nodes : {2, 3, 5, 6, 8})
    for (const int each : {2, 3, 4}) all_nodes.push_back(even_nodes(nodes, each));
  all_nodes.push_back({{0, 2, 4}, {1, 3}, {5}});
  all_nodes.push_back({{0, 3}, {1, 2}});  // positions of a node need not follow each other
  for (const auto& nodes : all_nodes) {
    // Two parts of the hierarchical algorithm or one of the others; fewer elements than ranks; none that divide evenly.
    for (const Index count : {Index{5}, Index{2100}, Index{512 * 1024 / 4 + 5003}}) {
      const std::vector<AllReduceTraffic> all = all_reduce_traffic(nodes, true, count, 4);
      const int p = static_cast<int>(all.size());
      for (int me = 0; me < p; ++me) {
        const AllReduceTraffic& t = all[static_cast<std::size_t>(me)];
        EXPECT_EQ(t, all_reduce_traffic(nodes, true, me, count, 4));
        AllReduceTraffic expected{.algorithm = t.algorithm};
        const bool hierarchical = t.algorithm == AllReduceAlgorithm::hierarchical;
        Index rest = count;
        while (rest > 0) {
          const Index part = hierarchical ? std::min<Index>(rest, 512 * 1024 / 4) : rest;
          Builder b(me);
          const Region data = b.output(part);
          if (hierarchical) {
            hierarchical_all_reduce(b, me, nodes, data);
          } else if (t.algorithm == AllReduceAlgorithm::rabenseifner) {
            rabenseifner_all_reduce(b, Team::all(me, p), data);
          } else {
            ASSERT_EQ(t.algorithm, AllReduceAlgorithm::recursive_doubling);
            recursive_doubling_all_reduce(b, Team::all(me, p), data);
          }
          add(expected, b.finish());
          rest -= part;
        }
        EXPECT_EQ(t, expected) << to_string(t.algorithm) << ", " << count << " elements, position " << me << " of " << p
                               << " on " << nodes.size() << " nodes";
      }
    }
  }
}

TEST(AllReduceTraffic, SendsAsMuchAsItReceivesOverAllRanks) {
  for (const auto& nodes : {even_nodes(1, 5), even_nodes(2, 3), even_nodes(6, 1), even_nodes(3, 4)}) {
    for (const Index count : {Index{1}, Index{1000}, Index{3'000'001}}) {
      for (const bool shared : {true, false}) {
        AllReduceTraffic sum;
        for (const auto& node : nodes) {
          for (const int p : node) {
            const AllReduceTraffic t = all_reduce_traffic(nodes, shared, p, count, 4);
            sum.messages_sent += t.messages_sent;
            sum.messages_received += t.messages_received;
            sum.elements_sent += t.elements_sent;
            sum.elements_received += t.elements_received;
          }
        }
        EXPECT_EQ(sum.messages_sent, sum.messages_received);
        EXPECT_EQ(sum.elements_sent, sum.elements_received);
        EXPECT_GT(sum.elements_sent, 0);
      }
    }
  }
}

TEST(AllReduceTraffic, OfSeveralNodesWithEvenRanksIsHierarchical) {
  EXPECT_EQ(all_reduce_traffic(even_nodes(2, 4), true, 0, 1 << 20, 4).algorithm, AllReduceAlgorithm::hierarchical);
  EXPECT_EQ(all_reduce_traffic({{0, 1}, {2}}, true, 0, 1 << 20, 4).algorithm, AllReduceAlgorithm::rabenseifner);
}

TEST(AllReduceTraffic, IsZeroForOneRankOrNoElements) {
  EXPECT_EQ(all_reduce_traffic({{0}}, true, 0, 1000, 4), AllReduceTraffic{});
  EXPECT_EQ(all_reduce_traffic(even_nodes(1, 4), true, 0, 0, 4), AllReduceTraffic{});
}

TEST(AllReduceTraffic, RefusesArgumentsThatDoNotFit) {
  EXPECT_THROW(all_reduce_traffic(even_nodes(1, 4), true, 4, 10, 4), InvalidArgument);
  EXPECT_THROW(all_reduce_traffic(even_nodes(1, 4), true, 0, -1, 4), InvalidArgument);
  EXPECT_THROW(all_reduce_traffic(even_nodes(1, 4), true, 0, 10, 0), InvalidArgument);
}

/// A tuning in which one algorithm is the fastest, in parts of this size.
Tuning tuning_for(AllReduceAlgorithm fastest, int ranks, int nodes, std::size_t part_bytes) {
  Tuning tuning{.ranks = ranks, .nodes = nodes};
  for (const AllReduceAlgorithm a : {AllReduceAlgorithm::recursive_doubling, AllReduceAlgorithm::ring})
    tuning.measurements.push_back({a, 1024, a == fastest ? 1e-6 : 1e-3, part_bytes});
  return tuning;
}

TEST(AllReduceTraffic, FollowsATuningOfTheSameRanks) {
  const Tuning tuning = tuning_for(AllReduceAlgorithm::ring, 4, 4, 8192);
  const AllReducePlan ring{AllReduceAlgorithm::ring, 2048};
  EXPECT_EQ(AllReduceChooser(even_nodes(4, 1), true, tuning)(100'000, 4), ring);
  EXPECT_EQ(AllReduceChooser(even_nodes(3, 1), true, tuning)(100'000, 4),
            AllReduceChooser(even_nodes(3, 1), true)(100'000, 4));
  EXPECT_EQ(AllReduceChooser(even_nodes(2, 2), true, tuning)(100'000, 4), ring);
  EXPECT_EQ(AllReduceChooser(even_nodes(1, 1), true)(100'000, 4), AllReducePlan{});
}

TEST(AllReduceTraffic, OfARingIsThatOfTheSchedule) {
  constexpr Index segment = 256 * 1024 / 4;
  for (const int p : {2, 3, 5, 8}) {
    for (const Index count : {Index{3}, Index{1000}, 5 * segment + 7, Index{2} * 8 * segment}) {
      for (int me = 0; me < p; ++me) {
        AllReduceTraffic expected{.algorithm = AllReduceAlgorithm::ring};
        Builder b(me);
        ring_all_reduce(b, Team::all(me, p), b.output(count), segment);
        add(expected, b.finish());
        const AllReducePlan plan{AllReduceAlgorithm::ring, count};
        EXPECT_EQ(all_reduce_traffic(even_nodes(p, 1), me, count, 4, plan), expected) << p << ' ' << count << ' ' << me;
      }
    }
  }
}

}  // namespace test_all_reduce_traffic
}  // namespace aloni::comm
