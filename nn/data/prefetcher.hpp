#pragma once
// Makes the next item on a thread while the caller uses the current one: mini-batches during a step.
//
//   Prefetcher<HostBatch<float>> batches([&](std::int64_t k, HostBatch<float>& batch) {
//     if (k == steps) return false;                           // the end
//     read_batch(set, draws, order.of(k), part, batch);
//     return true;
//   });
//   while (const HostBatch<float>* batch = batches.next()) step(*batch);   // valid until the next call of next()
//
// Items are made one after another, in order, into two buffers that are used again. The function runs on the thread of
// the prefetcher only. It uses neither MPI nor Kokkos. The data that it reads must not change while the prefetcher
// lives.
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace aloni::nn {

template <class Item>
class Prefetcher {
 public:
  /// Makes item `k`, counted from 0, into a buffer that holds an older item. Returns false after the last item.
  using Make = std::function<bool(std::int64_t k, Item& item)>;

  /// Starts the thread and the first item. Throws std::system_error if no thread can be started.
  explicit Prefetcher(Make make) : make_(std::move(make)), thread_([this] { run(); }) {}
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  /// Waits for the item that is being made, and starts no other one.
  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  /// Blocks until the next item is made. Null after the last item. The item is valid until the next call.
  /// Rethrows the exception of the function, on the rank on which it was thrown, after all earlier items; again in each
  /// further call.
  const Item* next() {
    std::unique_lock lock(mutex_);
    if (taken_ > released_) {
      released_ = taken_;  // the caller has used it
      changed_.notify_all();
    }
    changed_.wait(lock, [this] { return made_ > taken_ || ended_; });
    if (made_ > taken_) return &buffers_[taken_++ % 2];
    if (error_) std::rethrow_exception(error_);
    return nullptr;
  }

 private:
  void run() {
    for (std::int64_t k = 0;; ++k) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stops_ || k < released_ + 2; });
        if (stops_) return;
      }
      std::exception_ptr error;
      bool made = false;
      try {
        made = make_(k, buffers_[k % 2]);
      } catch (...) {
        error = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      if (made) ++made_;
      ended_ = !made;
      error_ = error;
      changed_.notify_all();
      if (ended_) return;
    }
  }

  const Make make_;
  Item buffers_[2];
  std::mutex mutex_;
  std::condition_variable changed_;
  // Numbers of items: made by the thread, taken by the caller, and no longer used by the caller.
  std::int64_t made_ = 0, taken_ = 0, released_ = 0;
  bool ended_ = false, stops_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses all other members
};

}  // namespace aloni::nn
