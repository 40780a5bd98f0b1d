#pragma once
// Streams of a step that record their work and do it later, as a device may: each stream in its own order, and
// everything else in any order that the events allow. See run_on_streams() in nn/stream_plan.hpp.
//
//   LateStreams<Queue<>> streams(queue, 2);
//   streams.submit(compute_stream, [](const Queue<>&) { … });
//   step.execute_on(streams, step.streams(), comm, stopwatch);       // nothing has run yet
//   streams.run(random_order(seed));                                 // now it runs
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace aloni::nn::test {

/// Chooses one of the streams that can go on. They are ascending, and there is at least one.
using StreamChoice = std::function<int(const std::vector<int>&)>;

inline StreamChoice random_order(std::uint64_t seed) {
  return
      [random = std::mt19937_64(seed)](const std::vector<int>& able) mutable { return able[random() % able.size()]; };
}
/// The stream `early` runs whenever it can, and the stream `late` only if no other can. If the events allow any work of
/// `early` before some work of `late`, it runs before.
inline StreamChoice early_and_late(int early, int late) {
  return [=](const std::vector<int>& able) {
    if (std::ranges::find(able, early) != able.end()) return early;
    return able.front() != late || able.size() == 1 ? able.front() : able.back();
  };
}

template <class Queue>
class LateStreams {
 public:
  LateStreams(Queue queue, int streams) : queue_(std::move(queue)), streams_(static_cast<std::size_t>(streams)) {}

  template <class F>
  void submit(int stream, F f) {
    operations(stream).push_back({Kind::work, std::move(f), 0});
  }
  /// As an event of a device: it stands for the last record() before an await(). A point that was never recorded is
  /// reached.
  void record(int stream, int point) {
    operations(stream).push_back({Kind::record, {}, records_});
    events_[point] = records_++;
  }
  void await(int stream, int point) {
    const auto found = events_.find(point);
    if (found != events_.end()) operations(stream).push_back({Kind::await, {}, found->second});
  }

  /// Does all recorded work. An event is recorded before a stream waits for it, so some stream can always go on.
  void run(StreamChoice choose) {
    while (run_one(choose)) {
    }
  }
  /// As a wait of the host: does work until the last event of the point is reached.
  void run_until(int point, StreamChoice choose) {
    pass_events();
    while (!reached_.contains(events_.at(point)) && run_one(choose)) {
    }
  }

 private:
  enum class Kind : std::uint8_t { work, record, await };
  struct Operation {
    Kind kind = Kind::work;
    std::function<void(const Queue&)> work = {};
    std::uint64_t event = 0;
  };

  /// Whether there was any work.
  bool run_one(StreamChoice& choose) {
    pass_events();
    std::vector<int> able;
    for (std::size_t s = 0; s < streams_.size(); ++s)
      if (!streams_[s].empty() && streams_[s].front().kind == Kind::work) able.push_back(static_cast<int>(s));
    if (able.empty()) return false;
    auto& operations = streams_[static_cast<std::size_t>(choose(able))];
    const auto work = std::move(operations.front().work);
    operations.pop_front();
    work(queue_);
    pass_events();
    return true;
  }

  /// Records events, and goes on behind those that are reached, until each stream has work next or has to wait.
  void pass_events() {
    for (bool again = true; again;) {
      again = false;
      for (auto& operations : streams_) {
        while (!operations.empty() && operations.front().kind != Kind::work) {
          const Operation& next = operations.front();
          if (next.kind == Kind::await && !reached_.contains(next.event)) break;
          if (next.kind == Kind::record) reached_.insert(next.event);
          operations.pop_front();
          again = true;
        }
      }
    }
  }

  std::deque<Operation>& operations(int stream) { return streams_.at(static_cast<std::size_t>(stream)); }

  Queue queue_;
  std::vector<std::deque<Operation>> streams_;
  std::map<int, std::uint64_t> events_;  ///< by point: the last one recorded
  std::uint64_t records_ = 0;
  std::set<std::uint64_t> reached_;
};

}  // namespace aloni::nn::test
