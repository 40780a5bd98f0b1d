#pragma once
// A step graph with executable nodes. Layers add their nodes once; the step then runs any number of times.
//
//   Step<Exec> step;
//   step.transfer("halo", {reads(x, owned), writes(x, ghosts)}, halo);
//   step.kernel("interior", {reads(x, owned), writes(y, inner)}, [=](const Exec& exec) { … });
//   step.kernel("boundary", {reads(x, needed), writes(y, outer)}, [=](const Exec& exec) { … });
//   step.prepare();
//   step.execute(queue, comm, stopwatch);                    // one queue for everything, or
//   step.execute(queues, comm, stopwatch);                   // a queue for each stream: communication beside kernels
//
// The second form runs the step's StreamPlan (nn/stream_plan.hpp). execute_on() runs any plan on any streams. With a
// recorder it repeats recordings of the segments between communication (nn/step_recorder.hpp).
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/profiling.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/core/stopwatch.hpp>
#include <aloni/halo/transfer.hpp>
#include <aloni/nn/queue_streams.hpp>
#include <aloni/nn/step_graph.hpp>
#include <aloni/nn/step_recorder.hpp>
#include <aloni/nn/step_segments.hpp>
#include <aloni/nn/step_times.hpp>
#include <aloni/nn/stream_plan.hpp>
#include <aloni/nn/tensor.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn {

template <class T, class Mem>
Access reads(const Tensor<T, Mem>& t, const views::Box& box) {
  return {t.storage.data(), box, false};
}
template <class T, class Mem>
Access writes(const Tensor<T, Mem>& t, const views::Box& box) {
  return {t.storage.data(), box, true};
}
/// The part that this rank owns.
template <class T, class Mem>
Access reads(const Tensor<T, Mem>& t) {
  return reads(t, t.owned);
}
template <class T, class Mem>
Access writes(const Tensor<T, Mem>& t) {
  return writes(t, t.owned);
}

/// A whole View.
template <class View>
requires Kokkos::is_view_v<View> Access reads(const View& v) {
  return {v.data(), {{0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}}, false};
}
template <class View>
requires Kokkos::is_view_v<View> Access writes(const View& v) {
  return {v.data(), {{0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}}, true};
}

/// State that a layer keeps between its own kernels, named by an object.
template <class Object>
requires(!Kokkos::is_view_v<Object>) Access reads(const Object& owner) {
  return {&owner, {{0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}}, false};
}
template <class Object>
requires(!Kokkos::is_view_v<Object>) Access writes(const Object& owner) {
  return {&owner, {{0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}}, true};
}

template <class Exec>
class Step {
 public:
  Step() = default;
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  using Kernel = std::function<void(const Exec&)>;
  using Action = std::function<void(const Queue<Exec>&)>;

  /// Prefix of the labels of all nodes added from now on: "aloni::nn::forward conv1".
  void set_scope(std::string scope) { scope_ = std::move(scope); }
  const std::string& scope() const { return scope_; }

  /// `run` submits kernels. It neither fences nor communicates.
  void kernel(const std::string& what, std::vector<Access> accesses, Kernel run) {
    kernel({labelled(what), NodeKind::kernel, std::move(accesses)}, std::move(run));
  }
  /// A node with its whole label, regardless of set_scope().
  void kernel(StepNode node, Kernel run) {
    add(std::move(node), {[run = std::move(run)](const Queue<Exec>& queue) { run(queue.space()); }, {}});
  }
  /// `adjoint` runs the transposed transfer. The accesses are those of the direction that runs.
  void transfer(const std::string& what, std::vector<Access> accesses, halo::Transfer<Exec> moved,
                bool adjoint = false) {
    transfer({labelled(what), NodeKind::transfer, std::move(accesses)}, std::move(moved), adjoint);
  }
  void transfer(StepNode node, halo::Transfer<Exec> moved, bool adjoint) {
    const std::size_t slot = pending_.size();
    pending_.emplace_back();
    add(std::move(node), {[this, slot, moved, adjoint](const Queue<Exec>& queue) {
                            pending_[slot] = adjoint ? moved.start_adjoint(queue) : moved.start(queue);
                          },
                          [this, slot](const Queue<Exec>&) { pending_[slot].finish(); }});
  }
  /// `start` returns at once. `finish` completes the operation that `start` began.
  void collective(const std::string& what, std::vector<Access> accesses, Action start, Action finish) {
    collective({labelled(what), NodeKind::collective, std::move(accesses)}, std::move(start), std::move(finish));
  }
  void collective(StepNode node, Action start, Action finish) {
    add(std::move(node), {std::move(start), std::move(finish)});
  }

  /// With a recorder execute() with several queues runs the segments of segments(). Call it before prepare().
  void set_recorder(std::unique_ptr<StepRecorder<Exec>> recorder, const SegmentOptions& options = {}) {
    recorder_ = std::move(recorder);
    segment_options_ = options;
  }

  /// Computes the order of the actions, and the events between the streams. Call it after the last node and before the
  /// first execution. `streams`: of execute() with several queues, as streams_of() says.
  void prepare(const ScheduleOptions& options = {}, int streams = communication_stream + 1) {
    actions_ = schedule(graph_, options);
    streams_ = plan_streams(graph_, actions_, streams_of(graph_, actions_, streams));
    marks_ = QueueMarks<Exec>(streams_);
    if (!recorder_) return;
    segments_ = split_into_segments(graph_, actions_, streams_.stream_of, segment_options_);
    piece_marks_ = QueueMarks<Exec>(segments_.outer);
    segment_labels_.clear();
    for (std::size_t k = 0; k < segments_.segments.size(); ++k)
      segment_labels_.push_back("aloni::nn::segment " + std::to_string(k));
  }

  const StepGraph& graph() const { return graph_; }
  const std::vector<StepAction>& actions() const { return actions_; }
  /// Of execute() with several queues.
  const StreamPlan& streams() const { return streams_; }
  /// Of execute() with several queues and a recorder; without one it is empty.
  const SegmentedPlan& segments() const { return segments_; }
  const StepRecorder<Exec>* recorder() const { return recorder_.get(); }

  /// Runs the step after all earlier work on `queue`. Kernels submitted to `queue` afterwards see all results.
  /// Communication of the ranks makes progress between kernels. Allocates nothing.
  /// Collective over the ranks that take part in the step's communication. Throws PeerFailed, CommunicationError.
  void execute(const Queue<Exec>& queue, const comm::Communicator& comm, Stopwatch& stopwatch,
               StepTimes* times = nullptr) {
    for (std::size_t a = 0; a < actions_.size(); ++a) act(a, queue, comm, stopwatch, times);
  }
  /// As above, with a queue for each stream of streams(). Actions on different streams wait for each other as the graph
  /// says. The first queue has the role of `queue` above. If all queues are one, the actions run in order.
  /// `times`: gets the time of each action, by StepNode::plan_node; null: nothing is recorded. On devices each action
  /// then waits for its queue, so nothing is recorded. @pre times->begin() was called with the nodes of the plan
  /// `one_by_one`: submits all kernels in spite of the recorder.
  /// Throws InvalidArgument for fewer queues than streams.
  void execute(std::span<const Queue<Exec>> queues, const comm::Communicator& comm, Stopwatch& stopwatch,
               StepTimes* times = nullptr, bool one_by_one = false) {
    if (static_cast<int>(queues.size()) < streams_.streams || queues.empty()) {
      throw InvalidArgument("aloni::nn::Step::execute", "queues", std::to_string(queues.size()),
                            "a queue for each of the " + std::to_string(streams_.streams) + " streams");
    }
    if (recorder_ && !times && !one_by_one) {
      QueueStreams<Exec> streams(queues, piece_marks_);
      return execute_pieces_on(streams, queues, comm, stopwatch);
    }
    const auto first = [&](const Queue<Exec>& queue) { return queue.space() == queues.front().space(); };
    if (std::ranges::all_of(queues, first)) return execute(queues.front(), comm, stopwatch, times);
    QueueStreams<Exec> streams(queues, marks_);
    execute_on(streams, streams_, comm, stopwatch, times);
  }
  /// Submits the step to `streams` (see run_on_streams()) by a plan for its actions(). Streams may run actions after
  /// this call, in any order that the events of the plan allow. Until then this step, `comm`, `stopwatch` and `times`
  /// must exist.
  template <class Streams>
  void execute_on(Streams& streams, const StreamPlan& plan, const comm::Communicator& comm, Stopwatch& stopwatch,
                  StepTimes* times = nullptr) {
    run_on_streams(plan, streams, [this, &comm, &stopwatch, times](std::size_t a, const Queue<Exec>& queue) {
      act(a, queue, comm, stopwatch, times);
    });
  }
  /// The same by segments().outer. A recorded segment is one piece of work of its origin, which the recorder submits to
  /// `queues`. @pre a recorder
  template <class Streams>
  void execute_pieces_on(Streams& streams, std::span<const Queue<Exec>> queues, const comm::Communicator& comm,
                         Stopwatch& stopwatch) {
    run_on_streams(segments_.outer, streams,
                   [this, queues, &comm, &stopwatch](std::size_t p, const Queue<Exec>& queue) {
                     const StepPiece& piece = segments_.pieces[p];
                     if (piece.action >= 0)
                       return act(static_cast<std::size_t>(piece.action), queue, comm, stopwatch, nullptr);
                     run_segment(static_cast<std::size_t>(piece.segment), queues, comm, stopwatch);
                   });
  }

 private:
  struct Work {
    Action start, finish;
  };

  /// Runs an action: submits its kernels to the queue, sends, or waits for messages.
  void act(std::size_t a, const Queue<Exec>& queue, const comm::Communicator& comm, Stopwatch& stopwatch,
           StepTimes* times) {
    const StepAction& action = actions_[a];
    const auto i = static_cast<std::size_t>(action.node);
    const StepNode& node = graph_.nodes[i];
    const ScopedRegion region(node.label);
    const auto timing = stopwatch.measure(phase(node.kind));
    const std::int64_t start = times ? trace_now() : 0;
    if (action.kind == StepActionKind::finish) {
      work_[i].finish(queue);
    } else {
      work_[i].start(queue);
    }
    if (times) times->add(StepTimes::Action{node.plan_node, action.kind, start, completed(queue)});
    if (action.kind == StepActionKind::run) {
      const std::int64_t kernel_end = times ? trace_now() : 0;
      const bool worked = comm.progress();
      if (worked && times)
        times->add(StepTimes::Span{StepTimes::Row::communication, "progress", kernel_end, trace_now()});
    }
  }

  void run_segment(std::size_t number, std::span<const Queue<Exec>> queues, const comm::Communicator& comm,
                   Stopwatch& stopwatch) {
    const StepSegment& segment = segments_.segments[number];
    const ScopedRegion region(segment_labels_[number]);
    const auto timing = stopwatch.measure(Stopwatch::Phase::compute);
    const auto submit = [this, &segment](std::size_t a, const Queue<Exec>& queue) {
      const auto i = static_cast<std::size_t>(actions_[static_cast<std::size_t>(segment.first) + a].node);
      const ScopedRegion node(graph_.nodes[i].label);
      work_[i].start(queue);
    };
    recorder_->run(number, segment, queues, submit);
    comm.progress();  // not within the segment: messages of devices must not come into a recording
  }

  static constexpr Stopwatch::Phase phase(NodeKind kind) {
    switch (kind) {
      case NodeKind::kernel:
        return Stopwatch::Phase::compute;
      case NodeKind::transfer:
        return Stopwatch::Phase::halo;
      case NodeKind::collective:
        break;
    }
    return Stopwatch::Phase::collective;
  }

  /// The time at which all work of the queue is complete.
  static std::int64_t completed(const Queue<Exec>& queue) {
    if constexpr (!Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible)
      queue.fence("aloni::nn::Step: the time of a node ends");
    return trace_now();
  }

  std::string labelled(const std::string& what) const { return what.empty() ? scope_ : scope_ + ": " + what; }
  void add(StepNode node, Work work) {
    graph_.nodes.push_back(std::move(node));
    work_.push_back(std::move(work));
  }

  std::string scope_ = "aloni::nn::step";
  StepGraph graph_;
  std::vector<Work> work_;
  std::vector<StepAction> actions_;
  StreamPlan streams_;
  QueueMarks<Exec> marks_;
  std::unique_ptr<StepRecorder<Exec>> recorder_;
  SegmentOptions segment_options_;
  SegmentedPlan segments_;
  QueueMarks<Exec> piece_marks_;
  std::vector<std::string> segment_labels_;
  std::vector<halo::Pending> pending_;
};

}  // namespace aloni::nn
