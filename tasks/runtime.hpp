#pragma once
// Runtime: runs the tasks of a graph on threads of this process. A task starts once the tasks before it have ended, and
// the tiles of other ranks that it reads have arrived. There is no barrier.
//
//   Runtime runtime(graph, [&](const Task& task, int worker) { compute(task); }, {.workers = 2});
//   const RunReport report = runtime.run();
//   report.tasks;       // all tasks of the graph
//
// Use Kokkos::parallel_for instead for loops without dependences. A task should take at least some microseconds: the
// runtime itself takes some tenths of one per task (bench/bench_tasks.cpp).
//
// Order. The task with the longest critical path runs first (TaskGraph::critical_paths), among equals the one added
// first. The order of two tasks on one tile is that of the graph, so equal graphs give equal bits on any number of
// threads. Two tasks that only read a tile may run at the same time.
//
// Threads. The calling thread is worker 0. Each worker has a queue of ready tasks, ordered by priority, with a lock of
// its own. A worker takes from its own queue, and steals the best task of another queue when its own is empty. A queue
// without lock (Chase and Lev, "Dynamic circular work-stealing deque", SPAA 2005) returns tasks in the order of their
// insertion. It cannot take the most urgent task. The lock is almost always free and then costs two atomic operations
// per task, as the counter of a dependence does. Idle workers look for work for some tens of microseconds, then sleep.
// Workers other than the caller may run on all processors of the process, even if OMP_PROC_BIND ties the caller to one.
//
// Ranks. With RuntimeOptions::owns the runtime runs the tasks that write tiles of this rank. A task that reads a tile
// of another rank waits for data_arrived().
//
// Memory. With RuntimeOptions::admission a task also waits for admit(), for example until its tiles are in memory
// (tasks/memory_limit.hpp). Tasks then run in the order of their admission.
#include <aloni/core/trace.hpp>
#include <aloni/tasks/task_graph.hpp>
#include <aloni/tasks/task_rule.hpp>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace aloni::tasks {

/// Number of processors on which threads of this process may run, at least 1.
int count_processors();

struct RuntimeOptions {
  int workers = 0;  ///< threads that run tasks, the calling one included; 0: count_processors()
  /// 0: urgent tasks first. Other seeds: a random order that the dependences allow, for tests.
  std::uint64_t schedule_seed = 0;
  bool record_times = false;  ///< fill RunReport::times
  /// Whether this rank owns a tile. Empty: it owns all.
  std::function<bool(const TileId&)> owns = {};
  /// Tasks wait for Runtime::admit(), too. Unless schedule_seed is set, the one that was admitted first runs first.
  bool admission = false;
  /// Called on the thread of each worker before its first task. The result is destroyed on this thread after its last
  /// task. Example: state that makes BLAS use one thread.
  std::function<std::shared_ptr<void>(int worker)> worker_scope = {};
};

/// When a task ran.
struct TaskTime {
  Task task;
  int worker = 0;
  std::int64_t start = 0, end = 0;  ///< nanoseconds of trace_now()
};

struct RunReport {
  struct Worker {
    Index tasks = 0;   ///< tasks that it ran
    Index steals = 0;  ///< those of them that it took from another worker's queue
    Index sleeps = 0;  ///< times it slept for want of work
  };
  Index tasks = 0, steals = 0;      ///< of all workers
  std::int64_t start = 0, end = 0;  ///< nanoseconds of trace_now()
  std::vector<Worker> workers;
  std::vector<TaskTime> times;  ///< in the order of workers, then of starts; only if recorded

  double seconds() const { return static_cast<double>(end - start) * 1e-9; }
};

/// The recorded times as slices, one row for each worker (core/trace.hpp).
Trace trace_of(const RunReport& report, int process, const std::string& name);

class Runtime {
 public:
  /// Runs one task. Workers call it at the same time. @pre it does not wait for another task
  using Body = std::function<void(const Task& task, int worker)>;

  /// @pre options.workers ≥ 0; `graph` or `rule` outlives the runtime.
  /// Throws InvalidArgument. With `owns`, throws Unsupported for a graph in which a task writes several tiles, or waits
  /// for a task of another rank that only reads. Not collective.
  Runtime(const TaskGraph& graph, Body body, RuntimeOptions options = {});
  Runtime(const TaskRule& rule, Body body, RuntimeOptions options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// Runs all tasks of this rank and returns when they have ended. May be called once.
  /// If a task throws, no further task starts; running tasks end; then the first exception is thrown here. The same
  /// holds for the error of fail(). Throws InvalidArgument if tasks remain that nothing releases: the rule is wrong.
  RunReport run();

  /// This version of a tile of another rank is here: releases the tasks that wait for it. Any thread may call it,
  /// before or during run(). Throws InvalidArgument for a version that no task of another rank makes, or that came
  /// before.
  void data_arrived(const TileVersion& version);
  /// This task may run once its dependences have ended. Any thread may call it, before or during run(), once for each
  /// task of this rank. Throws InvalidArgument without RuntimeOptions::admission, and for a task that was admitted and
  /// has not begun.
  void admit(const Task& task);
  /// Ends run() with this error, for example when another rank has failed. Any thread may call it, also after run().
  void fail(std::exception_ptr error);

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace aloni::tasks
