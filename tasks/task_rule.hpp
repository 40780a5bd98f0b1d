#pragma once
// TaskRule: a task graph as formulas. It gives the successors of a task and the number of its predecessors, so the
// graph is never in memory: a run remembers only the tasks that wait for some, but not all, of their predecessors.
// Each task writes one tile, and waits for tasks that wrote the tiles that it reads or writes. No task waits for a
// reader: graphs with such dependences need a TaskGraph.
//
// Source of the idea: Bosilca, Bouteiller, Danalis, Herault, Lemarinier and Dongarra, "DAGuE: A generic distributed DAG
// engine for high performance computing", Parallel Computing 38 (2012), section 4.
#include <aloni/tasks/task.hpp>

#include <vector>

namespace aloni::tasks {

/// All functions are pure and may be called by several threads at once.
class TaskRule {
 public:
  virtual ~TaskRule() = default;

  /// All tiles that tasks write, each once.
  virtual std::vector<TileId> tiles() const = 0;
  /// Number of tasks that write the tile.
  virtual std::int32_t writes(const TileId& tile) const = 0;
  /// The task that makes this version. @pre 1 ≤ version ≤ writes(tile)
  virtual Task writer_of(const TileVersion& version) const = 0;
  /// The version that the task makes.
  virtual TileVersion output(const Task& task) const = 0;
  /// Appends the tiles that the task reads and writes.
  virtual void append_accesses(const Task& task, std::vector<TileAccess>& accesses) const = 0;

  virtual std::int32_t count_predecessors(const Task& task) const = 0;
  /// Appends the tasks that wait for `task`.
  virtual void append_successors(const Task& task, std::vector<Task>& successors) const = 0;
  /// Appends the tasks without predecessors.
  virtual void append_roots(std::vector<Task>& roots) const = 0;

  /// Whether tasks read finished tiles of tile rows below their own, as in a backward substitution; otherwise of tile
  /// rows above or of their own. Block orders then go from the bottom up (task_order.hpp).
  virtual bool is_bottom_up() const { return false; }

  /// Cost of the task with full tiles, in floating-point operations.
  virtual double cost(const Task& task) const = 0;
  /// Cost of the most expensive path that begins with the task; as TaskGraph::critical_paths().
  virtual double critical_path(const Task& task) const = 0;

 protected:
  TaskRule() = default;
  TaskRule(const TaskRule&) = default;
  TaskRule& operator=(const TaskRule&) = default;
};

}  // namespace aloni::tasks
