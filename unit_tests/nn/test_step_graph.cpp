// The order of a step by example and by property: random graphs against brute force, against running the nodes one after the other, and
// on several simulated ranks that wait for each other.
#include <aloni/nn/step_graph.hpp>

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

/// What different blocks of memory are known by.
constexpr std::array<char, 16> blocks{};

Access reads(int block, const Box& box) { return {&blocks[static_cast<std::size_t>(block)], box, false}; }
Access writes(int block, const Box& box) { return {&blocks[static_cast<std::size_t>(block)], box, true}; }
Box rows(Index low, Index high) { return {{0, 0, low, 0, 0}, {1, 1, high, 4, 1}}; }

StepNode kernel(std::string label, std::vector<Access> accesses) {
  return {std::move(label), NodeKind::kernel, std::move(accesses)};
}
StepNode transfer(std::string label, std::vector<Access> accesses) {
  return {std::move(label), NodeKind::transfer, std::move(accesses)};
}
StepNode collective(std::string label, std::vector<Access> accesses) {
  return {std::move(label), NodeKind::collective, std::move(accesses)};
}

using Lines = std::vector<std::string>;

Lines lines(const StepGraph& graph, const std::vector<StepAction>& actions) {
  Lines text;
  for (const StepAction& a : actions) {
    const char* const what = a.kind == StepActionKind::run     ? "run "
                             : a.kind == StepActionKind::start ? "start "
                                                               : "finish ";
    text.push_back(what + graph.nodes[static_cast<std::size_t>(a.node)].label);
  }
  return text;
}
Lines order_of(const std::vector<StepNode>& nodes) {
  const StepGraph graph{nodes};
  return lines(graph, schedule(graph));
}

using Lists = std::vector<std::vector<int>>;

TEST(StepGraph, HasNothingToDoWithoutNodes) {
  EXPECT_EQ(dependencies({}), Lists{});
  EXPECT_EQ(schedule({}), std::vector<StepAction>{});
}

TEST(StepGraph, OrdersWhatReadsAndWritesTheSameCells) {
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

TEST(StepGraph, LeavesOutWhatOthersWaitForAlready) {
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

TEST(StepGraph, FollowsALayerByTheNext) {
  EXPECT_EQ(order_of({transfer("halo 1", {reads(0, rows(0, 8)), writes(0, rows(8, 9))}),
                      kernel("interior 1", {reads(0, rows(0, 8)), writes(1, rows(0, 7))}),
                      kernel("boundary 1", {reads(0, rows(6, 9)), writes(1, rows(7, 8))}),
                      transfer("halo 2", {reads(1, rows(0, 8)), writes(1, rows(8, 9))}),
                      kernel("interior 2", {reads(1, rows(0, 8)), writes(2, rows(0, 7))}),
                      kernel("boundary 2", {reads(1, rows(6, 9)), writes(2, rows(7, 8))})}),
            (Lines{"start halo 1", "run interior 1", "finish halo 1", "run boundary 1", "start halo 2",
                   "run interior 2", "finish halo 2", "run boundary 2"}));
}

TEST(StepGraph, StartsTheNextExchangeAsSoonAsWhatItSendsIsThere) {
  EXPECT_EQ(order_of({kernel("boundary", {writes(0, rows(7, 8))}), kernel("interior", {writes(0, rows(0, 7))}),
                      transfer("halo", {reads(0, rows(7, 8)), writes(0, rows(8, 9))}),
                      kernel("next", {reads(0, rows(0, 9)), writes(1, rows(0, 8))})}),
            (Lines{"run boundary", "start halo", "run interior", "finish halo", "run next"}));
}

TEST(StepGraph, DoesNotOverwriteWhatIsOnItsWay) {
  EXPECT_EQ(order_of({transfer("halo", {reads(0, rows(0, 2)), writes(1, rows(0, 2))}),
                      kernel("overwrite", {writes(0, rows(1, 2))}), kernel("elsewhere", {writes(0, rows(2, 4))})}),
            (Lines{"start halo", "run elsewhere", "finish halo", "run overwrite"}));
}

TEST(StepGraph, FinishesLastACollectiveForWhichNobodyWaits) {
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
  // "ready" could start at once, but then two ranks could begin collectives in different orders.
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

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  /// In [low, high].
  int operator()(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(int n) { return (*this)(1, n) == 1; }

 private:
  std::mt19937_64 random_;
};

/// How much of the memory a node touches: few blocks and large boxes make a chain, many and small ones leave nodes free of each other.
struct Density {
  int blocks, largest_extent, most_accesses;
};

Density random_density(Dice& dice) { return {dice(1, 12), dice(1, 3), dice(1, 4)}; }

/// Within [-1,3) in height and width; now and then empty, or of no memory.
Access random_access(Dice& dice, const Density& density) {
  Access a{&blocks[static_cast<std::size_t>(dice(0, density.blocks - 1))],
           {{0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}},
           dice.one_in(2)};
  for (const std::size_t d : {2u, 3u}) {
    const int extent = dice.one_in(20) ? 0 : dice(1, density.largest_extent);
    a.box.lo[d] = dice(-1, 3 - extent);
    a.box.hi[d] = a.box.lo[d] + extent;
  }
  if (dice.one_in(20)) a.memory = nullptr;
  return a;
}

StepNode random_node(Dice& dice, const Density& density, NodeKind kind) {
  StepNode node{"", kind, {}};
  for (int n = dice(0, density.most_accesses); n > 0; --n) node.accesses.push_back(random_access(dice, density));
  return node;
}

StepGraph random_graph(Dice& dice) {
  const Density density = random_density(dice);
  const int kernels_in_ten = dice(1, 9);
  StepGraph graph;
  for (int n = dice(1, 24); n > 0; --n) {
    const NodeKind kind = dice(1, 10) <= kernels_in_ten ? NodeKind::kernel
                          : dice.one_in(2)              ? NodeKind::transfer
                                                        : NodeKind::collective;
    graph.nodes.push_back(random_node(dice, density, kind));
    graph.nodes.back().label = std::to_string(graph.nodes.size() - 1);
  }
  return graph;
}

using Cell = std::pair<const void*, std::array<Index, views::num_dims>>;

std::vector<Cell> cells(const Access& access) {
  std::vector<Cell> all;
  if (access.memory == nullptr) return all;
  const Box& b = access.box;
  std::array<Index, views::num_dims> i{};
  for (i[0] = b.lo[0]; i[0] < b.hi[0]; ++i[0])
    for (i[1] = b.lo[1]; i[1] < b.hi[1]; ++i[1])
      for (i[2] = b.lo[2]; i[2] < b.hi[2]; ++i[2])
        for (i[3] = b.lo[3]; i[3] < b.hi[3]; ++i[3])
          for (i[4] = b.lo[4]; i[4] < b.hi[4]; ++i[4]) all.push_back({access.memory, i});
  return all;
}

std::vector<Cell> cells(const StepNode& node, bool written) {
  std::vector<Cell> all;
  for (const Access& a : node.accesses) {
    if (a.writes != written) continue;
    const auto more = cells(a);
    all.insert(all.end(), more.begin(), more.end());
  }
  std::ranges::sort(all);
  const auto [from, to] = std::ranges::unique(all);
  all.erase(from, to);
  return all;
}

/// [i][j]: node i must wait for node j, directly or not. Cell by cell.
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
  for (int seed = 1; seed <= test::random_cases(2000); ++seed) {
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
  EXPECT_GT(edges, test::random_cases(2000));
  EXPECT_GT(left_out, test::random_cases(2000));
}

std::vector<ScheduleOptions> other_orders(Dice& dice) {
  return {{.kernels_ahead = dice(1, 3)}, {.seed = static_cast<std::uint64_t>(dice(1, 1 << 30))}};
}

/// What is wrong with an order of a graph; empty: nothing. `eager`: nothing that can be done early may be done late.
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
    if (action.node < 0 || static_cast<std::size_t>(action.node) >= n) return "no such " + name;
    const auto i = static_cast<std::size_t>(action.node);
    if (communicates(i) != (action.kind != StepActionKind::run)) return name + " of another kind";
    if (state[i] != (action.kind == StepActionKind::finish ? in_flight : untouched))
      return name + " once more, or not begun";
    if (action.kind != StepActionKind::finish && !ready(i)) return name + " before what it waits for";
    if (action.kind == StepActionKind::start) {
      if (next_start() != i) return name + " starts before an earlier one";
      state[i] = in_flight;
      continue;
    }
    if (eager && next_start() < n && ready(next_start())) return name + " before a start that is possible";
    for (std::size_t k = 0; k < n && eager; ++k) {
      if (communicates(k) || state[k] != untouched || !ready(k)) continue;
      if (action.kind == StepActionKind::finish) return name + " is waited for though a kernel could run";
      if (k < i) return name + " runs before an earlier kernel that could";
    }
    if (action.kind == StepActionKind::finish) {
      for (std::size_t k = 0; k < i; ++k)
        if (graph.nodes[k].kind == NodeKind::transfer && state[k] != complete)
          return name + " ends before an earlier transfer";
    }
    state[i] = complete;
  }
  if (std::ranges::any_of(state, [](int s) { return s != complete; })) return "a node is left over";
  return "";
}

TEST(StepGraph, GivesEveryGraphAnOrderThatKeepsTheRules) {
  for (int seed = 1; seed <= test::random_cases(3000); ++seed) {
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

TEST(StepGraph, SubmitsAKernelBeforeItWaitsForTheOneBefore) {
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

TEST(StepGraph, MakesAQueueWaitForTheOtherOnce) {
  const StepGraph graph{{transfer("halo", {reads(0, rows(0, 8)), writes(0, rows(8, 9))}),
                         kernel("interior", {reads(0, rows(0, 8)), writes(1, rows(0, 7))}),
                         kernel("boundary", {reads(0, rows(6, 9)), writes(1, rows(7, 8))}),
                         kernel("more", {reads(0, rows(6, 9)), writes(1, rows(8, 9))}),
                         transfer("next", {reads(1, rows(0, 8)), writes(2, rows(8, 9))})}};
  const auto actions = schedule(graph);
  ASSERT_EQ(lines(graph, actions), (Lines{"start halo", "run interior", "finish halo", "run boundary", "start next",
                                          "run more", "finish next"}));
  EXPECT_EQ(waits_between_queues(graph, actions), (std::vector<int>{-1, -1, -1, 2, 3, -1, -1}));
}

TEST(StepGraph, WaitsOnlyForWhatTheFirstNodeThatCannotGoOnNeeds) {
  for (int seed = 1; seed <= test::random_cases(3000); ++seed) {
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
        // Or it is a transfer before one of which that is true.
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

// --- what is computed ---

/// Memory whose cells hold hashes of all that went into them. What a node writes it may read too, as a sum in place does.
class HashedMemory {
 public:
  /// Of all that a node reads, or only of what it doesn't write.
  std::uint64_t read(const StepNode& node, bool unwritten_only = false) const {
    std::uint64_t hash = 1;
    const auto written = cells(node, true);
    for (const Cell& c : cells(node, false))
      if (!unwritten_only || !std::ranges::binary_search(written, c)) hash = mix(hash, value(c));
    if (unwritten_only) return hash;
    for (const Cell& c : written) hash = mix(hash, value(c));
    return hash;
  }
  /// Depends on the node, on what it has read and on the cell.
  void write(const StepNode& node, std::uint64_t number, std::uint64_t read) {
    for (const Cell& c : cells(node, true)) values_[c] = mix(mix(read, number), position(c));
  }
  friend bool operator==(const HashedMemory&, const HashedMemory&) = default;

 private:
  static std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    a = (a ^ (b + 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u;
    return a ^ (a >> 29);
  }
  static std::uint64_t position(const Cell& c) {
    auto hash = static_cast<std::uint64_t>(static_cast<const char*>(c.first) - blocks.data());
    for (const Index i : c.second) hash = mix(hash, static_cast<std::uint64_t>(i));
    return hash;
  }
  std::uint64_t value(const Cell& c) const {
    const auto place = values_.find(c);
    return place == values_.end() ? position(c) : place->second;
  }

  std::map<Cell, std::uint64_t> values_;
};

/// What the nodes leave in memory in the order of the list.
HashedMemory one_after_the_other(const StepGraph& graph) {
  HashedMemory memory;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) memory.write(graph.nodes[i], i, memory.read(graph.nodes[i]));
  return memory;
}

/// Two queues, each with its actions in order, that run as chance has it, but for what the one waits for of the other.
void expect_queues_compute(const StepGraph& graph, const std::vector<StepAction>& actions, const HashedMemory& expected,
                           Dice& dice) {
  constexpr std::uint64_t rubbish = 0xbeef;
  const std::vector<int> waits = waits_between_queues(graph, actions);
  ASSERT_EQ(waits.size(), actions.size());
  std::array<std::vector<std::size_t>, 2> queues;
  for (std::size_t a = 0; a < actions.size(); ++a) queues[actions[a].kind == StepActionKind::run ? 0 : 1].push_back(a);
  std::array<std::size_t, 2> next{0, 0};
  std::vector<bool> done(actions.size(), false);
  HashedMemory memory;
  std::map<std::size_t, std::uint64_t> read_at_start;
  for (std::size_t n = 0; n < actions.size(); ++n) {
    std::vector<std::size_t> able;
    for (const std::size_t q : {0u, 1u}) {
      if (next[q] == queues[q].size()) continue;
      const int wait = waits[queues[q][next[q]]];
      if (wait < 0 || done[static_cast<std::size_t>(wait)]) able.push_back(q);
    }
    ASSERT_FALSE(able.empty()) << "both queues wait";
    const std::size_t q = able[static_cast<std::size_t>(dice(0, static_cast<int>(able.size()) - 1))];
    const std::size_t a = queues[q][next[q]++];
    const auto i = static_cast<std::size_t>(actions[a].node);
    const StepNode& node = graph.nodes[i];
    if (actions[a].kind == StepActionKind::finish) {
      memory.write(node, i, read_at_start.at(i));
    } else {
      const std::uint64_t read = memory.read(node);
      read_at_start[i] = read;
      memory.write(node, i, actions[a].kind == StepActionKind::run ? read : rubbish);
    }
    done[a] = true;
  }
  ASSERT_EQ(memory, expected);
}

TEST(StepGraph, ComputesTheSameOnTwoQueues) {
  for (int seed = 1; seed <= test::random_cases(3000); ++seed) {
    Dice dice(static_cast<std::uint64_t>(seed));
    const StepGraph graph = random_graph(dice);
    const HashedMemory expected = one_after_the_other(graph);
    std::vector<ScheduleOptions> orders = other_orders(dice);
    orders.emplace_back();
    for (const ScheduleOptions& options : orders) {
      const auto actions = schedule(graph, options);
      SCOPED_TRACE("seed " + std::to_string(seed) + ": " + testing::PrintToString(lines(graph, actions)));
      expect_queues_compute(graph, actions, expected, dice);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(StepGraph, ComputesWhatTheNodesDoOneAfterTheOther) {
  // Communication reads where it starts and writes where it finishes. In between it may write, so there is rubbish; and a peer may read
  // there, so what it reads must stay.
  constexpr std::uint64_t rubbish = 0xdead;
  int overlaps = 0;
  for (int seed = 1; seed <= test::random_cases(3000); ++seed) {
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
        ASSERT_EQ(memory.read(node, true), start.unwritten) << "what node " << i << " reads has changed";
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
  EXPECT_GT(overlaps, test::random_cases(3000));
}

// --- several ranks ---

/// Communication that all ranks list, and who takes part.
struct Common {
  NodeKind kind;
  std::vector<int> group_of;  ///< of each rank: who has the same number waits for each other; negative: has no part
};

struct RankAction {
  StepActionKind kind;
  std::size_t common;  ///< unless it runs a kernel
};

/// What `ranks` do, each in its own order, until nobody can go on. A transfer ends when all of its group want to end it: each reads what
/// the others have begun to send, and waits for those that read its own. A collective ends when all of its group have begun it; they must
/// begin theirs in the same order. That somebody goes on stops nobody else: who goes first makes no difference.
/// What is wrong; empty: all come to the end.
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
        wrong += "ranks " + std::to_string(b) + " and " + std::to_string(a) + " begin collectives in another order; ";
    }
  }
  return wrong;
}

/// A graph of one rank: the common nodes from `first` to `last`, kernels of its own between them, and accesses of its own everywhere.
/// `number`: of each node in the list of common ones.
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
    // Whoever has no part in it lists it or doesn't.
    if (commons[c].group_of[rank] < 0 && dice.one_in(2)) continue;
    graph.nodes.push_back(random_node(dice, density, commons[c].kind));
    number.push_back(c);
  }
  return graph;
}

TEST(StepGraph, LetsNoRankWaitForEver) {
  int waits = 0;
  for (int seed = 1; seed <= test::random_cases(4000); ++seed) {
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
        // Ranks may keep the rules in different ways.
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
  EXPECT_GT(waits, test::random_cases(4000));
}

TEST(StepGraph, NoticesRanksThatWaitForEver) {
  // The rules that the order keeps are needed: without any of them two ranks that follow the others wait for each other.
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
