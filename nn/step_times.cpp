#include <aloni/nn/step_times.hpp>

#include <aloni/nn/step_segments.hpp>

#include <algorithm>
#include <map>

namespace aloni::nn {

namespace {

constexpr int row_of(StepTimes::Row row) { return static_cast<int>(row); }

/// What the node is, without its cost.
std::vector<TraceArgument> name_arguments(const TimedNode& node) {
  std::vector<TraceArgument> arguments;
  if (!node.layer.empty()) arguments.push_back({"layer", node.layer});
  arguments.push_back({"phase", std::string(name(node.phase))});
  arguments.push_back({"work", node.work});
  return arguments;
}

std::vector<TraceArgument> kernel_arguments(const TimedNode& node, std::int64_t nanoseconds) {
  auto arguments = name_arguments(node);
  if (!node.implementations.empty()) arguments.push_back({"implementation", node.implementations});
  arguments.push_back({"flops", node.cost.flops});
  arguments.push_back({"bytes_read", node.cost.bytes_read});
  arguments.push_back({"bytes_written", node.cost.bytes_written});
  if (!node.graph.empty()) arguments.push_back({"graph", node.graph});
  if (node.cost.flops > 0 && nanoseconds > 0)
    arguments.push_back({"gflops_per_second", node.cost.flops / static_cast<double>(nanoseconds)});
  return arguments;
}

std::vector<TraceArgument> communication_arguments(const TimedNode& node) {
  auto arguments = name_arguments(node);
  arguments.push_back({"bytes_sent", node.cost.bytes_sent});
  arguments.push_back({"bytes_received", node.cost.bytes_received});
  arguments.push_back({"messages_sent", node.cost.messages_sent});
  arguments.push_back({"messages_received", node.cost.messages_received});
  return arguments;
}

/// Adds the communication of one execution from its start to its end, each in the first row that is free.
void add_in_flight(const StepTimes& times, const StepTimes::Execution& execution, std::int64_t offset, Trace& trace) {
  constexpr int first_row = row_of(StepTimes::Row::communication) + 1;
  const auto actions = times.actions(execution);
  std::map<int, std::int64_t> ends;  // by node
  for (const StepTimes::Action& action : actions)
    if (action.kind == StepActionKind::finish) ends[action.node] = action.end;
  std::vector<std::int64_t> free_from;
  for (const StepTimes::Action& action : actions) {
    if (action.kind != StepActionKind::start || !ends.contains(action.node)) continue;
    const auto row = std::ranges::find_if(free_from, [&](std::int64_t free) { return free <= action.start; });
    const int index = static_cast<int>(row - free_from.begin());
    const TimedNode& node = (*execution.nodes)[static_cast<std::size_t>(action.node)];
    const std::int64_t end = ends[action.node];
    if (row == free_from.end()) {
      free_from.push_back(end);
    } else {
      *row = end;
    }
    while (static_cast<int>(trace.rows.size()) <= first_row + index)
      trace.rows.push_back(trace.rows.size() == first_row ? "in flight" : "in flight " + std::to_string(index + 1));
    trace.slices.push_back(
        {first_row + index, node.label, action.start + offset, end + offset, communication_arguments(node)});
  }
}

}  // namespace

TimedNodes timed_nodes(const StepPlan& plan, const NetworkDescription& network, const MachineDescription& machine) {
  auto nodes = std::make_shared<std::vector<TimedNode>>();
  for (const PlanNode& node : plan.nodes) {
    const std::string layer = node.layer < 0 ? "" : network.layers[static_cast<std::size_t>(node.layer)].name;
    nodes->push_back({node.label, layer, node.phase, node.kind(), kind(node.work), implementations(node.work),
                      cost(plan, node, machine)});
  }
  if (machine.on_host) return nodes;
  const StepGraph graph = graph_of(plan);
  const auto actions = schedule(graph, {.kernels_ahead = machine.kernels_ahead()});
  const SegmentedPlan segments = split_into_segments(graph, actions, streams_of(graph, actions, plan.streams));
  for (std::size_t k = 0; k < segments.segments.size(); ++k) {
    const StepSegment& s = segments.segments[k];
    for (int a = s.first; a <= s.last; ++a) {
      const StepAction& action = actions[static_cast<std::size_t>(a)];
      if (action.kind == StepActionKind::run)
        (*nodes)[static_cast<std::size_t>(action.node)].graph =
            s.recorded() ? "segment " + std::to_string(k) : "none: " + s.reason;
    }
  }
  return nodes;
}

Trace trace_of(const StepTimes& times, int rank) {
  Trace trace{rank, "rank " + std::to_string(rank), {"step", "input", "compute", "communication"}};
  const std::int64_t offset = times.clock_offset();
  for (const StepTimes::Span& span : times.spans())
    trace.slices.push_back({row_of(span.row), span.label, span.start + offset, span.end + offset});
  for (const StepTimes::Execution& execution : times.executions()) {
    for (const StepTimes::Action& action : times.actions(execution)) {
      const TimedNode& node = (*execution.nodes)[static_cast<std::size_t>(action.node)];
      TraceSlice slice;
      slice.start = action.start + offset;
      slice.end = action.end + offset;
      if (action.kind == StepActionKind::run) {
        slice.row = row_of(StepTimes::Row::compute);
        slice.name = node.label;
        slice.arguments = kernel_arguments(node, action.end - action.start);
      } else {
        slice.row = row_of(StepTimes::Row::communication);
        slice.name = (action.kind == StepActionKind::start ? "start " : "finish ") + node.label;
        slice.arguments = communication_arguments(node);
      }
      trace.slices.push_back(std::move(slice));
    }
    add_in_flight(times, execution, offset, trace);
  }
  return trace;
}

}  // namespace aloni::nn
