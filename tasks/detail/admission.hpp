#pragma once
// The tasks that wait for their dependences or for their admission (Runtime::admit), whichever comes last.
#include <aloni/core/error.hpp>
#include <aloni/tasks/detail/dependences.hpp>

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace aloni::tasks::detail {

/// All functions may be called by several threads at once.
class Admission {
 public:
  /// The dependences of the task have ended. Returns whether it was admitted before. `in_order`: its priority becomes
  /// that of its place in the order of admissions.
  bool pass(const Task& task, ReadyTask& ready, bool in_order) {
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = waiting_.try_emplace(task.key(), Entry{.ready = ready, .in_order = in_order});
    if (is_new) return false;
    if (in_order) ready.priority = at->second.ready.priority;
    waiting_.erase(at);
    return true;
  }

  /// The task, if its dependences have ended. Throws InvalidArgument for the second call for a waiting task.
  std::optional<ReadyTask> admit(const Task& task) {
    const std::lock_guard lock(mutex_);
    const double priority = -static_cast<double>(admitted_);
    const auto [at, is_new] =
        waiting_.try_emplace(task.key(), Entry{.ready = ReadyTask{.priority = priority}, .admitted = true});
    if (!is_new && at->second.admitted)
      throw InvalidArgument("aloni::tasks::Runtime::admit", "task", to_string(task), "a task that was not admitted");
    ++admitted_;
    if (is_new) return std::nullopt;
    std::optional<ReadyTask> ready = at->second.ready;
    if (at->second.in_order) ready->priority = priority;
    waiting_.erase(at);
    return ready;
  }

 private:
  struct Entry {
    ReadyTask ready;
    bool in_order = false, admitted = false;
  };

  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Entry> waiting_;  // by Task::key(), guarded by mutex_
  std::int64_t admitted_ = 0;                         // guarded by mutex_
};

}  // namespace aloni::tasks::detail
