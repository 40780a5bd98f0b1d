#pragma once
// The tasks of a rule or a graph as numbers, for task_simulation.cpp: who runs a task, and which tasks of which ranks
// wait for it.
#include <aloni/model/task_simulation.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace aloni::model::detail {

using TaskNumber = std::uint64_t;

class TaskSource {
 public:
  virtual ~TaskSource() = default;
  TaskSource(const TaskSource&) = delete;
  TaskSource& operator=(const TaskSource&) = delete;

  /// Number of tasks of each rank.
  virtual std::vector<Index> counts(int ranks) const = 0;
  virtual void append_roots(std::vector<TaskNumber>& roots) const = 0;
  virtual void append_successors(TaskNumber t, std::vector<TaskNumber>& successors) const = 0;
  virtual std::int32_t count_predecessors(TaskNumber t) const = 0;
  /// Appends the tasks whose tiles other ranks may read.
  virtual void append_outputs(std::vector<TaskNumber>& outputs) const = 0;
  /// Appends the tasks of other ranks than `rank` whose tiles the task reads.
  virtual void append_inputs(TaskNumber t, int rank, std::vector<TaskNumber>& inputs) const = 0;
  /// The rank that runs the task.
  virtual int owner(TaskNumber t) const = 0;
  /// Bytes of the tile that the task writes.
  virtual double bytes(TaskNumber t) const = 0;
  virtual double seconds(TaskNumber t) const = 0;
  virtual double priority(TaskNumber t) const = 0;
  virtual tasks::Task task(TaskNumber t) const = 0;

 protected:
  TaskSource() = default;
};

/// The arguments outlive the result. Throws as simulate_tasks().
std::unique_ptr<TaskSource> make_task_source(const tasks::TaskRule& rule, const TasksOnRanks& run);
std::unique_ptr<TaskSource> make_task_source(const tasks::TaskGraph& graph, const TasksOnRanks& run);

}  // namespace aloni::model::detail
