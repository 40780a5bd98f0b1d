#pragma once
// The time of a task graph on a machine, by a discrete-event walk. Workers take tasks, and tiles travel, by the rules
// of a real run: queues of ready tasks ordered by critical path (tasks/runtime.hpp), tiles on request, with the state
// machine that real ranks use (tasks/tile_requests.hpp).
//
//   const CholeskyRule rule(64, 512);
//   const views::TileDistribution tiles(64 * 512, 64 * 512, 512, views::squarest_grid(16));
//   const TileKernelTimes kernels(machine, 2, 8);                              // tile_kernel.hpp
//   const TasksOnRanks run = factorisation_on(tiles, ElementType::float64, kernels, 8);
//   const SimulatedTasks result = simulate_tasks(rule, run, machine);
//   result.seconds, result.idle_share(0), result.critical_path;
//
// Use simulate.hpp instead for a step of a network.
//
// Links. A rank has one communication thread. It is busy for seconds_per_message for each message that it sends.
// Between ranks that share memory the receiver's thread copies the tile. Other tiles pass the port of their sender one
// after the other, and then the port of their receiver: a rank has a port for messages within its node, and a node has
// one for messages to other nodes. The head of a message takes the latency, its bytes pass each port at
// seconds_per_byte.
//
// Not simulated: a core that the communication thread shares with a worker; kernels that slow down each other beyond
// the measured times; the time in which idle workers wake up.
#include <aloni/model/machine.hpp>
#include <aloni/tasks/runtime.hpp>
#include <aloni/tasks/task_graph.hpp>
#include <aloni/tasks/task_rule.hpp>
#include <aloni/tasks/tile_requests.hpp>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace aloni::model {

/// Where tasks run, and their costs. All functions are pure.
struct TasksOnRanks {
  int ranks = 1;
  int workers = 1;  ///< threads of each rank that run tasks
  /// Rank that owns a tile, and runs the tasks that write it. Empty: rank 0.
  std::function<int(const tasks::TileId&)> owner = {};
  /// Bytes of a tile. Empty: 0.
  std::function<double(const tasks::TileId&)> bytes = {};
  /// Seconds of the kernel of a task. Empty: the cost of the task in the graph.
  std::function<double(const tasks::Task&)> seconds = {};
};

struct TaskSimulationOptions {
  /// Time of the runtime for each task, besides its kernel. The default is that of three dependences on one worker
  /// (bench/bench_tasks.cpp).
  double seconds_per_task = 0.5e-6;
  /// SimulatedTasks has the times of all tasks, and the tasks of the critical path.
  bool timeline = false;
};

struct SimulatedTasks {
  struct Rank {
    double kernels = 0;      ///< seconds of all kernels of this rank
    double end = 0;          ///< of its last task
    Index tasks = 0;         ///< tasks that it ran
    Index steals = 0;        ///< those of them that a worker took from another worker's queue
    double bytes_sent = 0;   ///< of tiles
    double most_copies = 0;  ///< most bytes of copies of other ranks' tiles at one time
    tasks::TileRequests::Counts tiles = {};
  };
  double seconds = 0;        ///< from the start to the end of the last task
  double kernels = 0;        ///< sum of the seconds of all kernels
  double critical_path = 0;  ///< longest sum of seconds of kernels of which each waits for the one before
  Index tasks = 0;
  int workers = 1;
  std::vector<Rank> ranks = {};
  /// With TaskSimulationOptions::timeline: by rank, nanoseconds since the start. For tasks::trace_of().
  std::vector<tasks::RunReport> reports = {};
  /// Likewise: the tasks of the critical path, the first one first.
  std::vector<tasks::Task> critical_tasks = {};

  double bytes_sent() const;
  tasks::TileRequests::Counts tiles() const;
  /// Share of the time in which the workers of a rank run no kernel. @pre 0 ≤ rank < ranks.size()
  double idle_share(int rank) const;
  /// The time of all kernels on all workers without a break, divided by `seconds`.
  double parallel_efficiency() const;
  /// No schedule is faster: the critical path, or all kernels on all workers without a break.
  double least_seconds() const;
};

/// Throws InvalidArgument for wrong numbers of ranks or workers, and for an owner that is no rank. Also for a time or a
/// size that is negative or not finite, and for a rule whose successors and predecessors disagree. Also as
/// description_of(). Throws Unsupported if a task reads a tile of another rank that is not in its last version, as a
/// real run does.
SimulatedTasks simulate_tasks(const tasks::TaskRule& rule, const TasksOnRanks& run, const Machine& machine,
                              const TaskSimulationOptions& options = {});

/// The same for a graph. On several ranks each task writes one tile, and no task overwrites a tile that another rank
/// still reads; other graphs throw Unsupported.
SimulatedTasks simulate_tasks(const tasks::TaskGraph& graph, const TasksOnRanks& run, const Machine& machine,
                              const TaskSimulationOptions& options = {});

}  // namespace aloni::model
