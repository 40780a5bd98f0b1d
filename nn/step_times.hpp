#pragma once
// Times of the nodes of a step on this rank, recorded while it runs; and these times as a trace.
//
//   StepTimes times;
//   network.record_times(&times);
//   network.train_step(queue);
//   network.record_times(nullptr);
//   for (const StepTimes::Execution& step : times.executions())
//     for (const StepTimes::Action& action : times.actions(step))
//       report((*step.nodes)[action.node].label, action.end - action.start);
//   const std::string file = comm::gather_trace(comm, trace_of(times, comm.rank()));   // core/comm/trace.hpp
//
// On a host a kernel is complete when its action ends, so these times are those of the step. On a device each action
// then waits for its queue: its time is right, but kernels and communication no longer overlap.
#include <aloni/core/machine.hpp>
#include <aloni/core/trace.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/plan/cost.hpp>
#include <aloni/nn/plan/step_plan.hpp>
#include <aloni/nn/step_graph.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn {

/// A node of a step plan, as a report of times names and prices it.
struct TimedNode {
  std::string label, layer;  ///< layer: empty for nodes of no layer
  StepPhase phase = StepPhase::forward;
  NodeKind kind = NodeKind::kernel;
  std::string work;             ///< kind(Work)
  std::string implementations;  ///< implementations(Work)
  NodeCost cost;
  /// Of a kernel on a device: whether a network with NetworkOptions::record repeats it in a graph, and why not.
  std::string graph = {};
};
using TimedNodes = std::shared_ptr<const std::vector<TimedNode>>;

/// The nodes of a plan, in its order. @pre `network` and `machine` are those of the plan
TimedNodes timed_nodes(const StepPlan& plan, const NetworkDescription& network, const MachineDescription& machine);

class StepTimes {
 public:
  /// One action of a node: its kernel, or the start or end of its communication. Nanoseconds of trace_now().
  struct Action {
    int node = 0;  ///< index in Execution::nodes
    StepActionKind kind = StepActionKind::run;
    std::int64_t start = 0, end = 0;
  };
  /// One execution of a step.
  struct Execution {
    TimedNodes nodes;
    std::size_t first = 0, count = 0;  ///< of actions
  };
  /// Work beside the nodes, for example the input. `step` contains all other work of a training step.
  enum class Row : unsigned char { step, input, compute, communication };
  struct Span {
    Row row = Row::compute;
    std::string label;
    std::int64_t start = 0, end = 0;
  };

  /// Allocates memory for so many actions. Beyond them, recording allocates.
  explicit StepTimes(std::size_t actions = std::size_t{1} << 14) {
    actions_.reserve(actions);
    spans_.reserve(actions / 8);
  }

  // --- recording ---

  /// The next actions belong to an execution of a step with these nodes.
  void begin(const TimedNodes& nodes) { executions_.push_back({nodes, actions_.size(), 0}); }
  /// @pre begin() was called
  void add(const Action& action) {
    actions_.push_back(action);
    ++executions_.back().count;
  }
  void add(Span span) { spans_.push_back(std::move(span)); }
  /// Sets the end of a span to now: of the span with this position in spans().
  void end(std::size_t span) { spans_[span].end = trace_now(); }
  /// Removes all times and keeps the memory.
  void clear() {
    actions_.clear();
    executions_.clear();
    spans_.clear();
  }
  /// Nanoseconds that trace_of() adds to all times; 0 at first. comm::clock_offset() measures them.
  void set_clock_offset(std::int64_t nanoseconds) { clock_offset_ = nanoseconds; }

  // --- results ---

  const std::vector<Execution>& executions() const { return executions_; }
  /// In the order of time.
  std::span<const Action> actions(const Execution& execution) const {
    return std::span<const Action>(actions_).subspan(execution.first, execution.count);
  }
  const std::vector<Span>& spans() const { return spans_; }
  std::int64_t clock_offset() const { return clock_offset_; }

 private:
  std::vector<Action> actions_;
  std::vector<Execution> executions_;
  std::vector<Span> spans_;
  std::int64_t clock_offset_ = 0;
};

/// Records the time until the end of the scope.
class [[nodiscard]] TimedSpan {
 public:
  /// `times`: null: nothing is recorded; otherwise it outlives this object
  TimedSpan(StepTimes* times, StepTimes::Row row, const char* label)
      : times_(times), span_(times ? times->spans().size() : 0) {
    if (!times_) return;
    const std::int64_t now = trace_now();
    times_->add(StepTimes::Span{row, label, now, now});
  }
  TimedSpan(const TimedSpan&) = delete;
  TimedSpan& operator=(const TimedSpan&) = delete;
  ~TimedSpan() {
    if (times_) times_->end(span_);
  }

 private:
  StepTimes* times_;
  std::size_t span_;
};

/// The times of one rank. Rows: step, input, compute, communication, and "in flight". The latter has each communication
/// from its start to its end, in as many rows as overlapping ones need. Arguments of a slice: layer, phase, work, and
/// from its cost flops, bytes and messages; on devices also TimedNode::graph.
Trace trace_of(const StepTimes& times, int rank);

}  // namespace aloni::nn
