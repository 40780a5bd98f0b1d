// The order of a step, by example and by property. Random graphs are compared with brute force and with running the
// nodes in sequence, and run on simulated ranks that wait for each other.
#include "random_graph.hpp"

#include <support/random_cases.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn {
namespace test_step_graph {

using views::Box;

Lines order_of(const std::vector<StepNode>& nodes) {
  const StepGraph graph{nodes};
  return lines(graph, schedule(graph));
}

using Lists = std::vector<std::vector<int>>;

TEST(StepGraph, HasNoActionsWithoutNodes) {
  EXPECT_EQ(dependencies({}), Lists{});
  EXPECT_EQ(schedule({}), std::vector<StepAction>{});
}

TEST(StepGraph, OrdersReadsAndWritesOfTheSameCells) {
  const auto second_waits = [](const Access& first, const Access& second) {
    const Lists before = dependencies({{kernel("first", {first}), kernel("second", {second})}});
    return before == Lists{{}, {0}};
  };
  EXPECT_TRUE(second_waits(writes(0, rows(0, 2)), reads(0, rows(1, 3))));
  EXPECT_TRUE(second_waits(reads(0, rows(0, 2)), writes(0, rows(1, 3))));
  EXPECT_TRUE(second_waits(writes(0, rows(0, 2)), writes(0, rows(1, 3))));
  EXPECT_FALSE(second_waits(reads(0, rows(0, 2)), reads(0, rows(0, 2))));
  EXPECT_FALSE(second_waits(writes(0, rows(0, 2)), writes(0, rows(2, 4))));
  EXPECT_FALSE(second_waits(writes(0, rows(0, 2)), writes(1, rows(0, 2))));
  EXPECT_FALSE(second_waits(writes(0, rows(0, 2)), writes(0, rows(1, 1))));
  EXPECT_FALSE(second_waits({nullptr, rows(0, 2), true}, {nullptr, rows(0, 2), true}));
}

TEST(StepGraph, LeavesOutTransitiveDependencies) {
  EXPECT_EQ(
      dependencies({{kernel("a", {writes(0, rows(0, 4))}), kernel("b", {reads(0, rows(0, 4)), writes(1, rows(0, 4))}),
                     kernel("c", {reads(0, rows(0, 4)), writes(2, rows(0, 4))}),
                     kernel("d", {reads(0, rows(0, 4)), reads(1, rows(0, 4)), reads(2, rows(0, 4))})}}),
      (Lists{{}, {0}, {0}, {1, 2}}));
}

TEST(StepGraph, RunsTheInteriorWhileGhostsTravel) {
  EXPECT_EQ(order_of({transfer("halo", {reads(0, rows(0, 8)), writes(0, rows(8, 9))}),
                      kernel("interior", {reads(0, rows(0, 8)), writes(1, rows(0, 7))}),
                      kernel("boundary", {reads(0, rows(6, 9)), writes(1, rows(7, 8))})}),
            (Lines{"start halo", "run interior", "finish halo", "run boundary"}));
}

TEST(StepGraph, RunsOneLayerAfterTheOther) {
  EXPECT_EQ(order_of({transfer("halo 1", {reads(0, rows(0, 8)), writes(0, rows(8, 9))}),
                      kernel("interior 1", {reads(0, rows(0, 8)), writes(1, rows(0, 7))}),
                      kernel("boundary 1", {reads(0, rows(6, 9)), writes(1, rows(7, 8))}),
                      transfer("halo 2", {reads(1, rows(0, 8)), writes(1, rows(8, 9))}),
                      kernel("interior 2", {reads(1, rows(0, 8)), writes(2, rows(0, 7))}),
                      kernel("boundary 2", {reads(1, rows(6, 9)), writes(2, rows(7, 8))})}),
            (Lines{"start halo 1", "run interior 1", "finish halo 1", "run boundary 1", "start halo 2",
                   "run interior 2", "finish halo 2", "run boundary 2"}));
}

TEST(StepGraph, StartsTheNextExchangeAsSoonAsItsDataIsReady) {
  EXPECT_EQ(order_of({kernel("boundary", {writes(0, rows(7, 8))}), kernel("interior", {writes(0, rows(0, 7))}),
                      transfer("halo", {reads(0, rows(7, 8)), writes(0, rows(8, 9))}),
                      kernel("next", {reads(0, rows(0, 9)), writes(1, rows(0, 8))})}),
            (Lines{"run boundary", "start halo", "run interior", "finish halo", "run next"}));
}

TEST(StepGraph, DoesNotOverwriteDataInFlight) {
  EXPECT_EQ(order_of({transfer("halo", {reads(0, rows(0, 2)), writes(1, rows(0, 2))}),
                      kernel("overwrite", {writes(0, rows(1, 2))}), kernel("elsewhere", {writes(0, rows(2, 4))})}),
            (Lines{"start halo", "run elsewhere", "finish halo", "run overwrite"}));
}

TEST(StepGraph, FinishesACollectiveThatNoNodeNeedsLast) {
  EXPECT_EQ(order_of({kernel("filter 2", {reads(0, rows(0, 8)), writes(4, rows(0, 1))}),
                      collective("sum 2", {writes(4, rows(0, 1))}),
                      transfer("halo", {reads(0, rows(0, 8)), writes(0, rows(8, 9))}),
                      kernel("data", {reads(0, rows(0, 9)), writes(1, rows(0, 8))}),
                      kernel("filter 1", {reads(1, rows(0, 8)), writes(5, rows(0, 1))}),
                      collective("sum 1", {writes(5, rows(0, 1))})}),
            (Lines{"run filter 2", "start sum 2", "start halo", "finish halo", "run data", "run filter 1",
                   "start sum 1", "finish sum 2", "finish sum 1"}));
}

TEST(StepGraph, FinishesTransfersInTheOrderOfTheList) {
  EXPECT_EQ(order_of({transfer("first", {writes(0, rows(0, 1))}), transfer("second", {writes(1, rows(0, 1))}),
                      transfer("third", {writes(2, rows(0, 1))}), kernel("reader", {reads(1, rows(0, 1))})}),
            (Lines{"start first", "start second", "start third", "finish first", "finish second", "run reader",
                   "finish third"}));
}

TEST(StepGraph, FinishesEarlierTransfersBeforeItWaitsForACollective) {
  EXPECT_EQ(order_of({transfer("earlier", {writes(0, rows(0, 1))}), collective("sum", {writes(1, rows(0, 1))}),
                      transfer("later", {writes(2, rows(0, 1))}), kernel("reader", {reads(1, rows(0, 1))})}),
            (Lines{"start earlier", "start sum", "start later", "finish earlier", "finish sum", "run reader",
                   "finish later"}));
}

TEST(StepGraph, StartsCommunicationInTheOrderOfTheList) {
  // "ready" could start at once. But then two ranks could start collectives in different orders.
  EXPECT_EQ(order_of({transfer("halo", {writes(0, rows(0, 1))}),
                      kernel("maker", {reads(0, rows(0, 1)), writes(1, rows(0, 1))}),
                      collective("sum", {writes(1, rows(0, 1))}), collective("ready", {writes(2, rows(0, 1))}),
                      kernel("other", {writes(3, rows(0, 1))})}),
            (Lines{"start halo", "run other", "finish halo", "run maker", "start sum", "start ready", "finish sum",
                   "finish ready"}));
}

TEST(StepGraph, DoesNotWaitForACollectiveThatOnlyTheEndOfTheListNeeds) {
  EXPECT_EQ(order_of({collective("sum", {writes(0, rows(0, 1))}), transfer("halo", {writes(1, rows(0, 1))}),
                      kernel("boundary", {reads(1, rows(0, 1)), writes(2, rows(0, 1))}),
                      kernel("update", {reads(0, rows(0, 1)), writes(3, rows(0, 1))})}),
            (Lines{"start sum", "start halo", "finish halo", "run boundary", "finish sum", "run update"}));
}

// --- random graphs ---

/// [i][j]: whether node i must wait for node j, directly or not. Computed cell by cell.
std::vector<std::vector<bool>> closure(const StepGraph& graph) {
  const std::size_t n = graph.nodes.size();
  std::vector<std::vector<Cell>> read(n), written(n);
  for (std::size_t i = 0; i < n; ++i) {
    read[i] = cells(graph.nodes[i], false);
    written[i] = cells(graph.nodes[i], true);
  }
  const auto meet = [](const std::vector<Cell>& a, const std::vector<Cell>& b) {
    return std::ranges::any_of(a, [&](const Cell& c) { return std::ranges::binary_search(b, c); });
  };
  std::vector<std::vector<bool>> waits(n, std::vector<bool>(n, false));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < i; ++j)
      waits[i][j] = meet(written[i], written[j]) || meet(written[i], read[j]) || meet(read[i], written[j]);
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        if (waits[i][k] && waits[k][j]) waits[i][j] = true;
  return waits;
}

TEST(StepGraph, WaitsForTheTransitiveReductionOfAllConflicts) {
  int edges = 0, left_out = 0;
  for (int seed = 1; seed <= aloni::test::random_cases(2000); ++seed) {
    Dice dice(static_cast<std::uint64_t>(seed));
    const StepGraph graph = random_graph(dice);
    const auto waits = closure(graph);
    const std::size_t n = graph.nodes.size();
    Lists expected(n);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (!waits[i][j]) continue;
        bool by_others = false;
        for (std::size_t k = 0; k < n; ++k) by_others = by_others || (waits[i][k] && waits[k][j]);
        if (!by_others) expected[i].push_back(static_cast<int>(j));
        ++(by_others ? left_out : edges);
      }
    }
    ASSERT_EQ(dependencies(graph), expected) << "seed " << seed;
  }
  EXPECT_GT(edges, aloni::test::random_cases(2000));
  EXPECT_GT(left_out, aloni::test::random_cases(2000));
}

/// The error in an order of a graph; empty if there is none. `eager`: an action that could have come earlier is an
/// error.
std::string complaint(const StepGraph& graph, const std::vector<StepAction>& actions, bool eager = true) {
  const std::size_t n = graph.nodes.size();
  const auto waits = closure(graph);
  enum { untouched, in_flight, complete };
  std::vector<int> state(n, untouched);
  const auto ready = [&](std::size_t i) {
    for (std::size_t j = 0; j < i; ++j)
      if (waits[i][j] && state[j] != complete) return false;
    return true;
  };
  const auto communicates = [&](std::size_t i) { return graph.nodes[i].kind != NodeKind::kernel; };
  const auto next_start = [&] {
    std::size_t i = 0;
    while (i < n && (!communicates(i) || state[i] != untouched)) ++i;
    return i;
  };
  for (const StepAction& action : actions) {
    const std::string name = "node " + std::to_string(action.node);
    if (action.node < 0 || static_cast<std::size_t>(action.node) >= n) return name + " does not exist";
    const auto i = static_cast<std::size_t>(action.node);
    if (communicates(i) != (action.kind != StepActionKind::run)) return name + " has another kind of action";
    if (state[i] != (action.kind == StepActionKind::finish ? in_flight : untouched))
      return name + " runs twice, or finishes before its start";
    if (action.kind != StepActionKind::finish && !ready(i)) return name + " runs before its dependencies";
    if (action.kind == StepActionKind::start) {
      if (next_start() != i) return name + " starts before earlier communication";
      state[i] = in_flight;
      continue;
    }
    if (eager && next_start() < n && ready(next_start())) return name + " runs before a start that is possible";
    for (std::size_t k = 0; k < n && eager; ++k) {
      if (communicates(k) || state[k] != untouched || !ready(k)) continue;
      if (action.kind == StepActionKind::finish) return name + " is finished although a kernel could run";
      if (k < i) return name + " runs before an earlier kernel that is ready";
    }
    if (action.kind == StepActionKind::finish) {
      for (std::size_t k = 0; k < i; ++k)
        if (graph.nodes[k].kind == NodeKind::transfer && state[k] != complete)
          return name + " finishes before an earlier transfer";
    }
    state[i] = complete;
  }
  if (std::ranges::any_of(state, [](int s) { return s != complete; })) return "a node is not complete";
  return "";
}

TEST(StepGraph, OrdersEveryGraphByTheRules) {
  for (int seed = 1; seed <= aloni::test::random_cases(3000); ++seed) {
    Dice dice(static_cast<std::uint64_t>(seed));
    const StepGraph graph = random_graph(dice);
    const auto actions = schedule(graph);
    ASSERT_EQ(complaint(graph, actions), "")
        << "seed " << seed << ": " << testing::PrintToString(lines(graph, actions));
    for (const ScheduleOptions& options : other_orders(dice)) {
      const auto others = schedule(graph, options);
      ASSERT_EQ(complaint(graph, others, false), "")
          << "seed " << seed << ": " << testing::PrintToString(lines(graph, others));
    }
  }
}

TEST(StepGraph, DrawsOrdersThatDiffer) {
  const StepGraph graph{{transfer("halo", {writes(0, rows(0, 1))}), kernel("a", {writes(1, rows(0, 1))}),
                         kernel("b", {writes(2, rows(0, 1))}), kernel("c", {reads(0, rows(0, 1))})}};
  std::set<Lines> orders;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) orders.insert(lines(graph, schedule(graph, {.seed = seed})));
  // Three places for "a" and "b" in "start halo, finish halo, run c": (3 + 1)(3 + 2).
  EXPECT_EQ(orders.size(), 20u);
}

TEST(StepGraph, SubmitsAnotherKernelBeforeItWaitsForAKernel) {
  const std::vector<StepNode> chunks{
      kernel("chunk 1", {writes(0, rows(0, 1))}), transfer("sum 1", {reads(0, rows(0, 1)), writes(3, rows(0, 1))}),
      kernel("chunk 2", {writes(1, rows(0, 1))}), transfer("sum 2", {reads(1, rows(0, 1)), writes(3, rows(1, 2))}),
      kernel("chunk 3", {writes(0, rows(0, 1))}), transfer("sum 3", {reads(0, rows(0, 1)), writes(3, rows(2, 3))})};
  const StepGraph graph{chunks};
  EXPECT_EQ(lines(graph, schedule(graph, {.kernels_ahead = 1})),
            (Lines{"run chunk 1", "run chunk 2", "start sum 1", "start sum 2", "finish sum 1", "run chunk 3",
                   "start sum 3", "finish sum 2", "finish sum 3"}));
  EXPECT_EQ(lines(graph, schedule(graph)),
            (Lines{"run chunk 1", "start sum 1", "run chunk 2", "start sum 2", "finish sum 1", "run chunk 3",
                   "start sum 3", "finish sum 2", "finish sum 3"}));
}

TEST(StepGraph, WaitsOnlyForCommunicationOfTheFirstBlockedNode) {
  for (int seed = 1; seed <= aloni::test::random_cases(3000); ++seed) {
    Dice dice(static_cast<std::uint64_t>(seed));
    const StepGraph graph = random_graph(dice);
    const std::size_t n = graph.nodes.size();
    const auto waits = closure(graph);
    const auto actions = schedule(graph);
    std::vector<bool> begun(n, false), ended(n, false);
    for (const StepAction& action : actions) {
      const auto i = static_cast<std::size_t>(action.node);
      if (action.kind == StepActionKind::finish) {
        const auto first = static_cast<std::size_t>(std::ranges::find(begun, false) - begun.begin());
        bool needed = first == n || waits[first][i];
        // Or it is a transfer before needed communication.
        for (std::size_t k = i + 1; k < n && first < n; ++k)
          needed = needed || (graph.nodes[i].kind == NodeKind::transfer && begun[k] && !ended[k] && waits[first][k]);
        ASSERT_TRUE(needed) << "seed " << seed << ", node " << i << ": "
                            << testing::PrintToString(lines(graph, actions));
        ended[i] = true;
      }
      begun[i] = true;
    }
  }
}

// --- computed values ---

TEST(StepGraph, ComputesTheSameAsTheNodesInSequence) {
  // Communication reads its data at the start and writes it at the finish. In between it may write anything, so the
  // test writes rubbish there. A peer may read in between, so data that is read must stay unchanged.
  constexpr std::uint64_t rubbish = 0xdead;
  int overlaps = 0;
  for (int seed = 1; seed <= aloni::test::random_cases(3000); ++seed) {
    Dice dice(static_cast<std::uint64_t>(seed));
    const StepGraph graph = random_graph(dice);
    const HashedMemory expected = one_after_the_other(graph);

    const auto actions = schedule(graph);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + testing::PrintToString(lines(graph, actions)));
    HashedMemory memory;
    struct Start {
      std::uint64_t read, unwritten;
    };
    std::map<std::size_t, Start> in_flight;
    for (const StepAction& action : actions) {
      const auto i = static_cast<std::size_t>(action.node);
      const StepNode& node = graph.nodes[i];
      if (action.kind == StepActionKind::finish) {
        const Start start = in_flight.at(i);
        ASSERT_EQ(memory.read(node, true), start.unwritten) << "data that node " << i << " reads has changed";
        memory.write(node, i, start.read);
        in_flight.erase(i);
        continue;
      }
      const std::uint64_t read = memory.read(node);
      if (action.kind == StepActionKind::start) in_flight[i] = {read, memory.read(node, true)};
      if (action.kind == StepActionKind::run && !in_flight.empty()) ++overlaps;
      memory.write(node, i, action.kind == StepActionKind::run ? read : rubbish);
    }
    ASSERT_EQ(memory, expected);
  }
  EXPECT_GT(overlaps, aloni::test::random_cases(3000));
}

// --- several ranks ---

/// Communication that all ranks list, and its groups of ranks.
struct Common {
  NodeKind kind;
  std::vector<int> group_of;  ///< by rank: ranks with equal numbers communicate; negative: takes no part
};

struct RankAction {
  StepActionKind kind;
  std::size_t common;  ///< index of the communication; unused for kernels
};

/// Runs the actions of `ranks`, each in its own order, until no rank can continue. Returns the errors; empty if all
/// ranks finish.
/// A transfer finishes when all ranks of its group want to finish it: each reads data that the others have started to
/// send, and waits for the readers of its own data. A collective finishes when all ranks of its group have started
/// it; they must start their collectives in the same order. No progress of one rank blocks another, so the order in
/// which ranks continue makes no difference.
std::string play(const std::vector<Common>& commons, const std::vector<std::vector<RankAction>>& ranks) {
  const std::size_t size = ranks.size();
  std::vector<std::size_t> at(size, 0);
  const auto arrays = [&] { return std::vector<std::vector<bool>>(commons.size(), std::vector<bool>(size, false)); };
  auto begun = arrays(), ends = arrays();
  const auto all_of_group = [&](const std::vector<std::vector<bool>>& have, std::size_t common, std::size_t rank) {
    const auto& group = commons[common].group_of;
    for (std::size_t r = 0; r < size; ++r)
      if (group[r] == group[rank] && !have[common][r]) return false;
    return true;
  };
  for (bool any = true; any;) {
    any = false;
    for (std::size_t r = 0; r < size; ++r) {
      for (; at[r] < ranks[r].size(); ++at[r], any = true) {
        const auto [kind, c] = ranks[r][at[r]];
        if (kind == StepActionKind::run) continue;
        if (kind == StepActionKind::start) {
          begun[c][r] = true;
          continue;
        }
        any = any || !ends[c][r];
        ends[c][r] = true;
        if (commons[c].group_of[r] < 0) continue;
        if (!all_of_group(commons[c].kind == NodeKind::transfer ? ends : begun, c, r)) break;
      }
    }
  }
  std::string wrong;
  for (std::size_t r = 0; r < size; ++r) {
    if (at[r] == ranks[r].size()) continue;
    wrong += "rank " + std::to_string(r) + " waits for communication " + std::to_string(ranks[r][at[r]].common) + "; ";
  }
  for (std::size_t a = 0; a < size; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const auto order = [&](std::size_t rank) {
        std::vector<std::size_t> begun_together;
        for (const auto& [kind, c] : ranks[rank]) {
          if (kind != StepActionKind::start || commons[c].kind != NodeKind::collective) continue;
          const auto& group = commons[c].group_of;
          if (group[a] == group[b] && group[a] >= 0) begun_together.push_back(c);
        }
        return begun_together;
      };
      if (order(a) != order(b))
        wrong +=
            "ranks " + std::to_string(b) + " and " + std::to_string(a) + " start collectives in different orders; ";
    }
  }
  return wrong;
}

/// The graph of one rank: the common nodes from `first` to `last`, random kernels between them, and random accesses.
/// `number`: for each node its position among the common nodes.
StepGraph graph_of_rank(Dice& dice, const std::vector<Common>& commons, std::size_t first, std::size_t last,
                        std::size_t rank, std::vector<std::size_t>& number) {
  const Density density = random_density(dice);
  const int most_kernels = dice(0, 3);
  StepGraph graph;
  for (std::size_t c = first; c <= last; ++c) {
    for (int n = dice(0, most_kernels); n > 0; --n) {
      graph.nodes.push_back(random_node(dice, density, NodeKind::kernel));
      number.push_back(0);
    }
    if (c == last) break;
    // A rank that takes no part lists the node or leaves it out.
    if (commons[c].group_of[rank] < 0 && dice.one_in(2)) continue;
    graph.nodes.push_back(random_node(dice, density, commons[c].kind));
    number.push_back(c);
  }
  return graph;
}

TEST(StepGraph, LetsNoRankWaitForever) {
  int waits = 0;
  for (int seed = 1; seed <= aloni::test::random_cases(4000); ++seed) {
    Dice dice(static_cast<std::uint64_t>(seed));
    const auto size = static_cast<std::size_t>(dice(2, 8));
    const int collectives_in_ten = dice(0, 10), groups = dice(1, 2);
    std::vector<Common> commons;
    for (int n = dice(1, 12); n > 0; --n) {
      Common& c = commons.emplace_back();
      c.kind = dice(1, 10) <= collectives_in_ten ? NodeKind::collective : NodeKind::transfer;
      for (std::size_t r = 0; r < size; ++r) c.group_of.push_back(dice.one_in(8) ? -1 : dice(1, groups));
    }
    // Steps follow each other without a barrier.
    std::vector<std::size_t> ends{commons.size()};
    for (int n = dice(0, 2); n > 0; --n)
      ends.push_back(static_cast<std::size_t>(dice(0, static_cast<int>(commons.size()))));
    std::ranges::sort(ends);
    std::vector<std::vector<RankAction>> ranks(size);
    for (std::size_t r = 0; r < size; ++r) {
      std::size_t first = 0;
      for (const std::size_t end : ends) {
        std::vector<std::size_t> number;
        const StepGraph graph = graph_of_rank(dice, commons, first, end, r, number);
        // Ranks may order their actions by the rules in different ways.
        std::vector<ScheduleOptions> orders = other_orders(dice);
        orders.emplace_back();
        for (const StepAction& a : schedule(graph, orders[static_cast<std::size_t>(dice(0, 2))])) {
          ranks[r].push_back({a.kind, number[static_cast<std::size_t>(a.node)]});
          waits += a.kind == StepActionKind::finish ? 1 : 0;
        }
        first = end;
      }
    }
    ASSERT_EQ(play(commons, ranks), "") << "seed " << seed;
  }
  EXPECT_GT(waits, aloni::test::random_cases(4000));
}

TEST(StepGraph, DetectsRanksThatWaitForever) {
  // Each rule of the order is necessary: without it two ranks that keep the other rules wait for each other.
  using enum StepActionKind;
  const std::vector<Common> transfers{{NodeKind::transfer, {1, 1}}, {NodeKind::transfer, {1, 1}}};
  EXPECT_EQ(play(transfers, {{{start, 0}, {start, 1}, {finish, 0}, {finish, 1}},
                             {{start, 0}, {finish, 0}, {start, 1}, {finish, 1}}}),
            "");
  EXPECT_NE(play(transfers, {{{start, 0}, {start, 1}, {finish, 1}, {finish, 0}},
                             {{start, 0}, {finish, 0}, {start, 1}, {finish, 1}}}),
            "");
  const std::vector<Common> both{{NodeKind::transfer, {1, 1}}, {NodeKind::collective, {1, 1}}};
  EXPECT_NE(play(both, {{{start, 0}, {start, 1}, {finish, 1}, {finish, 0}},
                        {{start, 0}, {finish, 0}, {start, 1}, {finish, 1}}}),
            "");
  const std::vector<Common> collectives{{NodeKind::collective, {1, 1}}, {NodeKind::collective, {1, 1}}};
  EXPECT_NE(play(collectives, {{{start, 1}, {start, 0}, {finish, 0}, {finish, 1}},
                               {{start, 0}, {start, 1}, {finish, 0}, {finish, 1}}}),
            "");
}

}  // namespace test_step_graph
}  // namespace aloni::nn
