// Simulated task graphs against bounds that hold for every schedule, times computed by hand, and counts of messages.
#include "tasks/random_graph.hpp"

#include <support/random_cases.hpp>

#include <aloni/core/error.hpp>
#include <aloni/model/task_simulation.hpp>
#include <aloni/tasks/cholesky.hpp>
#include <aloni/tasks/lu.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace aloni::model {
namespace test_task_simulation {

using tasks::Access;
using tasks::CholeskyRule;
using tasks::Kernel;
using tasks::LuRule;
using tasks::Task;
using tasks::TaskGraph;
using tasks::TileAccess;
using tasks::TileId;
using views::TileDistribution;

constexpr TaskSimulationOptions free_runtime{.seconds_per_task = 0};

/// Powers of two, so that sums are exact.
Machine machine_with_links(int ranks_per_node, bool shared_memory) {
  Machine machine = generic_machine();
  machine.ranks_per_node = ranks_per_node;
  machine.planning.shared_memory = shared_memory;
  for (LinkCosts& link : machine.links)
    link = {.latency = 0.25, .seconds_per_byte = 1. / 128, .seconds_per_message = 0.125};
  return machine;
}

TaskSimulationOptions with_timeline() { return {.seconds_per_task = 0, .timeline = true}; }

double largest(const std::vector<double>& values) { return values.empty() ? 0 : *std::ranges::max_element(values); }

TEST(TaskSimulation, OneWorkerTakesTheSumOfAllKernels) {
  for (int seed = 0; seed < test::random_cases(40); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const TaskGraph graph = tasks::test::random_graph(static_cast<std::uint64_t>(seed), 60, 8, 4);
    double sum = 0;
    for (std::int32_t t = 0; t < graph.size(); ++t) sum += graph.cost(t);
    EXPECT_EQ(simulate_tasks(graph, {}, generic_machine(), free_runtime).seconds, sum);
    EXPECT_EQ(simulate_tasks(graph, {}, generic_machine(), {.seconds_per_task = 0.5}).seconds, sum + 30);
  }
  const CholeskyRule rule(7, 3);
  const SimulatedTasks result = simulate_tasks(rule, {}, generic_machine(), free_runtime);
  EXPECT_EQ(result.seconds, result.kernels);
  EXPECT_EQ(result.tasks, 84);
  EXPECT_NEAR(result.kernels, 21. * 21 * 21 / 3, 1e-9);
  EXPECT_EQ(result.idle_share(0), 0);
  EXPECT_EQ(result.parallel_efficiency(), 1);
}

/// Graham, "Bounds on multiprocessing timing anomalies", 1969: no worker idles while a task is ready, so each moment
/// has all workers busy or shortens the critical path.
TEST(TaskSimulation, ManyWorkersStayWithinTheBoundsOfListScheduling) {
  for (int seed = 0; seed < test::random_cases(60); ++seed) {
    const int workers = 2 + seed % 7;
    SCOPED_TRACE("seed " + std::to_string(seed));
    const TaskGraph graph = tasks::test::random_graph(static_cast<std::uint64_t>(seed), 100, 20, 3);
    const SimulatedTasks result =
        simulate_tasks(graph, {.workers = workers}, generic_machine(), {.seconds_per_task = 0, .timeline = true});
    EXPECT_EQ(result.critical_path, largest(graph.critical_paths()));
    EXPECT_GE(result.seconds, result.least_seconds());
    EXPECT_LE(result.seconds, result.kernels / workers + result.critical_path * (1 - 1. / workers) + 1e-9);

    double path = 0;
    for (std::size_t i = 0; i < result.critical_tasks.size(); ++i) {
      const std::int32_t t = result.critical_tasks[i].row;  // the number of the task
      path += graph.cost(t);
      if (i == 0) continue;
      const auto before = graph.predecessors(t);
      EXPECT_NE(std::ranges::find(before, result.critical_tasks[i - 1].row), before.end());
    }
    EXPECT_EQ(path, result.critical_path);
  }
}

/// When each task ran, and where.
struct Run {
  int rank = 0, worker = 0;
  std::int64_t start = 0, end = 0;
};

std::map<Task, Run> runs_of(const SimulatedTasks& result) {
  std::map<Task, Run> runs;
  for (std::size_t r = 0; r < result.reports.size(); ++r)
    for (const tasks::TaskTime& t : result.reports[r].times)
      EXPECT_TRUE(runs.emplace(t.task, Run{static_cast<int>(r), t.worker, t.start, t.end}).second)
          << to_string(t.task) << " ran twice";
  return runs;
}

/// Tasks wait for their predecessors, and for the way of tiles between ranks. Workers run one task at a time.
template <class Rule>
void expect_order(const Rule& rule, const TasksOnRanks& run, const SimulatedTasks& result, double least_flight) {
  const std::map<Task, Run> runs = runs_of(result);
  ASSERT_EQ(static_cast<Index>(runs.size()), result.tasks);
  std::map<std::pair<int, int>, std::vector<std::pair<std::int64_t, std::int64_t>>> of_worker;
  for (const auto& [task, at] : runs) {
    EXPECT_EQ(at.rank, run.owner(rule.output(task).tile)) << to_string(task);
    of_worker[{at.rank, at.worker}].emplace_back(at.start, at.end);
    std::vector<Task> successors;
    rule.append_successors(task, successors);
    for (const Task& s : successors) {
      const Run& later = runs.at(s);
      const double flight = later.rank == at.rank ? 0 : least_flight;
      EXPECT_GE(static_cast<double>(later.start - at.end) * 1e-9, flight - 2e-9)
          << to_string(task) << ", " << to_string(s);
    }
  }
  for (auto& [worker, times] : of_worker) {
    std::ranges::sort(times);
    for (std::size_t i = 1; i < times.size(); ++i) EXPECT_GE(times[i].first, times[i - 1].second - 1);
  }
}

/// Each tile travels once to each rank that reads it.
template <class Rule>
std::size_t compulsory_copies(const Rule& rule, const TasksOnRanks& run) {
  std::set<std::pair<TileId, int>> copies;
  for (const TileId& tile : rule.tiles())
    for (std::int32_t version = 1; version <= rule.writes(tile); ++version) {
      std::vector<TileAccess> accesses;
      rule.append_accesses(rule.writer_of({tile, version}), accesses);
      for (const TileAccess& a : accesses)
        if (run.owner(a.tile) != run.owner(tile)) copies.insert({a.tile, run.owner(tile)});
    }
  return copies.size();
}

template <class Rule>
void check_ranks(const Rule& rule, Index tiles, int ranks, int ranks_per_node, bool shared_memory) {
  SCOPED_TRACE(std::to_string(tiles) + " tiles on " + std::to_string(ranks) + " ranks");
  const TileDistribution d(tiles, tiles, 1, views::squarest_grid(ranks));
  const TasksOnRanks run{.ranks = ranks,
                         .workers = 2,
                         .owner = [&](const TileId& t) { return d.owner(t.tile()); },
                         .bytes = [](const TileId&) { return 8; },
                         .seconds = [](const Task& t) { return t.kernel == Kernel::gemm ? 2. : 1.; }};
  const Machine machine = machine_with_links(ranks_per_node, shared_memory);
  const SimulatedTasks result = simulate_tasks(rule, run, machine, with_timeline());
  constexpr double flight = 0.25 + 8. / 128 + 2 * 0.125;
  expect_order(rule, run, result, flight);
  EXPECT_GE(result.seconds, result.least_seconds());
  const std::size_t copies = compulsory_copies(rule, run);
  EXPECT_EQ(result.tiles().payloads, copies);
  EXPECT_EQ(result.tiles().copies, copies);
  EXPECT_EQ(result.tiles().requests, copies);
  EXPECT_EQ(result.bytes_sent(), 8 * static_cast<double>(copies));
  double kernels = 0;
  for (const SimulatedTasks::Rank& rank : result.ranks) kernels += rank.kernels;
  EXPECT_EQ(kernels, result.kernels);
}

TEST(TaskSimulation, RanksWaitForTilesAndSendEachOnceToEachReader) {
  for (const int ranks : {2, 3, 4, 6, 16})
    for (const Index tiles : {1, 2, 9, 14}) {
      check_ranks(CholeskyRule(tiles, 1), tiles, ranks, ranks, true);
      check_ranks(LuRule(tiles, 1), tiles, ranks, 2, false);
    }
}

/// A thousand ranks: the same figures again for a second walk.
TEST(TaskSimulation, IsTheSameForEqualArguments) {
  constexpr Index tiles = 48;
  const TileDistribution d(tiles, tiles, 1, views::squarest_grid(1024));
  const TasksOnRanks run{.ranks = 1024,
                         .workers = 2,
                         .owner = [&](const TileId& t) { return d.owner(t.tile()); },
                         .bytes = [](const TileId&) { return 1024; }};
  const CholeskyRule rule(tiles, 1);
  const Machine machine = generic_machine();
  const SimulatedTasks first = simulate_tasks(rule, run, machine), second = simulate_tasks(rule, run, machine);
  EXPECT_EQ(first.seconds, second.seconds);
  EXPECT_EQ(first.tiles().handed_on, second.tiles().handed_on);
  EXPECT_GT(first.tiles().handed_on, 0u);
}

// --- links, by hand ---

/// Rank r writes tile r, for r < senders. The last rank reads all of them and writes one tile.
TaskGraph gather_graph(int senders) {
  TaskGraph graph;
  std::vector<TileAccess> accesses;
  for (std::int32_t r = 0; r < senders; ++r) {
    graph.add({Kernel::other, r, 0, 0}, std::array{TileAccess{{0, r, 0}, Access::write}});
    accesses.push_back({{0, r, 0}, Access::read});
  }
  accesses.push_back({{0, senders, 0}, Access::write});
  graph.add({Kernel::other, senders, 0, 0}, accesses);
  return graph;
}

double gather_seconds(int senders, const Machine& machine) {
  const TaskGraph graph = gather_graph(senders);
  const TasksOnRanks run{
      .ranks = senders + 1, .owner = [](const TileId& t) { return t.row; }, .bytes = [](const TileId&) { return 256; }};
  return simulate_tasks(graph, run, machine, free_runtime).seconds;
}

TEST(TaskSimulation, ATileTakesLatencyAndBytesAndOneMessageOnEachSide) {
  // A task of 1 s; a message of 0.125 s posted, 0.25 s of latency, 2 s of bytes, 0.125 s received; a task of 1 s.
  EXPECT_EQ(gather_seconds(1, machine_with_links(2, false)), 4.5);
  EXPECT_EQ(gather_seconds(1, machine_with_links(1, false)), 4.5);
  EXPECT_EQ(gather_seconds(1, machine_with_links(2, true)), 4.5);
}

TEST(TaskSimulation, TilesFromSeveralRanksShareThePortOfTheReceiver) {
  EXPECT_EQ(gather_seconds(2, machine_with_links(3, false)), 6.5);
  EXPECT_EQ(gather_seconds(3, machine_with_links(4, false)), 8.5);
  EXPECT_EQ(gather_seconds(2, machine_with_links(1, false)), 6.5);
  // The receiver's thread copies: it is busy for 0.125 s more for each tile.
  EXPECT_EQ(gather_seconds(2, machine_with_links(3, true)), 6.625);
}

/// Ranks 0 and 1 of node 0 send to ranks 2 and 3 of node 1.
TEST(TaskSimulation, RanksOfANodeShareItsPortToOtherNodes) {
  TaskGraph graph;
  for (std::int32_t r : {0, 1}) {
    graph.add({Kernel::other, r, 0, 0}, std::array{TileAccess{{0, r, 0}, Access::write}});
    graph.add({Kernel::other, r, 1, 0},
              std::array{TileAccess{{0, r, 0}, Access::read}, TileAccess{{0, r + 2, 0}, Access::write}});
  }
  const TasksOnRanks run{
      .ranks = 4, .owner = [](const TileId& t) { return t.row; }, .bytes = [](const TileId&) { return 256; }};
  EXPECT_EQ(simulate_tasks(graph, run, machine_with_links(4, false), free_runtime).seconds, 4.5);
  EXPECT_EQ(simulate_tasks(graph, run, machine_with_links(2, false), free_runtime).seconds, 6.5);
}

TEST(TaskSimulation, CopiesTakeMemoryUntilTheirLastTask) {
  const TaskGraph graph = gather_graph(3);
  const TasksOnRanks run{
      .ranks = 4, .owner = [](const TileId& t) { return t.row; }, .bytes = [](const TileId&) { return 256; }};
  const SimulatedTasks result = simulate_tasks(graph, run, machine_with_links(4, false), free_runtime);
  EXPECT_EQ(result.ranks[3].most_copies, 3 * 256);
  EXPECT_EQ(result.ranks[0].most_copies, 0);
  EXPECT_EQ(result.ranks[0].bytes_sent, 256);
  EXPECT_EQ(result.ranks[3].tiles.requests, 3u);
}

TEST(TaskSimulation, FasterLinksAndKernelsNeverSlowDownAChain) {
  TaskGraph graph;
  for (std::int32_t i = 0; i < 10; ++i) {
    if (i == 0) {
      graph.add({Kernel::other, 0, 0, 0}, std::array{TileAccess{{0, 0, 0}, Access::write}});
    } else {
      graph.add({Kernel::other, i, 0, 0},
                std::array{TileAccess{{0, i - 1, 0}, Access::read}, TileAccess{{0, i, 0}, Access::write}});
    }
  }
  const TasksOnRanks run{
      .ranks = 2, .owner = [](const TileId& t) { return t.row % 2; }, .bytes = [](const TileId&) { return 256; }};
  Machine machine = machine_with_links(2, false);
  EXPECT_EQ(simulate_tasks(graph, run, machine, free_runtime).seconds, 10 + 9 * 2.5);
  for (LinkCosts& link : machine.links) link.seconds_per_byte /= 2;
  EXPECT_EQ(simulate_tasks(graph, run, machine, free_runtime).seconds, 10 + 9 * 1.5);
}

// --- errors ---

TEST(TaskSimulation, RefusesWrongArguments) {
  const CholeskyRule rule(4, 8);
  const Machine machine = generic_machine();
  EXPECT_THROW(simulate_tasks(rule, {.ranks = 0}, machine), InvalidArgument);
  EXPECT_THROW(simulate_tasks(rule, {.workers = 0}, machine), InvalidArgument);
  EXPECT_THROW(simulate_tasks(rule, {}, machine, {.seconds_per_task = -1}), InvalidArgument);
  EXPECT_THROW(simulate_tasks(rule, {.ranks = 2, .owner = [](const TileId&) { return 2; }}, machine), InvalidArgument);
  EXPECT_THROW(simulate_tasks(rule, {.seconds = [](const Task&) { return -1.; }}, machine), InvalidArgument);
  const auto alternate = [](const TileId& t) { return (t.row + t.column) % 2; };
  EXPECT_THROW(simulate_tasks(rule,
                              {.ranks = 2,
                               .owner = alternate,
                               .bytes = [](const TileId&) { return std::numeric_limits<double>::infinity(); }},
                              machine),
               InvalidArgument);
  Machine small = machine;
  small.most_nodes = 1;
  EXPECT_THROW(simulate_tasks(rule, {.ranks = 3, .owner = alternate}, small), InvalidArgument);
}

/// Says one number of predecessors too many.
class StuckRule final : public tasks::TaskRule {
 public:
  std::vector<TileId> tiles() const override { return rule_.tiles(); }
  std::int32_t writes(const TileId& t) const override { return rule_.writes(t); }
  Task writer_of(const tasks::TileVersion& v) const override { return rule_.writer_of(v); }
  tasks::TileVersion output(const Task& t) const override { return rule_.output(t); }
  void append_accesses(const Task& t, std::vector<TileAccess>& a) const override { rule_.append_accesses(t, a); }
  std::int32_t count_predecessors(const Task& t) const override {
    return rule_.count_predecessors(t) + (t.kernel == Kernel::syrk);
  }
  void append_successors(const Task& t, std::vector<Task>& s) const override { rule_.append_successors(t, s); }
  void append_roots(std::vector<Task>& roots) const override { rule_.append_roots(roots); }
  double cost(const Task& t) const override { return rule_.cost(t); }
  double critical_path(const Task& t) const override { return rule_.critical_path(t); }

 private:
  CholeskyRule rule_{3, 1};
};

TEST(TaskSimulation, NamesTasksThatNothingReleases) {
  try {
    simulate_tasks(StuckRule(), {}, generic_machine());
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("tasks that no task releases"), std::string::npos) << error.what();
  }
}

TEST(TaskSimulation, RefusesGraphsThatRanksCannotRun) {
  const TasksOnRanks run{.ranks = 2, .owner = [](const TileId& t) { return t.row; }};
  TaskGraph two_outputs;
  two_outputs.add({}, std::array{TileAccess{{0, 0, 0}, Access::write}, TileAccess{{0, 1, 0}, Access::write}});
  EXPECT_THROW(simulate_tasks(two_outputs, run, generic_machine()), Unsupported);
  EXPECT_EQ(simulate_tasks(two_outputs, {}, generic_machine(), free_runtime).seconds, 1);

  TaskGraph overwrites;  // the second writer of tile 0 waits for its reader on rank 1
  overwrites.add({Kernel::other, 0, 0, 0}, std::array{TileAccess{{0, 0, 0}, Access::write}});
  overwrites.add({Kernel::other, 1, 0, 0},
                 std::array{TileAccess{{0, 0, 0}, Access::read}, TileAccess{{0, 1, 0}, Access::write}});
  overwrites.add({Kernel::other, 0, 0, 1}, std::array{TileAccess{{0, 0, 0}, Access::write}});
  EXPECT_THROW(simulate_tasks(overwrites, run, generic_machine()), Unsupported);
}

}  // namespace test_task_simulation
}  // namespace aloni::model
