#include <aloni/tasks/task_graph.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <limits>

namespace aloni::tasks {

std::int32_t TaskGraph::add(const Task& task, std::span<const TileAccess> accesses, double cost) {
  constexpr const char* operation = "aloni::tasks::TaskGraph::add";
  const auto in_range = [](std::int32_t c) { return c >= 0 && c <= max_task_coordinate; };
  if (!in_range(task.row) || !in_range(task.column) || !in_range(task.step))
    throw InvalidArgument(operation, "task", to_string(task),
                          "coordinates from 0 to " + std::to_string(max_task_coordinate));
  if (!(cost >= 0)) throw InvalidArgument(operation, "cost", std::to_string(cost), "a number, at least 0");
  for (std::size_t i = 0; i < accesses.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (accesses[i].tile == accesses[j].tile)
        throw InvalidArgument(operation, "accesses of " + to_string(task), to_string(accesses[i].tile),
                              "each tile once; use Access::read_write");
  if (size() == std::numeric_limits<std::int32_t>::max())
    throw InvalidArgument(operation, "number of tasks", std::to_string(size()), "fewer; use a TaskRule");

  const std::int32_t t = size();
  const auto begin = predecessors_.members.size();
  for (const auto& [id, access] : accesses) {
    TileState& tile = tiles_[id];
    if (!tile.writers.empty()) predecessors_.members.push_back(tile.writers.back());
    if (access == Access::read) {
      tile.readers.push_back(t);
    } else {
      predecessors_.members.insert(predecessors_.members.end(), tile.readers.begin(), tile.readers.end());
      tile.readers.clear();
      tile.writers.push_back(t);
    }
  }
  auto& members = predecessors_.members;
  std::sort(members.begin() + static_cast<std::ptrdiff_t>(begin), members.end());
  members.erase(std::unique(members.begin() + static_cast<std::ptrdiff_t>(begin), members.end()), members.end());
  predecessors_.first.push_back(static_cast<Index>(members.size()));
  tasks_.push_back(task);
  costs_.push_back(cost);
  accesses_.insert(accesses_.end(), accesses.begin(), accesses.end());
  first_access_.push_back(static_cast<Index>(accesses_.size()));
  return t;
}

std::span<const TileAccess> TaskGraph::accesses(std::int32_t t) const {
  const auto first = static_cast<std::size_t>(first_access_[static_cast<std::size_t>(t)]);
  return std::span(accesses_).subspan(first,
                                      static_cast<std::size_t>(first_access_[static_cast<std::size_t>(t) + 1]) - first);
}

TaskLists TaskGraph::successors() const {
  TaskLists lists;
  lists.first.assign(static_cast<std::size_t>(size()) + 1, 0);
  for (const std::int32_t p : predecessors_.members) ++lists.first[static_cast<std::size_t>(p) + 1];
  for (std::size_t t = 1; t < lists.first.size(); ++t) lists.first[t] += lists.first[t - 1];
  std::vector<Index> next(lists.first.begin(), lists.first.end() - 1);
  lists.members.resize(predecessors_.members.size());
  for (std::int32_t t = 0; t < size(); ++t)
    for (const std::int32_t p : predecessors(t))
      lists.members[static_cast<std::size_t>(next[static_cast<std::size_t>(p)]++)] = t;
  return lists;
}

std::vector<double> TaskGraph::critical_paths() const {
  std::vector<double> paths = costs_;
  // Predecessors have lower numbers: when t is reached, its own path is known.
  for (std::int32_t t = size() - 1; t >= 0; --t)
    for (const std::int32_t p : predecessors(t)) {
      double& path = paths[static_cast<std::size_t>(p)];
      path = std::max(path, cost(p) + paths[static_cast<std::size_t>(t)]);
    }
  return paths;
}

std::int32_t TaskGraph::writes(const TileId& tile) const {
  const auto found = tiles_.find(tile);
  return found == tiles_.end() ? 0 : static_cast<std::int32_t>(found->second.writers.size());
}

std::int32_t TaskGraph::writer_of(const TileVersion& version) const {
  const std::int32_t last = writes(version.tile);
  if (version.version < 1 || version.version > last)
    throw InvalidArgument("aloni::tasks::TaskGraph::writer_of", "version of " + to_string(version.tile),
                          std::to_string(version.version), "from 1 to " + std::to_string(last));
  return tiles_.at(version.tile).writers[static_cast<std::size_t>(version.version) - 1];
}

}  // namespace aloni::tasks
