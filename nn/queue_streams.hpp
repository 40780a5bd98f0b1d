#pragma once
// Execution space instances as the streams of a StreamPlan (nn/stream_plan.hpp).
//
//   QueueMarks<Exec> marks(plan);                          // once
//   QueueStreams<Exec> streams(queues, marks);             // a queue for each stream
//   run_on_streams(plan, streams, [&](std::size_t action, const Queue<Exec>& queue) { … });
#include <aloni/core/queue.hpp>
#include <aloni/core/queue_mark.hpp>
#include <aloni/nn/stream_plan.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace aloni::nn {

/// The marks of one plan: one for each point for which another stream waits.
template <class Exec>
class QueueMarks {
 public:
  QueueMarks() = default;
  explicit QueueMarks(const StreamPlan& plan) : marks_(static_cast<std::size_t>(plan.end() + 1)) {
    for (const StreamEvent& event : plan.events)
      if (auto& mark = of(event.after); !mark) mark.emplace();
  }

  /// Empty: no stream waits for the point.
  std::optional<QueueMark<Exec>>& of(int point) { return marks_[static_cast<std::size_t>(point - begin_of_step)]; }

 private:
  std::vector<std::optional<QueueMark<Exec>>> marks_;
};

template <class Exec>
class QueueStreams {
 public:
  /// `queues`: of each stream. `marks`: of the plan that will run. @pre both outlive this object
  QueueStreams(std::span<const Queue<Exec>> queues, QueueMarks<Exec>& marks) : queues_(queues), marks_(marks) {}

  template <class F>
  void submit(int stream, const F& f) {
    f(queue(stream));
  }
  void record(int stream, int point) {
    if (auto& mark = marks_.of(point)) mark->set(queue(stream));
  }
  void await(int stream, int point) { marks_.of(point)->await(queue(stream), reason); }

 private:
  const Queue<Exec>& queue(int stream) const { return queues_[static_cast<std::size_t>(stream)]; }

  /// Made before main(): a step allocates nothing.
  static inline const std::string reason = "aloni::nn::Step: the other queue's part is complete";

  std::span<const Queue<Exec>> queues_;
  QueueMarks<Exec>& marks_;
};

}  // namespace aloni::nn
