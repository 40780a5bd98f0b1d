#pragma once
// Runs the recorded segments of a step (nn/step_segments.hpp): it submits their kernels once, and repeats them later.
//
//   step.set_recorder(make_step_recorder<Exec>());   // before Step::prepare()
//   step.execute(queues, comm, stopwatch);           // submits all kernels one by one
//   step.execute(queues, comm, stopwatch);           // records each segment, and runs the recording
//   step.execute(queues, comm, stopwatch);           // runs the recordings
//
// The first step runs without recordings: libraries load kernels, make plans and take memory at their first call, which
// a recording must not contain. A segment is recorded again when memory that its kernels use has moved.
#include <aloni/core/queue.hpp>
#include <aloni/nn/queue_streams.hpp>
#include <aloni/nn/step_segments.hpp>

#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn {

template <class Exec>
class StepRecorder {
 public:
  /// Submits the kernels of the action `segment.first + a`. Works only during the call that gets it.
  using Act = std::function<void(std::size_t a, const Queue<Exec>& queue)>;

  StepRecorder() = default;
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;
  virtual ~StepRecorder() = default;

  /// Submits segment `number`: its kernels by `act`, or a recording of an earlier call. Earlier work of the origin's
  /// queue precedes the segment, later work follows it. Asynchronous. `queues`: by stream of the step.
  /// Throws the exceptions of `act`.
  virtual void run(std::size_t number, const StepSegment& segment, std::span<const Queue<Exec>> queues,
                   const Act& act) = 0;
  /// Why a segment that the plan records is submitted in each step after all; none if it is recorded, or not yet tried.
  virtual std::optional<std::string> refusal(std::size_t number) const = 0;
};

/// Records with the graphs of a device. `Graphs` has
///   Graph                            a recording
///   Addresses                        values of memory that kernels of a queue use besides their arguments
///   Addresses addresses(queues)
///   std::optional<std::string> begin(queue)         work for the queue is recorded, not run; else the reason
///   Recorded end(queue)                             ends it: a Graph, or the reason why there is none
///   void launch(const Graph&, queue)
/// where Recorded is std::pair<std::optional<Graph>, std::string>. Tests have a Graphs without a device.
template <class Exec, class Graphs>
class GraphRecorder final : public StepRecorder<Exec> {
 public:
  using typename StepRecorder<Exec>::Act;

  explicit GraphRecorder(Graphs graphs = {}) : graphs_(std::move(graphs)) {}
  ~GraphRecorder() override {
    try {
      for (auto& [number, s] : segments_) drop_graph(s);
    } catch (...) {  // a failed device: its next user sees the error too
    }
  }

  void run(std::size_t number, const StepSegment& segment, std::span<const Queue<Exec>> queues,
           const Act& act) override {
    Segment& s = segments_.try_emplace(number, segment.inner).first->second;
    s.queues.clear();
    for (const int stream : segment.streams) s.queues.push_back(queues[static_cast<std::size_t>(stream)]);
    const Queue<Exec>& origin = s.queues.front();
    if (s.refusal) return submit(segment, s, act);
    if (!s.addresses || *s.addresses != graphs_.addresses(s.queues)) {
      drop_graph(s);
      submit(segment, s, act);
      s.addresses = graphs_.addresses(s.queues);
      return;
    }
    if (!s.graph && !record(segment, s, act)) return submit(segment, s, act);
    graphs_.launch(*s.graph, origin);
  }
  std::optional<std::string> refusal(std::size_t number) const override {
    const auto found = segments_.find(number);
    return found == segments_.end() ? std::nullopt : found->second.refusal;
  }

 private:
  struct Segment {
    explicit Segment(const StreamPlan& plan) : marks(plan) {}

    QueueMarks<Exec> marks;
    std::vector<Queue<Exec>> queues = {};                      ///< by stream of the segment
    std::optional<typename Graphs::Addresses> addresses = {};  ///< after the last submission; none: not submitted yet
    std::optional<typename Graphs::Graph> graph = {};
    std::optional<std::string> refusal = {};
  };

  static void drop_graph(Segment& s) {
    if (!s.graph) return;
    s.queues.front().fence("aloni::nn::GraphRecorder: a recording that ends may still run");
    s.graph.reset();
  }
  void submit(const StepSegment& segment, Segment& s, const Act& act) const {
    QueueStreams<Exec> streams(s.queues, s.marks);
    run_on_streams(segment.inner, streams, std::cref(act));
  }
  /// Whether there is a graph. What `act` throws while the recording is intact is thrown on; otherwise the failure is
  /// one of recording, and the caller submits the kernels.
  bool record(const StepSegment& segment, Segment& s, const Act& act) {
    if ((s.refusal = graphs_.begin(s.queues.front()))) return false;
    std::exception_ptr error;
    try {
      submit(segment, s, act);
    } catch (...) {
      error = std::current_exception();
    }
    auto [graph, reason] = graphs_.end(s.queues.front());
    if (error && graph) std::rethrow_exception(error);
    if (!graph) s.refusal = reason;
    s.graph = std::move(graph);
    return s.graph.has_value();
  }

  Graphs graphs_;
  std::map<std::size_t, Segment> segments_;
};

/// The recorder of the execution space; null if it has none. Kokkos::Cuda has one.
template <class Exec>
std::unique_ptr<StepRecorder<Exec>> make_step_recorder();

}  // namespace aloni::nn
