#include <aloni/tasks/runtime.hpp>

#include <aloni/core/error.hpp>
#include <aloni/tasks/cholesky.hpp>
#include <aloni/tasks/detail/processors.hpp>
#include <aloni/tasks/lu.hpp>
#include <support/random_cases.hpp>

#include <gmock/gmock.h>
#ifdef __linux__
#include <sched.h>
#endif

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "random_graph.hpp"

namespace aloni::tasks {
namespace test_runtime {

using testing::HasSubstr;

constexpr TileId tile_a{0, 0, 0}, tile_b{0, 1, 0};

TEST(Runtime, RandomGraphsGiveTheValuesOfTheSerialOrderOnManyWorkers) {
  for (int seed = 1; seed <= aloni::test::random_cases(120); ++seed) {
    const int tiles = 1 + seed % 9, workers = 1 + seed % 5;
    const TaskGraph graph = test::random_graph(static_cast<std::uint64_t>(seed), 150, tiles, 4);
    test::TileValues serial(tiles), parallel(tiles);
    for (std::int32_t t = 0; t < graph.size(); ++t) serial.run(graph, t);
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(graph.size()));
    Runtime runtime(graph,
                    [&](const Task& task, int worker) {
                      EXPECT_TRUE(worker >= 0 && worker < workers);
                      ++runs[static_cast<std::size_t>(task.row)];
                      if (seed % 3 == 0 && task.row % 16 == 0) std::this_thread::yield();
                      parallel.run(graph, task.row);
                    },
                    {.workers = workers, .schedule_seed = static_cast<std::uint64_t>(seed % 2 * seed)});
    const RunReport report = runtime.run();
    EXPECT_EQ(report.tasks, graph.size());
    EXPECT_EQ(report.workers.size(), static_cast<std::size_t>(workers));
    for (const auto& count : runs) EXPECT_EQ(count, 1);
    ASSERT_EQ(parallel, serial) << "seed " << seed << ", workers " << workers;
  }
}

TEST(Runtime, RunsTheMostUrgentTaskFirstAndAmongEqualsTheFirst) {
  TaskGraph graph;
  for (int i = 0; i < 6; ++i) graph.add({Kernel::other, i, 0, 0}, {}, i % 3);
  std::vector<int> order;
  Runtime(graph, [&](const Task& task, int) { order.push_back(task.row); }, {.workers = 1}).run();
  EXPECT_THAT(order, testing::ElementsAre(2, 5, 1, 4, 0, 3));
}

TEST(Runtime, ASeedGivesAnotherOrder) {
  const TaskGraph graph = cholesky_graph(6, 4);
  const auto order = [&](std::uint64_t seed) {
    std::vector<Task> tasks;
    Runtime(graph, [&](const Task& task, int) { tasks.push_back(task); }, {.workers = 1, .schedule_seed = seed}).run();
    return tasks;
  };
  EXPECT_EQ(order(5), order(5));
  EXPECT_NE(order(5), order(6));
  EXPECT_NE(order(5), order(0));
}

/// The rule and the graph run the same tasks, each after its predecessors.
TEST(Runtime, RulesRunEachTaskAfterItsPredecessors) {
  constexpr Index tiles = 7;
  const CholeskyRule cholesky(tiles, 8);
  const LuRule lu(tiles, 8);
  const std::pair<const TaskRule*, TaskGraph> cases[] = {{&cholesky, cholesky_graph(tiles, 8)},
                                                         {&lu, lu_graph(tiles, 8)}};
  for (const auto& [rule, graph] : cases)
    for (const int workers : {1, 3})
      for (const std::uint64_t seed : {0, 1, 2}) {
        std::mutex mutex;
        std::map<Task, std::size_t> positions;
        const RunReport report = Runtime(*rule,
                                         [&](const Task& task, int) {
                                           const std::lock_guard lock(mutex);
                                           positions.emplace(task, positions.size());
                                         },
                                         {.workers = workers, .schedule_seed = seed})
                                     .run();
        EXPECT_EQ(report.tasks, graph.size());
        ASSERT_EQ(static_cast<std::int32_t>(positions.size()), graph.size());
        for (std::int32_t t = 0; t < graph.size(); ++t)
          for (const std::int32_t p : graph.predecessors(t))
            EXPECT_LT(positions.at(graph.task(p)), positions.at(graph.task(t)));
      }
}

TEST(Runtime, WorkersStealAndCountTheirSteals) {
  // One task releases all others, which wait for each other in pairs: one worker alone would never end.
  TaskGraph graph;
  graph.add({Kernel::other, 0, 0, 0}, std::array{TileAccess{tile_a, Access::write}});
  for (int i = 1; i <= 2; ++i) graph.add({Kernel::other, i, 0, 0}, std::array{TileAccess{tile_a}});
  std::mutex mutex;
  std::condition_variable both;
  int here = 0;
  const RunReport report = Runtime(graph,
                                   [&](const Task& task, int) {
                                     if (task.row == 0) return;
                                     std::unique_lock lock(mutex);
                                     ++here;
                                     both.notify_all();
                                     both.wait(lock, [&] { return here == 2; });
                                   },
                                   {.workers = 2})
                               .run();
  EXPECT_GE(report.steals, 1) << "at least one of the two; the first task may be stolen too";
  EXPECT_EQ(report.workers[0].steals + report.workers[1].steals, report.steals);
  EXPECT_EQ(report.workers[0].tasks + report.workers[1].tasks, 3);
}

TEST(Runtime, IdleWorkersSleepAndWakeUp) {
  // A chain keeps one worker busy, the other sleeps; then both have work again.
  TaskGraph graph;
  graph.add({Kernel::other, 0, 0, 0}, std::array{TileAccess{tile_a, Access::write}});
  for (int i = 1; i <= 2; ++i) graph.add({Kernel::other, i, 0, 0}, std::array{TileAccess{tile_a}});
  Index sleeps = 0;
  // A worker yields its processor some times before it sleeps, which takes long beside other processes.
  for (std::chrono::milliseconds busy{50}; sleeps == 0 && busy < std::chrono::seconds(20); busy *= 4) {
    std::atomic<int> here{0};
    const RunReport report = Runtime(graph,
                                     [&](const Task& task, int) {
                                       if (task.row == 0) return std::this_thread::sleep_for(busy);
                                       ++here;
                                       while (here < 2) std::this_thread::yield();
                                     },
                                     {.workers = 2})
                                 .run();
    sleeps = report.workers[0].sleeps + report.workers[1].sleeps;
  }
  EXPECT_GE(sleeps, 1);
}

TEST(Runtime, TheFirstExceptionEndsTheRun) {
  const TaskGraph graph = cholesky_graph(8, 4);
  for (const int workers : {1, 4}) {
    std::atomic<int> ran{0};
    Runtime runtime(graph,
                    [&](const Task& task, int) {
                      if (task.kernel == Kernel::potrf && task.step == 2)
                        throw NotFinite("test", to_string(task), "NaN", "a number");
                      ++ran;
                    },
                    {.workers = workers});
    try {
      runtime.run();
      FAIL();
    } catch (const NotFinite& e) {
      EXPECT_EQ(e.argument(), "potrf (2, 2) 2");
    }
    EXPECT_LT(ran, graph.size());
    EXPECT_THROW(runtime.run(), InvalidArgument) << "a second run";
  }
}

TEST(Runtime, AnErrorOfAScopeEndsTheRun) {
  const TaskGraph graph = cholesky_graph(4, 4);
  RuntimeOptions options{.workers = 3};
  options.worker_scope = [](int worker) -> std::shared_ptr<void> {
    if (worker == 1) throw NotFinite("test", "scope", "", "");
    return nullptr;
  };
  // The tasks take long enough for worker 1 to begin.
  Runtime runtime(
      graph, [&](const Task&, int) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }, options);
  EXPECT_THROW(runtime.run(), NotFinite);
}

TEST(Runtime, ScopesLiveOnTheThreadsOfTheirWorkers) {
  const TaskGraph graph = cholesky_graph(5, 4);
  static thread_local int inside = 0;
  std::atomic<int> begun{0}, ended{0};
  struct Scope {
    std::atomic<int>& ended;
    explicit Scope(std::atomic<int>& e) : ended(e) { ++inside; }
    ~Scope() {
      --inside;
      ++ended;
    }
  };
  RuntimeOptions options{.workers = 3};
  options.worker_scope = [&](int) {
    ++begun;
    return std::make_shared<Scope>(ended);
  };
  Runtime(
      graph, [&](const Task&, int) { EXPECT_EQ(inside, 1); }, options)
      .run();
  EXPECT_EQ(begun, 3);
  EXPECT_EQ(ended, 3);
  EXPECT_EQ(inside, 0);
}

/// As with OMP_PROC_BIND: the main thread may use one processor, another thread of the process has all.
TEST(Runtime, WorkersUseTheProcessorsOfTheProcess) {
#ifdef __linux__
  const std::vector<int> all = detail::processors_of_process();
  if (all.size() < 2) GTEST_SKIP() << "one processor";
  std::mutex mutex;
  std::condition_variable changed;
  bool end = false;
  std::jthread other([&] {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return end; });
  });
  std::array<std::atomic<int>, 3> processors{};
  const auto count = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    return CPU_COUNT(&set);
  };
  // A thread of its own, so that the test leaves the main thread as it is.
  std::thread([&] {
    detail::use_processors({all.front()});
    RuntimeOptions options{.workers = 3};
    options.worker_scope = [&](int worker) -> std::shared_ptr<void> {
      processors[static_cast<std::size_t>(worker)] = count();
      return nullptr;
    };
    const TaskGraph graph = cholesky_graph(2, 4);
    Runtime(
        graph, [](const Task&, int) {}, options)
        .run();
    EXPECT_EQ(Runtime(graph, [](const Task&, int) {}).run().workers.size(), all.size()) << "the default";
  }).join();
  {
    const std::lock_guard lock(mutex);
    end = true;
  }
  changed.notify_all();
  EXPECT_EQ(processors[0], 1) << "the caller stays where it is";
  EXPECT_EQ(processors[1], static_cast<int>(all.size()));
  EXPECT_EQ(processors[2], static_cast<int>(all.size()));
#else
  GTEST_SKIP() << "no interface for processors";
#endif
}

TEST(Runtime, RecordsWhenEachTaskRan) {
  const TaskGraph graph = cholesky_graph(4, 4);
  const auto body = [](const Task&, int) {};
  EXPECT_TRUE(Runtime(graph, body, {.workers = 2}).run().times.empty());
  const RunReport report = Runtime(graph, body, {.workers = 2, .record_times = true}).run();
  ASSERT_EQ(static_cast<std::int32_t>(report.times.size()), graph.size());
  for (const TaskTime& t : report.times) {
    EXPECT_LE(report.start, t.start);
    EXPECT_LE(t.start, t.end);
    EXPECT_LE(t.end, report.end);
  }
  const Trace trace = trace_of(report, 3, "rank 3");
  EXPECT_THAT(trace.rows, testing::ElementsAre("worker 0", "worker 1"));
  EXPECT_EQ(trace.slices.size(), report.times.size());
  EXPECT_THAT(trace_file(std::vector{trace_events(trace)}), HasSubstr("\"potrf\""));
}

TEST(Runtime, EmptyGraphsEndAtOnce) {
  EXPECT_EQ(Runtime(TaskGraph(), [](const Task&, int) {}, {.workers = 2}).run().tasks, 0);
  const CholeskyRule rule(0, 4);
  EXPECT_EQ(Runtime(rule, [](const Task&, int) {}, {.workers = 2}).run().tasks, 0);
}

/// A rule that counts a predecessor which never comes.
class WrongRule final : public TaskRule {
 public:
  std::vector<TileId> tiles() const override { return {tile_a, tile_b}; }
  std::int32_t writes(const TileId&) const override { return 1; }
  Task writer_of(const TileVersion& v) const override { return {Kernel::other, v.tile.row, 0, 0}; }
  TileVersion output(const Task& t) const override { return {{0, t.row, 0}, 1}; }
  void append_accesses(const Task&, std::vector<TileAccess>&) const override {}
  std::int32_t count_predecessors(const Task& t) const override { return t.row == 0 ? 0 : 2; }
  void append_successors(const Task& t, std::vector<Task>& all) const override {
    if (t.row == 0) all.push_back({Kernel::other, 1, 0, 0});
  }
  void append_roots(std::vector<Task>& roots) const override { roots.push_back({}); }
  double cost(const Task&) const override { return 1; }
  double critical_path(const Task&) const override { return 1; }
};

TEST(Runtime, AWrongRuleEndsInAnErrorInsteadOfHanging) {
  const WrongRule rule;
  for (const int workers : {1, 3}) {
    Runtime runtime(rule, [](const Task&, int) {}, {.workers = workers});
    try {
      runtime.run();
      FAIL();
    } catch (const InvalidArgument& e) {
      EXPECT_THAT(e.what(), HasSubstr("1 tasks that no task releases"));
    }
  }
}

TEST(Runtime, RefusesWrongArguments) {
  const TaskGraph graph;
  EXPECT_THROW(Runtime(graph, [](const Task&, int) {}, {.workers = -1}), InvalidArgument);
  EXPECT_THROW(Runtime(graph, nullptr, {.workers = 1}), InvalidArgument);
}

/// Ranks as runtimes of one process: each tile that a task writes is announced to the runtimes whose tasks read it.
template <class Tasks>
void run_on_ranks(const Tasks& tasks, const TaskGraph& graph, int ranks, std::uint64_t seed) {
  const views::TileDistribution tiles(100, 100, 1, views::squarest_grid(ranks));
  const auto owner = [&](const TileId& id) { return tiles.owner(id.tile()); };
  const TaskLists successors = graph.successors();
  std::map<Task, std::int32_t> numbers;
  for (std::int32_t t = 0; t < graph.size(); ++t) numbers[graph.task(t)] = t;
  const auto output = [&](std::int32_t t) { return graph.accesses(t).back().tile; };

  std::vector<std::unique_ptr<Runtime>> runtimes(static_cast<std::size_t>(ranks));
  std::vector<std::atomic<bool>> ended(static_cast<std::size_t>(graph.size()));
  std::atomic<Index> ran{0};
  for (int rank = 0; rank < ranks; ++rank) {
    RuntimeOptions options{.workers = 1 + rank % 2, .schedule_seed = seed};
    options.owns = [&, rank](const TileId& id) { return owner(id) == rank; };
    runtimes[static_cast<std::size_t>(rank)] = std::make_unique<Runtime>(
        tasks,
        [&, rank](const Task& task, int) {
          const std::int32_t t = numbers.at(task);
          EXPECT_EQ(owner(output(t)), rank);
          for (const std::int32_t p : graph.predecessors(t)) EXPECT_TRUE(ended[static_cast<std::size_t>(p)]);
          ended[static_cast<std::size_t>(t)] = true;
          ++ran;
          std::set<int> readers;
          for (const std::int32_t s : successors[t]) readers.insert(owner(output(s)));
          readers.erase(rank);
          for (const int reader : readers)
            runtimes[static_cast<std::size_t>(reader)]->data_arrived({output(t), task.step + 1});
        },
        options);
  }
  std::vector<std::jthread> threads;
  std::atomic<Index> tasks_run{0};
  for (auto& runtime : runtimes) threads.emplace_back([&] { tasks_run += runtime->run().tasks; });
  threads.clear();
  EXPECT_EQ(ran, graph.size());
  EXPECT_EQ(tasks_run, graph.size());
}

TEST(Runtime, TilesOfOtherRanksReleaseTasks) {
  constexpr Index tiles = 6;
  for (const int ranks : {2, 3, 4})
    for (const std::uint64_t seed : {0, 1}) {
      run_on_ranks(CholeskyRule(tiles, 4), cholesky_graph(tiles, 4), ranks, seed);
      run_on_ranks(cholesky_graph(tiles, 4), cholesky_graph(tiles, 4), ranks, seed);
      run_on_ranks(LuRule(tiles, 4), lu_graph(tiles, 4), ranks, seed);
    }
}

TEST(Runtime, RefusesTilesThatDoNotComeFromAnotherRank) {
  const CholeskyRule rule(3, 4);
  const TaskGraph graph = cholesky_graph(3, 4);
  RuntimeOptions options{.workers = 1};
  options.owns = [](const TileId& id) { return id.column > 0; };
  const auto body = [](const Task&, int) {};
  Runtime by_rule(rule, body, options), by_graph(graph, body, options);
  for (Runtime* runtime : {&by_rule, &by_graph}) {
    EXPECT_THROW(runtime->data_arrived({{0, 1, 1}, 1}), InvalidArgument) << "an own tile";
    EXPECT_THROW(runtime->data_arrived({{0, 1, 0}, 2}), InvalidArgument) << "a version that does not exist";
    EXPECT_THROW(runtime->data_arrived({{0, 0, 1}, 1}), InvalidArgument) << "a tile that nobody writes";
    runtime->data_arrived({{0, 1, 0}, 1});
    EXPECT_THROW(runtime->data_arrived({{0, 1, 0}, 1}), InvalidArgument) << "the same again";
    runtime->data_arrived({{0, 2, 0}, 1});
    EXPECT_EQ(runtime->run().tasks, 7) << "2 for tile (1, 1), 2 for tile (2, 1), 3 for tile (2, 2)";
  }
}

TEST(Runtime, FailEndsARunThatWaitsForAnotherRank) {
  const CholeskyRule rule(3, 4);
  RuntimeOptions options{.workers = 2};
  options.owns = [](const TileId& id) { return id.column > 0; };
  Runtime runtime(
      rule, [](const Task&, int) {}, options);
  std::jthread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    runtime.fail(std::make_exception_ptr(PeerFailed("test", 1, "gone")));
  });
  EXPECT_THROW(runtime.run(), PeerFailed);
}

TEST(Runtime, RefusesGraphsThatSeveralRanksCannotRun) {
  RuntimeOptions options{.workers = 1};
  options.owns = [](const TileId& id) { return id == tile_a; };
  const auto body = [](const Task&, int) {};
  TaskGraph two_tiles;
  two_tiles.add({}, std::array{TileAccess{tile_a, Access::write}, TileAccess{tile_b, Access::write}});
  EXPECT_THROW(Runtime(two_tiles, body, options), Unsupported);
  TaskGraph overwritten;  // the owner of b reads a, and the owner of a overwrites it
  overwritten.add({}, std::array{TileAccess{tile_a, Access::write}});
  overwritten.add({}, std::array{TileAccess{tile_a}, TileAccess{tile_b, Access::write}});
  overwritten.add({}, std::array{TileAccess{tile_a, Access::write}});
  EXPECT_THROW(Runtime(overwritten, body, options), Unsupported);
}

}  // namespace test_runtime
}  // namespace aloni::tasks
