#include <aloni/nn/step_segments.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <map>
#include <utility>

namespace aloni::nn {

namespace {

const StepNode& node_of(const StepGraph& graph, const StepAction& action) {
  return graph.nodes[static_cast<std::size_t>(action.node)];
}

/// Splits where a reason begins, ends or changes.
std::vector<StepSegment> runs_of_actions(const StepGraph& graph, const std::vector<StepAction>& actions,
                                         const SegmentOptions& options) {
  std::vector<StepSegment> segments;
  for (int a = 0; a < static_cast<int>(actions.size()); ++a) {
    const std::string reason = reason_against_recording(graph, actions[static_cast<std::size_t>(a)]).value_or("");
    if (!segments.empty() && segments.back().reason == reason) {
      segments.back().last = a;
    } else {
      segments.push_back({.first = a, .last = a, .reason = reason});
    }
  }
  for (StepSegment& s : segments)
    if (s.recorded() && s.actions() < options.least_kernels)
      s.reason = "fewer than " + std::to_string(options.least_kernels) + " kernels in a row";
  return segments;
}

}  // namespace

std::optional<std::string> reason_against_recording(const StepGraph& graph, const StepAction& action) {
  const StepNode& node = node_of(graph, action);
  switch (node.kind) {
    case NodeKind::transfer:
      return "the host sends and receives messages, or waits for other ranks";
    case NodeKind::collective:
      return "the host takes part in a sum over ranks";
    case NodeKind::kernel:
      break;
  }
  if (!node.changing_arguments) return "a node does not say whether its kernels are the same in each step";
  if (!node.changing_arguments->empty()) return "arguments change between steps: " + *node.changing_arguments;
  return std::nullopt;
}

SegmentedPlan split_into_segments(const StepGraph& graph, const std::vector<StepAction>& actions,
                                  const std::vector<int>& stream_of, const SegmentOptions& options) {
  if (options.least_kernels < 1) {
    throw InvalidArgument("aloni::nn::split_into_segments", "options.least_kernels",
                          std::to_string(options.least_kernels), "at least 1");
  }
  if (stream_of.size() != actions.size()) {
    throw InvalidArgument("aloni::nn::split_into_segments", "stream_of", std::to_string(stream_of.size()) + " streams",
                          "one for each of the " + std::to_string(actions.size()) + " actions");
  }
  SegmentedPlan plan{.segments = runs_of_actions(graph, actions, options)};
  std::vector<int> outer_streams;
  for (std::size_t k = 0; k < plan.segments.size(); ++k) {
    StepSegment& s = plan.segments[k];
    const auto number = static_cast<int>(k);
    if (!s.recorded()) {
      for (int a = s.first; a <= s.last; ++a) {
        plan.pieces.push_back({number, a});
        outer_streams.push_back(stream_of[static_cast<std::size_t>(a)]);
      }
      continue;
    }
    const std::vector<int> mine(stream_of.begin() + s.first, stream_of.begin() + s.last + 1);
    s.streams = mine;
    std::ranges::sort(s.streams);
    const auto [from, to] = std::ranges::unique(s.streams);
    s.streams.erase(from, to);
    std::vector<int> inner;
    for (const int stream : mine)
      inner.push_back(static_cast<int>(std::ranges::find(s.streams, stream) - s.streams.begin()));
    const PieceGraph within = graph_within(graph, actions, s);
    s.inner = plan_streams(within.graph, within.actions, std::move(inner));
    plan.pieces.push_back({number, -1});
    outer_streams.push_back(s.streams.front());
  }
  const PieceGraph pieces = graph_of_pieces(graph, actions, plan);
  plan.outer = plan_streams(pieces.graph, pieces.actions, std::move(outer_streams));
  return plan;
}

// The nodes are listed in the order of their first actions. That is a valid sequential order too: of two nodes that
// depend on each other, the schedule completes one before it begins the other.
PieceGraph graph_of_pieces(const StepGraph& graph, const std::vector<StepAction>& actions, const SegmentedPlan& plan) {
  PieceGraph pieces;
  std::map<int, int> places;  // by node of a single action
  for (const StepPiece& piece : plan.pieces) {
    const auto next = static_cast<int>(pieces.graph.nodes.size());
    if (piece.action < 0) {
      const StepSegment& s = plan.segments[static_cast<std::size_t>(piece.segment)];
      StepNode node{.label = "segment " + std::to_string(piece.segment)};
      for (int a = s.first; a <= s.last; ++a) {
        const auto& accesses = node_of(graph, actions[static_cast<std::size_t>(a)]).accesses;
        node.accesses.insert(node.accesses.end(), accesses.begin(), accesses.end());
      }
      pieces.graph.nodes.push_back(std::move(node));
      pieces.actions.push_back({StepActionKind::run, next});
      continue;
    }
    const StepAction& action = actions[static_cast<std::size_t>(piece.action)];
    const auto [place, is_new] = places.try_emplace(action.node, next);
    if (is_new) pieces.graph.nodes.push_back(node_of(graph, action));
    pieces.actions.push_back({action.kind, place->second});
  }
  return pieces;
}

PieceGraph graph_within(const StepGraph& graph, const std::vector<StepAction>& actions, const StepSegment& segment) {
  PieceGraph within;
  for (int a = segment.first; a <= segment.last; ++a) {
    within.actions.push_back({StepActionKind::run, static_cast<int>(within.graph.nodes.size())});
    within.graph.nodes.push_back(node_of(graph, actions[static_cast<std::size_t>(a)]));
  }
  return within;
}

SegmentCounts count_segments(const SegmentedPlan& plan, const std::vector<StepAction>& actions) {
  SegmentCounts counts{
      .segments = static_cast<int>(plan.segments.size()),
      .kernels = static_cast<int>(std::ranges::count(actions, StepActionKind::run, &StepAction::kind))};
  for (const StepSegment& s : plan.segments) {
    if (s.recorded()) {
      ++counts.recorded_segments;
      counts.recorded_kernels += s.actions();
      continue;
    }
    const auto known = std::ranges::find(counts.reasons, s.reason, &std::pair<std::string, int>::first);
    if (known == counts.reasons.end()) {
      counts.reasons.emplace_back(s.reason, 1);
    } else {
      ++known->second;
    }
  }
  return counts;
}

std::string explain(const SegmentCounts& c) {
  std::string text = std::to_string(c.recorded_segments) + " of " + std::to_string(c.segments) +
                     " segments are recorded, with " + std::to_string(c.recorded_kernels) + " of " +
                     std::to_string(c.kernels) + " kernels.";
  for (std::size_t i = 0; i < c.reasons.size(); ++i)
    text += (i == 0 ? " Not recorded: " : "; ") + std::to_string(c.reasons[i].second) + ": " + c.reasons[i].first;
  return c.reasons.empty() ? text : text + ".";
}

}  // namespace aloni::nn
