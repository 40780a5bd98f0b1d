#pragma once
// Splits a step into segments: runs of kernels between the actions for which the host is needed. A device records a
// segment once, as a graph, and repeats it by one call of the host.
//
//   const auto actions = schedule(graph);
//   const SegmentedPlan plan = split_into_segments(graph, actions, streams_of(graph, actions, 3));
//   for (const StepSegment& s : plan.segments) std::puts(s.reason.c_str());   // empty: recorded
//
// A recorded segment is one piece of work for the streams. It starts on one stream, its origin, and ends there. Its
// inner plan has the streams and events between its actions; begin and end are points of the origin. The outer plan has
// the streams and events between the pieces: recorded segments, and single actions. Both are StreamPlans, so
// find_race() proves them. Pure arithmetic; nn/step_recorder.hpp runs it.
//
// What is repeated must be equal in each step. So a segment contains no communication, and no kernel for which the host
// chooses arguments in each step (StepNode::changing_arguments).
#include <aloni/nn/step_graph.hpp>
#include <aloni/nn/stream_plan.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn {

struct SegmentOptions {
  /// Fewer kernels than this in a row are submitted one by one: a graph would save no call of the host.
  int least_kernels = 2;
};

struct StepSegment {
  int first = 0, last = 0;  ///< positions in the list of actions, inclusive
  /// Why the host submits the actions in each step, for people. Empty: the segment is recorded.
  std::string reason = {};
  // Of a recorded segment:
  std::vector<int> streams = {};  ///< of the step, by stream of `inner`; the first one is the origin
  StreamPlan inner = {};          ///< its actions, counted from `first`

  bool recorded() const { return reason.empty(); }
  int actions() const { return last - first + 1; }
};

/// A recorded segment, or one action of another segment.
struct StepPiece {
  int segment = 0;  ///< position in SegmentedPlan::segments
  int action = -1;  ///< position in the list of actions; -1: the whole segment, which is recorded

  friend bool operator==(const StepPiece&, const StepPiece&) = default;
};

struct SegmentedPlan {
  std::vector<StepSegment> segments = {};  ///< all actions, in their order
  std::vector<StepPiece> pieces = {};      ///< in the order of submission
  StreamPlan outer = {};                   ///< its actions are the pieces
};

/// Whether a segment may contain the action; if not, why not.
std::optional<std::string> reason_against_recording(const StepGraph& graph, const StepAction& action);

/// `stream_of`: of each action. A segment starts on the compute stream if it has kernels there, else on its lowest one.
/// @pre `actions` is an order of schedule(graph)
/// Throws InvalidArgument as plan_streams(), and for options.least_kernels below 1.
SegmentedPlan split_into_segments(const StepGraph& graph, const std::vector<StepAction>& actions,
                                  const std::vector<int>& stream_of, const SegmentOptions& options = {});

/// The graph of the pieces with their accesses, and its actions, which plan.outer orders. For find_race().
struct PieceGraph {
  StepGraph graph;
  std::vector<StepAction> actions;
};
PieceGraph graph_of_pieces(const StepGraph& graph, const std::vector<StepAction>& actions, const SegmentedPlan& plan);
/// The same for the actions within a recorded segment, which segment.inner orders.
PieceGraph graph_within(const StepGraph& graph, const std::vector<StepAction>& actions, const StepSegment& segment);

struct SegmentCounts {
  int segments = 0, recorded_segments = 0;
  int kernels = 0, recorded_kernels = 0;
  std::vector<std::pair<std::string, int>> reasons = {};  ///< each once, with the number of its segments

  friend bool operator==(const SegmentCounts&, const SegmentCounts&) = default;
};
SegmentCounts count_segments(const SegmentedPlan& plan, const std::vector<StepAction>& actions);

/// "7 of 15 segments are recorded, with 184 of 210 kernels. Not recorded: 6: …; 2: …." For people.
std::string explain(const SegmentCounts& counts);

}  // namespace aloni::nn
