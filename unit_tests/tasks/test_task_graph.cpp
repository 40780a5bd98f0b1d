#include <aloni/tasks/task_graph.hpp>

#include <aloni/core/error.hpp>
#include <aloni/tasks/cholesky.hpp>
#include <aloni/tasks/detail/run_on_tiles.hpp>
#include <aloni/tasks/detail/solve_rule.hpp>
#include <aloni/tasks/lu.hpp>
#include <aloni/tasks/solve.hpp>
#include <support/random_cases.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "random_graph.hpp"

namespace aloni::tasks {
namespace test_task_graph {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr TileId a{0, 0, 0}, b{0, 1, 0}, c{1, 0, 0};

std::vector<std::int32_t> listed(std::span<const std::int32_t> numbers) { return {numbers.begin(), numbers.end()}; }

TEST(TaskGraph, ReadersWaitForTheLastWriterAndWritersForReadersToo) {
  TaskGraph graph;
  const auto add = [&](std::vector<TileAccess> accesses) { return graph.add({}, accesses); };
  add({{a, Access::write}});                          // 0
  add({{a, Access::read}, {b, Access::write}});       // 1: reads what 0 wrote
  add({{a, Access::read}, {c, Access::read}});        // 2: the same; nobody wrote c
  add({{a, Access::read_write}});                     // 3: after writer 0 and readers 1 and 2
  add({{a, Access::read}, {b, Access::read_write}});  // 4: after 3 and 1, once each
  add({{c, Access::write}});                          // 5: after reader 2
  add({});                                            // 6
  EXPECT_THAT(graph.predecessors(0), IsEmpty());
  EXPECT_THAT(listed(graph.predecessors(1)), ElementsAre(0));
  EXPECT_THAT(listed(graph.predecessors(2)), ElementsAre(0));
  EXPECT_THAT(listed(graph.predecessors(3)), ElementsAre(0, 1, 2));
  EXPECT_THAT(listed(graph.predecessors(4)), ElementsAre(1, 3));
  EXPECT_THAT(listed(graph.predecessors(5)), ElementsAre(2));
  EXPECT_THAT(graph.predecessors(6), IsEmpty());
  const TaskLists successors = graph.successors();
  EXPECT_THAT(listed(successors[0]), ElementsAre(1, 2, 3));
  EXPECT_THAT(listed(successors[1]), ElementsAre(3, 4));
  EXPECT_THAT(successors[6], IsEmpty());
  EXPECT_EQ(graph.writes(a), 2);
  EXPECT_EQ(graph.writes({0, 9, 9}), 0);
  EXPECT_EQ(graph.writer_of({a, 1}), 0);
  EXPECT_EQ(graph.writer_of({a, 2}), 3);
  EXPECT_THROW(graph.writer_of({a, 3}), InvalidArgument);
  EXPECT_THROW(graph.writer_of({a, 0}), InvalidArgument);
}

TEST(TaskGraph, CriticalPathsAddTheMostExpensiveSuccessors) {
  TaskGraph graph;
  graph.add({}, std::array{TileAccess{a, Access::write}}, 1);
  graph.add({}, std::array{TileAccess{a}, TileAccess{b, Access::write}}, 10);
  graph.add({}, std::array{TileAccess{a}, TileAccess{c, Access::write}}, 2);
  graph.add({}, std::array{TileAccess{b}, TileAccess{c, Access::read_write}}, 5);
  EXPECT_THAT(graph.critical_paths(), ElementsAre(16, 15, 7, 5));
}

TEST(TaskGraph, RefusesWrongTasksAndStaysAsItWas) {
  TaskGraph graph;
  EXPECT_THROW(graph.add({}, std::array{TileAccess{a}, TileAccess{a, Access::write}}), InvalidArgument);
  EXPECT_THROW(graph.add({Kernel::gemm, -1, 0, 0}, {}), InvalidArgument);
  EXPECT_THROW(graph.add({Kernel::gemm, 0, 1 << 20, 0}, {}), InvalidArgument);
  EXPECT_THROW(graph.add({}, {}, -1), InvalidArgument);
  EXPECT_EQ(graph.size(), 0);
  EXPECT_EQ(graph.writes(a), 0);
}

TEST(TaskGraph, KeysNameTasks) {
  for (const Task& task : {Task{}, Task{Kernel::update_upper, max_task_coordinate, 3, 7},
                           Task{Kernel::gemm, 1, max_task_coordinate, max_task_coordinate}})
    EXPECT_EQ(Task::from(task.key()), task);
  EXPECT_EQ(to_string(Task{Kernel::gemm, 3, 2, 1}), "gemm (3, 2) 1");
}

/// In any order that the predecessors allow, each tile has the values of the order of insertion.
TEST(TaskGraph, AnyAllowedOrderGivesTheValuesOfTheSerialOrder) {
  for (int seed = 0; seed < aloni::test::random_cases(100); ++seed) {
    const int tiles = 1 + seed % 7;
    const TaskGraph graph = test::random_graph(static_cast<std::uint64_t>(seed), 80, tiles, 4);
    test::TileValues serial(tiles), reordered(tiles);
    for (std::int32_t t = 0; t < graph.size(); ++t) serial.run(graph, t);
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    std::vector<std::size_t> waits_for;
    std::vector<std::int32_t> ready;
    for (std::int32_t t = 0; t < graph.size(); ++t) {
      waits_for.push_back(graph.predecessors(t).size());
      if (waits_for.back() == 0) ready.push_back(t);
    }
    const TaskLists successors = graph.successors();
    int ran = 0;
    for (; !ready.empty(); ++ran) {
      std::swap(ready[random() % ready.size()], ready.back());
      const std::int32_t t = ready.back();
      ready.pop_back();
      reordered.run(graph, t);
      for (const std::int32_t s : successors[t])
        if (--waits_for[static_cast<std::size_t>(s)] == 0) ready.push_back(s);
    }
    EXPECT_EQ(ran, graph.size());
    EXPECT_EQ(reordered, serial) << "seed " << seed;
  }
}

/// The formulas of a rule agree with the dependences that follow from the accesses.
void expect_agreement(const TaskRule& rule, const TaskGraph& graph) {
  std::map<Task, std::int32_t> numbers;
  for (std::int32_t t = 0; t < graph.size(); ++t) numbers[graph.task(t)] = t;
  ASSERT_EQ(static_cast<std::int32_t>(numbers.size()), graph.size()) << "two tasks have one name";
  const TaskLists successors = graph.successors();
  const std::vector<double> paths = graph.critical_paths();
  std::set<Task> roots;
  for (std::int32_t t = 0; t < graph.size(); ++t) {
    const Task& task = graph.task(t);
    SCOPED_TRACE(to_string(task));
    if (graph.predecessors(t).empty()) roots.insert(task);
    EXPECT_EQ(rule.count_predecessors(task), static_cast<std::int32_t>(graph.predecessors(t).size()));
    std::vector<Task> by_rule;
    rule.append_successors(task, by_rule);
    std::vector<std::int32_t> by_rule_numbers;
    for (const Task& s : by_rule) {
      ASSERT_TRUE(numbers.contains(s)) << to_string(s);
      by_rule_numbers.push_back(numbers[s]);
    }
    std::sort(by_rule_numbers.begin(), by_rule_numbers.end());
    EXPECT_EQ(by_rule_numbers, listed(successors[t]));
    EXPECT_NEAR(rule.critical_path(task) / paths[static_cast<std::size_t>(t)], 1, 1e-12);
    EXPECT_EQ(rule.cost(task), graph.cost(t));
    EXPECT_EQ(graph.writer_of(rule.output(task)), t);
    EXPECT_EQ(rule.writer_of(rule.output(task)), task);
  }
  std::vector<Task> by_rule;
  rule.append_roots(by_rule);
  EXPECT_EQ(std::set<Task>(by_rule.begin(), by_rule.end()), roots);
  EXPECT_EQ(by_rule.size(), roots.size());
  std::int32_t writes = 0;
  for (const TileId& tile : rule.tiles()) {
    EXPECT_EQ(rule.writes(tile), graph.writes(tile)) << to_string(tile);
    writes += rule.writes(tile);
  }
  EXPECT_EQ(writes, graph.size());
}

TEST(TaskRule, CholeskyAgreesWithTheDependencesOfItsAccesses) {
  for (const Index tiles : {0, 1, 2, 3, 4, 5, 9}) {
    SCOPED_TRACE(tiles);
    const TaskGraph graph = cholesky_graph(tiles, 6);
    expect_agreement(CholeskyRule(tiles, 6), graph);
    EXPECT_EQ(graph.size(), tiles * (tiles + 1) * (tiles + 2) / 6);
  }
}

TEST(TaskRule, CholeskyOfTallTilesAgreesToo) {
  for (const Index height : {2, 3, 4, 7})
    for (const Index columns : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13}) {
      SCOPED_TRACE(std::to_string(columns) + " columns of tiles of " + std::to_string(height) + " squares");
      const TaskGraph graph = cholesky_graph(columns, 6, height);
      expect_agreement(CholeskyRule(columns, 6, height), graph);
    }
}

TEST(TaskRule, LuAgreesWithTheDependencesOfItsAccesses) {
  for (const Index tiles : {0, 1, 2, 3, 4, 5, 8}) {
    SCOPED_TRACE(tiles);
    const TaskGraph graph = lu_graph(tiles, 6);
    expect_agreement(LuRule(tiles, 6), graph);
    EXPECT_EQ(graph.size(), tiles * (tiles + 1) * (2 * tiles + 1) / 6);
  }
}

TEST(TaskRule, BothHalvesOfSolutionsAgreeWithTheDependencesOfTheirAccesses) {
  using detail::SolveRule;
  using detail::Substitution;
  for (const Factors kind : {Factors::cholesky, Factors::lu})
    for (const Substitution half : {Substitution::forward, Substitution::backward})
      for (const Index height : {1, 2, 3, 7})
        for (const Index columns : {0, 1, 3})
          for (const std::int32_t tiles : {0, 1, 2, 3, 4, 7, 8}) {
            if (kind == Factors::lu && height > 1) continue;
            SCOPED_TRACE(std::to_string(tiles) + " tiles, " + std::to_string(columns) + " columns, height " +
                         std::to_string(height) + (kind == Factors::lu ? ", LU" : ", Cholesky") +
                         (half == Substitution::forward ? ", forward" : ", backward"));
            const SolveRule rule(kind, half, tiles, columns, 6, height);
            TaskGraph graph;
            for (const TileId& tile : rule.tiles())
              if (tile.matrix == 0) detail::add_task(graph, rule, rule.writer_of({tile, 1}));
            // The tasks in the order of solve_graph(), with its costs.
            const TaskGraph whole = solve_graph(kind, tiles, columns, 6, height);
            double operations = 0;
            for (std::int32_t t = 0; t < whole.size(); ++t) {
              const Kernel kernel = whole.task(t).kernel;
              const bool is_forward = kernel == Kernel::solve_lower || kernel == Kernel::update_lower;
              if (is_forward != (half == Substitution::forward)) continue;
              detail::add_task(graph, rule, whole.task(t));
              operations += whole.cost(t);
              std::vector<TileAccess> accesses;
              rule.append_accesses(whole.task(t), accesses);
              EXPECT_TRUE(std::ranges::equal(accesses, whole.accesses(t))) << to_string(whole.task(t));
            }
            expect_agreement(rule, graph);
            double all = 0;
            for (std::int32_t t = 0; t < graph.size(); ++t) all += graph.cost(t);
            EXPECT_EQ(all, operations);
          }
}

/// RankRun asks for few provided tiles at a time, in the order of tiles().
TEST(TaskRule, ASolutionCanBeDoneWithOneTileOfTheFactorsAtATime) {
  using detail::SolveRule;
  using detail::Substitution;
  for (const Factors kind : {Factors::cholesky, Factors::lu})
    for (const Substitution half : {Substitution::forward, Substitution::backward})
      for (const Index height : {1, 2, 3, 4})
        for (const std::int32_t tiles : {1, 2, 5, 8, 9}) {
          if (kind == Factors::lu && height > 1) continue;
          const SolveRule rule(kind, half, tiles, 2, 6, height);
          std::map<Task, std::int32_t> waits_for;
          std::vector<Task> ready;
          const auto run = [&](const Task& task) {
            std::vector<Task> successors;
            rule.append_successors(task, successors);
            for (const Task& s : successors) {
              const auto found = waits_for.try_emplace(s, rule.count_predecessors(s)).first;
              if (--found->second == 0) ready.push_back(s);
            }
          };
          std::int32_t run_tasks = 0, all = 0;
          for (const TileId& tile : rule.tiles()) {
            all += tile.matrix == 1 ? rule.writes(tile) : 0;
            if (tile.matrix != 0) continue;
            const Task provide = rule.writer_of({tile, 1});
            std::vector<Task> readers;
            rule.append_successors(provide, readers);
            run(provide);
            while (!ready.empty()) {
              const Task task = ready.back();
              ready.pop_back();
              ++run_tasks;
              EXPECT_NE(std::ranges::find(readers, task), readers.end())
                  << "needs an earlier tile: " << to_string(task);
              std::erase(readers, task);
              run(task);
            }
            EXPECT_TRUE(readers.empty()) << to_string(tile) << " is needed until a later tile is here";
          }
          EXPECT_EQ(run_tasks, all);
        }
}

TEST(TaskRule, CostsAddUpToTheOperationsOfTheFactorisation) {
  constexpr Index tiles = 40, tile = 25;
  constexpr double n = tiles * tile;
  const auto sum = [](const TaskGraph& graph) {
    double all = 0;
    for (std::int32_t t = 0; t < graph.size(); ++t) all += graph.cost(t);
    return all;
  };
  EXPECT_NEAR(sum(cholesky_graph(tiles, tile)) / (n * n * n / 3), 1, 0.01);
  EXPECT_NEAR(sum(cholesky_graph(tiles, tile, 4)) / (n * n * n / 3), 1, 0.01);
  EXPECT_NEAR(sum(lu_graph(tiles, tile)) / (2 * n * n * n / 3), 1, 0.01);
}

TEST(TaskRule, RefusesMoreTilesThanKeysHave) {
  EXPECT_THROW(CholeskyRule((1 << 20) + 1, 4), InvalidArgument);
  EXPECT_THROW(CholeskyRule(-1, 4), InvalidArgument);
  EXPECT_THROW(CholeskyRule(4, 4, 0), InvalidArgument);
  EXPECT_THROW(CholeskyRule(views::TileDistribution(12, 12, {6, 4})), InvalidArgument);
  EXPECT_THROW(LuRule(4, 0), InvalidArgument);
  EXPECT_THROW(LuRule(views::TileDistribution(12, 12, {4, 2})), InvalidArgument);
}

/// The backward substitution overwrites tiles that updates of the forward substitution read.
TEST(SolveGraph, HasDependencesOfWritersOnReaders) {
  const TaskGraph graph = solve_graph(Factors::cholesky, 3, 1, 4);
  EXPECT_EQ(graph.size(), 2 * (3 + 3));
  EXPECT_EQ(to_string(graph.task(6)), "solve_upper (2, 0) 2");
  EXPECT_THAT(listed(graph.predecessors(6)), ElementsAre(5));
  EXPECT_EQ(to_string(graph.task(7)), "update_upper (0, 0) 2");
  EXPECT_THAT(listed(graph.predecessors(7)), ElementsAre(0, 1, 2, 6)) << "1 and 2 read tile (0, 0)";
}

}  // namespace test_task_graph
}  // namespace aloni::tasks
