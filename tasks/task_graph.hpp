#pragma once
// TaskGraph: tasks, and which task waits for which. Tasks are added in an order in which they could run one after the
// other. Each names the tiles that it reads and writes. The dependences follow:
//   - a reader waits for the last writer of the tile (read after write);
//   - a writer waits for the last writer (write after write), and for all readers since then (write after read).
//
//   TaskGraph graph;
//   graph.add({Kernel::potrf, 0, 0, 0}, std::array{TileAccess{{0, 0, 0}, Access::read_write}});
//   graph.add({Kernel::trsm, 1, 0, 0}, std::array{TileAccess{{0, 0, 0}}, TileAccess{{0, 1, 0}, Access::read_write}});
//   graph.predecessors(1);      // {0}
//   Runtime(graph, body, {.workers = 2}).run();
//
// A graph is a value: it can be run, drawn, or priced without the tiles. It holds every task. Where a formula gives the
// successors of a task, a TaskRule (tasks/task_rule.hpp) needs no memory for tasks that wait for nothing yet.
// Pure; nothing here is collective.
#include <aloni/tasks/task.hpp>

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace aloni::tasks {

/// For each task a list of tasks, in one array.
struct TaskLists {
  std::vector<Index> first = {0};  ///< list t is members[first[t], first[t + 1])
  std::vector<std::int32_t> members;

  std::span<const std::int32_t> operator[](std::int32_t t) const {
    const auto at = static_cast<std::size_t>(t);
    return std::span(members).subspan(static_cast<std::size_t>(first[at]),
                                      static_cast<std::size_t>(first[at + 1] - first[at]));
  }
};

class TaskGraph {
 public:
  /// Appends a task and returns its number, counted from 0. `cost`: floating-point operations, or any unit that is
  /// proportional to time. @pre each tile occurs once in `accesses`; coordinates of `task` as for Task::key; cost ≥ 0.
  /// Throws InvalidArgument; the graph is then unchanged.
  std::int32_t add(const Task& task, std::span<const TileAccess> accesses, double cost = 1);

  std::int32_t size() const { return static_cast<std::int32_t>(tasks_.size()); }
  const Task& task(std::int32_t t) const { return tasks_[static_cast<std::size_t>(t)]; }
  double cost(std::int32_t t) const { return costs_[static_cast<std::size_t>(t)]; }
  std::span<const TileAccess> accesses(std::int32_t t) const;
  /// The tasks for which t waits, ascending, each once. All are below t.
  std::span<const std::int32_t> predecessors(std::int32_t t) const { return predecessors_[t]; }

  /// The tasks that wait for each task, ascending.
  TaskLists successors() const;
  /// For each task the cost of the most expensive path that begins with it: the longer, the earlier it should run.
  std::vector<double> critical_paths() const;
  /// Number of tasks that write the tile.
  std::int32_t writes(const TileId& tile) const;
  /// The task that makes this version. Throws InvalidArgument if no task does.
  std::int32_t writer_of(const TileVersion& version) const;

 private:
  struct TileState {
    std::vector<std::int32_t> writers;
    std::vector<std::int32_t> readers;  ///< since the last writer
  };

  std::vector<Task> tasks_;
  std::vector<double> costs_;
  std::vector<Index> first_access_ = {0};
  std::vector<TileAccess> accesses_;
  TaskLists predecessors_;
  std::unordered_map<TileId, TileState> tiles_;
};

}  // namespace aloni::tasks
