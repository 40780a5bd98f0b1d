#include <aloni/model/detail/task_source.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <string>

namespace aloni::model::detail {

namespace {

constexpr const char* simulate_tasks_name = "aloni::model::simulate_tasks";

int owner_of(const TasksOnRanks& run, const tasks::TileId& tile) {
  const int owner = run.owner ? run.owner(tile) : 0;
  if (owner < 0 || owner >= run.ranks) {
    throw InvalidArgument(simulate_tasks_name, "owner of " + to_string(tile), std::to_string(owner),
                          "a rank from 0 to " + std::to_string(run.ranks - 1));
  }
  return owner;
}

double bytes_of(const TasksOnRanks& run, const tasks::TileId& tile) {
  const double bytes = run.bytes ? run.bytes(tile) : 0;
  if (bytes >= 0 && std::isfinite(bytes)) return bytes;
  throw InvalidArgument(simulate_tasks_name, "bytes of " + to_string(tile), std::to_string(bytes), "0 or more");
}

double seconds_of(const TasksOnRanks& run, const tasks::Task& task, double cost) {
  const double seconds = run.seconds ? run.seconds(task) : cost;
  if (seconds >= 0 && std::isfinite(seconds)) return seconds;
  throw InvalidArgument(simulate_tasks_name, "seconds of " + to_string(task), std::to_string(seconds), "0 or more");
}

bool writes(const tasks::TileAccess& a) { return a.access != tasks::Access::read; }

class RuleSource final : public TaskSource {
 public:
  RuleSource(const tasks::TaskRule& rule, const TasksOnRanks& run) : rule_(rule), run_(run) {}

  std::vector<Index> counts(int ranks) const override {
    std::vector<Index> counts(static_cast<std::size_t>(ranks));
    for (const tasks::TileId& tile : rule_.tiles())
      counts[static_cast<std::size_t>(owner_of(run_, tile))] += rule_.writes(tile);
    return counts;
  }
  void append_roots(std::vector<TaskNumber>& roots) const override {
    std::vector<tasks::Task> tasks;
    rule_.append_roots(tasks);
    for (const tasks::Task& t : tasks) roots.push_back(t.key());
  }
  void append_successors(TaskNumber t, std::vector<TaskNumber>& successors) const override {
    found_.clear();
    rule_.append_successors(task(t), found_);
    for (const tasks::Task& s : found_) successors.push_back(s.key());
  }
  std::int32_t count_predecessors(TaskNumber t) const override { return rule_.count_predecessors(task(t)); }
  void append_outputs(std::vector<TaskNumber>& outputs) const override {
    for (const tasks::TileId& tile : rule_.tiles())
      if (rule_.writes(tile) > 0) outputs.push_back(last_writer(tile));
  }
  void append_inputs(TaskNumber t, int rank, std::vector<TaskNumber>& inputs) const override {
    accesses_.clear();
    rule_.append_accesses(task(t), accesses_);
    for (const tasks::TileAccess& a : accesses_)
      if (owner_of(run_, a.tile) != rank) inputs.push_back(last_writer(a.tile));
  }
  int owner(TaskNumber t) const override { return owner_of(run_, output(t)); }
  double bytes(TaskNumber t) const override { return bytes_of(run_, output(t)); }
  double seconds(TaskNumber t) const override {
    return seconds_of(run_, task(t), run_.seconds ? 0 : rule_.cost(task(t)));
  }
  double priority(TaskNumber t) const override { return rule_.critical_path(task(t)); }
  tasks::Task task(TaskNumber t) const override { return tasks::Task::from(t); }

 private:
  tasks::TileId output(TaskNumber t) const { return rule_.output(task(t)).tile; }
  TaskNumber last_writer(const tasks::TileId& tile) const { return rule_.writer_of({tile, rule_.writes(tile)}).key(); }

  const tasks::TaskRule& rule_;
  const TasksOnRanks& run_;
  mutable std::vector<tasks::Task> found_;
  mutable std::vector<tasks::TileAccess> accesses_;
};

class GraphSource final : public TaskSource {
 public:
  GraphSource(const tasks::TaskGraph& graph, const TasksOnRanks& run)
      : graph_(graph), run_(run), successors_(graph.successors()), priorities_(graph.critical_paths()) {
    for (std::int32_t t = 0; t < graph.size(); ++t) owners_.push_back(run.ranks == 1 ? 0 : find_owner(t));
    if (run.ranks > 1) check_overwriting();
  }

  std::vector<Index> counts(int ranks) const override {
    std::vector<Index> counts(static_cast<std::size_t>(ranks));
    for (const int owner : owners_) ++counts[static_cast<std::size_t>(owner)];
    return counts;
  }
  void append_roots(std::vector<TaskNumber>& roots) const override {
    for (std::int32_t t = 0; t < graph_.size(); ++t)
      if (graph_.predecessors(t).empty()) roots.push_back(static_cast<TaskNumber>(t));
  }
  void append_successors(TaskNumber t, std::vector<TaskNumber>& successors) const override {
    for (const std::int32_t s : successors_[number(t)]) successors.push_back(static_cast<TaskNumber>(s));
  }
  std::int32_t count_predecessors(TaskNumber t) const override {
    return static_cast<std::int32_t>(graph_.predecessors(number(t)).size());
  }
  void append_outputs(std::vector<TaskNumber>& outputs) const override {
    for (std::int32_t t = 0; t < graph_.size(); ++t) outputs.push_back(static_cast<TaskNumber>(t));
  }
  void append_inputs(TaskNumber t, int rank, std::vector<TaskNumber>& inputs) const override {
    for (const std::int32_t p : graph_.predecessors(number(t)))
      if (owners_[static_cast<std::size_t>(p)] != rank) inputs.push_back(static_cast<TaskNumber>(p));
  }
  int owner(TaskNumber t) const override { return owners_[static_cast<std::size_t>(t)]; }
  double bytes(TaskNumber t) const override { return bytes_of(run_, output(number(t))); }
  double seconds(TaskNumber t) const override { return seconds_of(run_, task(t), graph_.cost(number(t))); }
  double priority(TaskNumber t) const override { return priorities_[static_cast<std::size_t>(t)]; }
  tasks::Task task(TaskNumber t) const override { return graph_.task(number(t)); }

 private:
  static std::int32_t number(TaskNumber t) { return static_cast<std::int32_t>(t); }

  tasks::TileId output(std::int32_t t) const {
    const auto accesses = graph_.accesses(t);
    return std::ranges::find_if(accesses, writes)->tile;
  }
  int find_owner(std::int32_t t) const {
    if (std::ranges::count_if(graph_.accesses(t), writes) != 1) {
      throw Unsupported(simulate_tasks_name, "graph", to_string(graph_.task(t)),
                        "tasks that write one tile each, if several ranks run the graph");
    }
    return owner_of(run_, output(t));
  }
  void check_overwriting() const {
    for (std::int32_t t = 0; t < graph_.size(); ++t) {
      for (const std::int32_t p : graph_.predecessors(t)) {
        if (owners_[static_cast<std::size_t>(p)] == owners_[static_cast<std::size_t>(t)]) continue;
        const auto reads = graph_.accesses(t);
        const tasks::TileId tile = output(p);
        if (std::ranges::any_of(reads, [&](const tasks::TileAccess& a) { return a.tile == tile; })) continue;
        throw Unsupported(simulate_tasks_name, "graph",
                          to_string(graph_.task(t)) + " waits for " + to_string(graph_.task(p)),
                          "no task that overwrites a tile which another rank still reads");
      }
    }
  }

  const tasks::TaskGraph& graph_;
  const TasksOnRanks& run_;
  tasks::TaskLists successors_;
  std::vector<double> priorities_;
  std::vector<int> owners_;
};

}  // namespace

std::unique_ptr<TaskSource> make_task_source(const tasks::TaskRule& rule, const TasksOnRanks& run) {
  return std::make_unique<RuleSource>(rule, run);
}

std::unique_ptr<TaskSource> make_task_source(const tasks::TaskGraph& graph, const TasksOnRanks& run) {
  return std::make_unique<GraphSource>(graph, run);
}

}  // namespace aloni::model::detail
