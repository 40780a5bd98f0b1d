// The schedules of all ranks by method: correct by the verifier, divided as the engine does, refused where they cannot
// be.
#include <aloni/core/comm/collective_schedules.hpp>
#include <aloni/core/comm/schedule/verify.hpp>
#include <aloni/core/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace test_collective_schedules {

using namespace aloni::comm;
using aloni::Index;

std::vector<std::vector<int>> nodes_of(int ranks, int per_node) {
  std::vector<std::vector<int>> nodes;
  for (int r = 0; r < ranks; ++r) {
    if (r % per_node == 0) nodes.emplace_back();
    nodes.back().push_back(r);
  }
  return nodes;
}

Goal goal_of(OperationKind operation, int ranks, Index count) {
  switch (operation) {
    case OperationKind::all_reduce:
      return all_reduce_goal(ranks, count);
    case OperationKind::reduce_scatter:
      return reduce_scatter_goal(ranks, count);
    case OperationKind::all_gather:
      return all_gather_goal(ranks, count);
    default: {
      const auto p = static_cast<std::size_t>(ranks);
      return all_to_all_goal(std::vector<std::vector<Index>>(p, std::vector<Index>(p, count / ranks)));
    }
  }
}

TEST(CollectiveSchedules, EveryMethodReachesItsGoal) {
  for (const CollectiveVariant& variant : collective_variants) {
    for (const int ranks : {2, 3, 4, 6, 8}) {
      for (const int per_node : {1, 2, 8}) {
        const bool is_direct = variant.method == CollectiveMethod::direct;
        if (is_direct && per_node < ranks) continue;
        if (variant.method == CollectiveMethod::hierarchical && ranks > per_node && ranks % per_node != 0) continue;
        for (const bool shared : {false, true}) {
          SCOPED_TRACE(std::string(name(variant.operation)) + " by " + std::string(name(variant.method)) + ", " +
                       std::to_string(ranks) + " ranks, " + std::to_string(per_node) + " per node");
          const Index count = 24 * ranks;
          const CollectiveSchedules all = collective_schedules(
              nodes_of(ranks, per_node), true,
              {.operation = variant.operation, .method = variant.method, .count = count, .shared_data = shared});
          EXPECT_EQ(all.parts, 1u);
          EXPECT_NO_THROW(verify(all.last, goal_of(variant.operation, ranks, count)));
        }
      }
    }
  }
}

TEST(CollectiveSchedules, LongAllReducesHaveParts) {
  const Index count = 5'000'000;  // 20 MB, in parts of 4 MiB
  const CollectiveSchedules all =
      collective_schedules({{0, 1, 2}}, true, {.method = CollectiveMethod::ring, .count = count});
  EXPECT_EQ(all.parts, 5u);
  EXPECT_GT(all.parts_at_once, 1u);
  ASSERT_EQ(all.whole.size(), 3u);
  Index elements = 0;
  for (int r = 0; r < 3; ++r)
    elements += 4 * all.whole[static_cast<std::size_t>(r)].output + all.last[static_cast<std::size_t>(r)].output;
  EXPECT_EQ(elements, 3 * count);
  // A reduce-scatter by a ring has blocks of the whole data.
  const CollectivePlan scatter{.operation = OperationKind::reduce_scatter, .count = count};
  EXPECT_EQ(collective_schedules({{0, 1, 2}}, true, scatter).parts, 1u);
}

TEST(CollectiveSchedules, DataInSharedMemoryAreNotStaged) {
  const auto copies = [](bool shared) {
    const CollectiveSchedules all =
        collective_schedules({{0, 1}}, true, {.method = CollectiveMethod::direct, .count = 100, .shared_data = shared});
    return std::ranges::count(all.last[0].steps, Step::Kind::copy, &Step::kind);
  };
  EXPECT_EQ(copies(true), 0);
  EXPECT_EQ(copies(false), 2);
}

TEST(CollectiveSchedules, RefusePlansThatCannotBe) {
  const auto refused = [](const CollectivePlan& plan) {
    try {
      (void)collective_schedules({{0, 1}, {2}}, true, plan);
    } catch (const aloni::Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto contains = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  using K = OperationKind;
  using M = CollectiveMethod;
  EXPECT_PRED2(contains, refused({.operation = K::all_gather, .method = M::pairwise}), "all_gather by pairwise");
  EXPECT_PRED2(contains, refused({.operation = K::all_to_all, .method = M::ring}), "all_to_all by ring");
  EXPECT_PRED2(contains, refused({.operation = K::barrier, .method = M::ring}), "barrier by ring");
  EXPECT_PRED2(contains, refused({.operation = K::message, .method = M::ring}), "message by ring");
  EXPECT_PRED2(contains, refused({.method = M::direct, .count = 8}), "ranks that share memory");
  EXPECT_PRED2(contains, refused({.method = M::hierarchical, .count = 8}), "the same number of ranks on each node");
  EXPECT_PRED2(contains, refused({.operation = K::all_gather, .method = M::bruck, .count = 4}), "multiple");
  EXPECT_PRED2(contains, refused({.count = -1}), "-1 elements");
  EXPECT_PRED2(contains, refused({.count = 1, .element_bytes = 0}), "of 0 bytes");
  EXPECT_EQ(refused({.operation = K::broadcast, .method = M::binomial, .count = 3}), "accepted");
}

}  // namespace test_collective_schedules
