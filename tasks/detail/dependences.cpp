#include <aloni/tasks/detail/dependences.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace aloni::tasks::detail {

namespace {

/// A random priority: SplitMix64, by Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA
/// 2014.
double random_priority(std::uint64_t seed, std::uint64_t id) {
  std::uint64_t z = seed * 0x9E3779B97F4A7C15u + id + 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return static_cast<double>((z ^ z >> 31) >> 11);
}

/// Tiles of other ranks that have arrived, each by the task that made it.
class ArrivedTasks {
 public:
  void insert(std::uint64_t id, const TileVersion& version) {
    const std::lock_guard lock(mutex_);
    if (!ids_.insert(id).second)
      throw InvalidArgument("aloni::tasks::Runtime::data_arrived", "version of " + to_string(version.tile),
                            std::to_string(version.version), "a version that has not arrived before");
  }

 private:
  std::mutex mutex_;
  std::unordered_set<std::uint64_t> ids_;
};

[[noreturn]] void refuse_own_tile(const TileVersion& version) {
  throw InvalidArgument("aloni::tasks::Runtime::data_arrived", "tile", to_string(version.tile),
                        "a tile of another rank");
}

bool writes(const TileAccess& a) { return a.access != Access::read; }

class GraphDependences final : public Dependences {
 public:
  GraphDependences(const TaskGraph& graph, const std::function<bool(const TileId&)>& owns, std::uint64_t seed)
      : graph_(graph),
        successors_(graph.successors()),
        local_(static_cast<std::size_t>(graph.size()), true),
        waits_for_(std::make_unique<std::atomic<std::int32_t>[]>(static_cast<std::size_t>(graph.size()))) {
    if (owns) find_local_tasks(owns);
    size_ = std::count(local_.begin(), local_.end(), true);
    if (seed == 0) priorities_ = graph.critical_paths();
    for (std::int32_t t = 0; t < graph.size(); ++t) {
      waits_for_[static_cast<std::size_t>(t)].store(static_cast<std::int32_t>(graph.predecessors(t).size()),
                                                    std::memory_order_relaxed);
      if (seed != 0) priorities_.push_back(random_priority(seed, static_cast<std::uint64_t>(t)));
    }
  }

  Index size() const override { return size_; }
  Task task(std::uint64_t id) const override { return graph_.task(static_cast<std::int32_t>(id)); }

  void append_roots(std::vector<ReadyTask>& ready) override {
    for (std::int32_t t = 0; t < graph_.size(); ++t)
      if (graph_.predecessors(t).empty()) append(t, ready);
  }

  void complete(std::uint64_t id, std::vector<ReadyTask>& ready) override {
    for (const std::int32_t t : successors_[static_cast<std::int32_t>(id)])
      // Acquire: the one that makes a task ready sees what all its predecessors wrote.
      if (waits_for_[static_cast<std::size_t>(t)].fetch_sub(1, std::memory_order_acq_rel) == 1) append(t, ready);
  }

  void arrive(const TileVersion& version, std::vector<ReadyTask>& ready) override {
    const std::int32_t writer = graph_.writer_of(version);
    if (local_[static_cast<std::size_t>(writer)]) refuse_own_tile(version);
    arrived_.insert(static_cast<std::uint64_t>(writer), version);
    complete(static_cast<std::uint64_t>(writer), ready);
  }

 private:
  void append(std::int32_t t, std::vector<ReadyTask>& ready) const {
    const auto at = static_cast<std::size_t>(t);
    if (local_[at]) ready.push_back({priorities_[at], static_cast<std::uint64_t>(t)});
  }

  void find_local_tasks(const std::function<bool(const TileId&)>& owns) {
    constexpr const char* operation = "aloni::tasks::Runtime";
    for (std::int32_t t = 0; t < graph_.size(); ++t) {
      const auto accesses = graph_.accesses(t);
      const auto output = std::find_if(accesses.begin(), accesses.end(), writes);
      if (output == accesses.end() || std::count_if(accesses.begin(), accesses.end(), writes) > 1)
        throw Unsupported(operation, "graph", to_string(graph_.task(t)),
                          "tasks that write one tile each, if several ranks run the graph");
      local_[static_cast<std::size_t>(t)] = owns(output->tile);
    }
    for (std::int32_t t = 0; t < graph_.size(); ++t) {
      if (!local_[static_cast<std::size_t>(t)]) continue;
      for (const std::int32_t p : graph_.predecessors(t)) {
        if (local_[static_cast<std::size_t>(p)]) continue;
        const auto others = graph_.accesses(p), own = graph_.accesses(t);
        const auto output = std::find_if(others.begin(), others.end(), writes);
        if (std::none_of(own.begin(), own.end(), [&](const TileAccess& a) { return a.tile == output->tile; }))
          throw Unsupported(operation, "graph", to_string(graph_.task(t)) + " waits for " + to_string(graph_.task(p)),
                            "no task that overwrites a tile which another rank still reads");
      }
    }
  }

  const TaskGraph& graph_;
  TaskLists successors_;
  std::vector<char> local_;
  std::unique_ptr<std::atomic<std::int32_t>[]> waits_for_;
  std::vector<double> priorities_;
  Index size_ = 0;
  ArrivedTasks arrived_;
};

class RuleDependences final : public Dependences {
 public:
  RuleDependences(const TaskRule& rule, std::function<bool(const TileId&)> owns, std::uint64_t seed)
      : rule_(rule), owns_(std::move(owns)), seed_(seed) {
    for (const TileId& tile : rule.tiles())
      if (!owns_ || owns_(tile)) size_ += rule.writes(tile);
  }

  Index size() const override { return size_; }
  Task task(std::uint64_t id) const override { return Task::from(id); }

  void append_roots(std::vector<ReadyTask>& ready) override {
    std::vector<Task> roots;
    rule_.append_roots(roots);
    for (const Task& root : roots)
      if (is_local(root)) append(root, ready);
  }

  void complete(std::uint64_t id, std::vector<ReadyTask>& ready) override {
    thread_local std::vector<Task> successors;
    successors.clear();
    rule_.append_successors(Task::from(id), successors);
    for (const Task& task : successors)
      if (is_local(task) && count_down(task)) append(task, ready);
  }

  void arrive(const TileVersion& version, std::vector<ReadyTask>& ready) override {
    const std::int32_t last = rule_.writes(version.tile);
    if (version.version < 1 || version.version > last)
      throw InvalidArgument("aloni::tasks::Runtime::data_arrived", "version of " + to_string(version.tile),
                            std::to_string(version.version), "from 1 to " + std::to_string(last));
    if (!owns_ || owns_(version.tile)) refuse_own_tile(version);
    const std::uint64_t writer = rule_.writer_of(version).key();
    arrived_.insert(writer, version);
    complete(writer, ready);
  }

 private:
  /// A part of the table of waiting tasks. With as many as this, two workers rarely meet at one lock.
  struct Part {
    std::mutex mutex;
    std::unordered_map<std::uint64_t, std::int32_t> waits_for;
  };
  static constexpr std::size_t parts = 64;

  bool is_local(const Task& task) const { return !owns_ || owns_(rule_.output(task).tile); }

  void append(const Task& task, std::vector<ReadyTask>& ready) const {
    const std::uint64_t id = task.key();
    ready.push_back({seed_ == 0 ? rule_.critical_path(task) : random_priority(seed_, id), id});
  }

  /// One predecessor has ended; returns whether it was the last one.
  bool count_down(const Task& task) {
    const std::int32_t all = rule_.count_predecessors(task);
    if (all == 1) return true;
    const std::uint64_t id = task.key();
    Part& part = parts_[(id * 0x9E3779B97F4A7C15u) >> 58];
    const std::lock_guard lock(part.mutex);
    const auto found = part.waits_for.try_emplace(id, all).first;
    if (--found->second > 0) return false;
    part.waits_for.erase(found);
    return true;
  }

  const TaskRule& rule_;
  std::function<bool(const TileId&)> owns_;
  std::uint64_t seed_;
  Index size_ = 0;
  std::array<Part, parts> parts_;
  ArrivedTasks arrived_;
};

}  // namespace

std::unique_ptr<Dependences> make_dependences(const TaskGraph& graph, std::function<bool(const TileId&)> owns,
                                              std::uint64_t seed) {
  return std::make_unique<GraphDependences>(graph, owns, seed);
}

std::unique_ptr<Dependences> make_dependences(const TaskRule& rule, std::function<bool(const TileId&)> owns,
                                              std::uint64_t seed) {
  return std::make_unique<RuleDependences>(rule, std::move(owns), seed);
}

}  // namespace aloni::tasks::detail
