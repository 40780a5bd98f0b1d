#pragma once
// The ready tasks of one worker, the most urgent first. Its worker and thieves take from it.
#include <aloni/tasks/detail/dependences.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

namespace aloni::tasks::detail {

class ReadyQueue {
 public:
  /// Whether there was no task a moment ago. Takes no lock.
  bool empty() const { return size_.load() == 0; }

  void push(const std::vector<ReadyTask>& tasks) {
    const std::lock_guard lock(mutex_);
    insert(tasks);
  }

  /// The most urgent task, or nothing.
  std::optional<ReadyTask> pop() {
    if (empty()) return std::nullopt;
    const std::lock_guard lock(mutex_);
    return remove();
  }

  /// Inserts the tasks and removes the most urgent of all, in one critical section.
  std::optional<ReadyTask> push_pop(std::vector<ReadyTask>& tasks) {
    if (tasks.empty()) return pop();
    const std::lock_guard lock(mutex_);
    if (tasks.size() == 1 && (heap_.empty() || heap_.front() < tasks.front())) return tasks.front();
    insert(tasks);
    return remove();
  }

 private:
  void insert(const std::vector<ReadyTask>& tasks) {
    for (const ReadyTask& task : tasks) {
      heap_.push_back(task);
      std::push_heap(heap_.begin(), heap_.end());
    }
    // Sequentially consistent: a worker that goes to sleep reads it after it has announced its sleep (runtime.cpp).
    size_.store(heap_.size());
  }
  std::optional<ReadyTask> remove() {
    if (heap_.empty()) return std::nullopt;
    std::pop_heap(heap_.begin(), heap_.end());
    const ReadyTask task = heap_.back();
    heap_.pop_back();
    size_.store(heap_.size(), std::memory_order_release);
    return task;
  }

  std::mutex mutex_;
  std::vector<ReadyTask> heap_;
  std::atomic<std::size_t> size_{0};  ///< of heap_
};

}  // namespace aloni::tasks::detail
