#pragma once
// Which tasks of this rank are ready. Two implementations: a counter for each task of a graph, and a table of the tasks
// of a rule that wait for some of their predecessors.
#include <aloni/tasks/runtime.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace aloni::tasks::detail {

/// A task that waits for nothing.
struct ReadyTask {
  double priority = 0;   ///< the largest runs first
  std::uint64_t id = 0;  ///< meaning: that of Dependences; among equal priorities the smallest runs first

  /// Whether `b` runs before `a`.
  friend bool operator<(const ReadyTask& a, const ReadyTask& b) {
    return a.priority != b.priority ? a.priority < b.priority : a.id > b.id;
  }
};

class Dependences {
 public:
  virtual ~Dependences() = default;
  Dependences(const Dependences&) = delete;
  Dependences& operator=(const Dependences&) = delete;

  /// Number of tasks of this rank.
  virtual Index size() const = 0;
  virtual Task task(std::uint64_t id) const = 0;
  /// Appends the tasks without predecessors.
  virtual void append_roots(std::vector<ReadyTask>& ready) = 0;
  /// A task of this rank has ended. Appends the tasks that became ready. Several threads may call it at once.
  virtual void complete(std::uint64_t id, std::vector<ReadyTask>& ready) = 0;
  /// A tile of another rank has arrived. As Runtime::data_arrived.
  virtual void arrive(const TileVersion& version, std::vector<ReadyTask>& ready) = 0;

 protected:
  Dependences() = default;
};

/// @pre as for Runtime. `seed`: RuntimeOptions::schedule_seed.
std::unique_ptr<Dependences> make_dependences(const TaskGraph& graph, std::function<bool(const TileId&)> owns,
                                              std::uint64_t seed);
std::unique_ptr<Dependences> make_dependences(const TaskRule& rule, std::function<bool(const TileId&)> owns,
                                              std::uint64_t seed);

}  // namespace aloni::tasks::detail
