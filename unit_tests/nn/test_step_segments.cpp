// Segments of a step. The plans of the pieces and within segments are proved by find_race(), and run on streams that
// work late, in any order that their events allow.
#include <aloni/core/error.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/step_segments.hpp>
#include <aloni/nn/strategy.hpp>

#include "late_streams.hpp"
#include "random_graph.hpp"

#include <support/random_cases.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::nn {
namespace test_step_segments {

using test::early_and_late;
using test::LateStreams;
using test::random_order;
using test::StreamChoice;
using test_step_graph::Dice;
using test_step_graph::random_streams;
using Result = test_step_graph::HashedResult;
using Events = std::vector<StreamEvent>;
using Pieces = std::vector<StepPiece>;

struct NoQueue {};

StepNode fixed(StepNode node) {
  node.changing_arguments = "";
  return node;
}
StepNode changing(StepNode node, std::string what) {
  node.changing_arguments = std::move(what);
  return node;
}

/// Some kernels of a random graph are fixed, others change, and some do not say it.
StepGraph random_marked_graph(Dice& dice) {
  StepGraph graph = test_step_graph::random_graph(dice);
  const int fixed_in_ten = dice(3, 10);
  for (StepNode& node : graph.nodes) {
    if (dice(1, 10) <= fixed_in_ten) {
      node.changing_arguments = "";
    } else if (dice.one_in(2)) {
      node.changing_arguments = "the rate";
    }
  }
  return graph;
}

struct RandomStep {
  StepGraph graph;
  std::vector<StepAction> actions;
  SegmentedPlan plan;
};
RandomStep random_step(std::uint64_t seed) {
  Dice dice(seed);
  RandomStep step;
  step.graph = random_marked_graph(dice);
  const auto orders = test_step_graph::other_orders(dice);
  step.actions = schedule(step.graph, dice.one_in(2) ? ScheduleOptions{} : orders[dice.one_in(2) ? 0 : 1]);
  step.plan = split_into_segments(step.graph, step.actions, random_streams(dice, step.actions.size()),
                                  {.least_kernels = dice(1, 3)});
  return step;
}

Result in_order(const RandomStep& step) {
  Result result;
  for (const StepAction& action : step.actions) act(step.graph, action, result);
  return result;
}

/// The pieces on late streams; the actions of a recorded segment on late streams of their own.
Result run_late(const RandomStep& step, StreamChoice choose, const StreamChoice& choose_within) {
  Result result;
  LateStreams<NoQueue> streams({}, step.plan.outer.streams);
  run_on_streams(step.plan.outer, streams, [&](std::size_t p, const NoQueue&) {
    const StepPiece& piece = step.plan.pieces[p];
    if (piece.action >= 0) return act(step.graph, step.actions[static_cast<std::size_t>(piece.action)], result);
    const StepSegment& segment = step.plan.segments[static_cast<std::size_t>(piece.segment)];
    LateStreams<NoQueue> within({}, segment.inner.streams);
    run_on_streams(segment.inner, within, [&](std::size_t a, const NoQueue&) {
      act(step.graph, step.actions[static_cast<std::size_t>(segment.first) + a], result);
    });
    within.run(choose_within);
  });
  streams.run(std::move(choose));
  return result;
}

StepGraph small_graph() {
  using namespace test_step_graph;
  return {{fixed(kernel("weights", {writes(3, rows(0, 1))})),
           transfer("halo", {reads(0, rows(0, 8)), writes(0, rows(8, 9))}),
           fixed(kernel("interior", {reads(0, rows(0, 8)), reads(3, rows(0, 1)), writes(1, rows(0, 7))})),
           fixed(kernel("bias", {writes(1, rows(0, 7))})),
           fixed(kernel("border", {reads(0, rows(6, 9)), writes(1, rows(7, 8))})),
           fixed(kernel("sum", {reads(1, rows(0, 8)), writes(2, rows(0, 8))})),
           changing(kernel("update", {reads(2, rows(0, 8)), writes(3, rows(0, 1))}), "the rate"),
           kernel("other", {reads(3, rows(0, 1)), writes(4, rows(0, 1))})}};
}

TEST(StepSegments, EndWhereTheHostIsNeeded) {
  StepGraph graph = small_graph();
  graph.nodes[4].border = true;
  const auto actions = schedule(graph);
  ASSERT_EQ(test_step_graph::lines(graph, actions),
            (test_step_graph::Lines{"start halo", "run weights", "run interior", "run bias", "finish halo",
                                    "run border", "run sum", "run update", "run other"}));
  const SegmentedPlan plan = split_into_segments(graph, actions, streams_of(graph, actions, 3));
  ASSERT_EQ(plan.segments.size(), 6u);
  std::vector<std::string> reasons;
  for (const StepSegment& s : plan.segments) reasons.push_back(s.reason);
  const std::string host = "the host sends and receives messages, or waits for other ranks";
  EXPECT_EQ(reasons, (std::vector<std::string>{host, "", host, "", "arguments change between steps: the rate",
                                               "a node does not say whether its kernels are the same in each step"}));
  EXPECT_EQ(plan.pieces, (Pieces{{0, 0}, {1, -1}, {2, 4}, {3, -1}, {4, 7}, {5, 8}}));
  // The second segment starts on the compute stream, forks to the border, and joins it before the sum.
  EXPECT_EQ(plan.segments[3].streams, (std::vector<int>{compute_stream, border_stream}));
  EXPECT_EQ(plan.segments[3].inner.stream_of, (std::vector<int>{1, 0}));
  EXPECT_EQ(plan.segments[3].inner.events, (Events{{begin_of_step, 0}, {0, 1}}));
  EXPECT_EQ(plan.outer.stream_of, (std::vector<int>{1, 0, 1, 0, 0, 0}));
  EXPECT_EQ(plan.outer.events, (Events{{begin_of_step, 0}, {2, 3}}));
  EXPECT_EQ(
      explain(count_segments(plan, actions)),
      "2 of 6 segments are recorded, with 5 of 7 kernels. Not recorded: 2: " + host +
          "; 1: arguments change between steps: the rate; 1: a node does not say whether its kernels are the same "
          "in each step.");
}

TEST(StepSegments, OfFewKernelsAreNotRecorded) {
  const StepGraph graph = small_graph();
  const auto actions = schedule(graph);
  const SegmentedPlan plan = split_into_segments(graph, actions, streams_of(graph, actions, 2), {.least_kernels = 3});
  EXPECT_TRUE(plan.segments[1].recorded());
  EXPECT_EQ(plan.segments[3].reason, "fewer than 3 kernels in a row");
  EXPECT_EQ(plan.pieces, (Pieces{{0, 0}, {1, -1}, {2, 4}, {3, 5}, {3, 6}, {4, 7}, {5, 8}}));
  EXPECT_THROW((void)split_into_segments(graph, actions, streams_of(graph, actions, 2), {.least_kernels = 0}),
               InvalidArgument);
  EXPECT_THROW((void)split_into_segments(graph, actions, {}), InvalidArgument);
}

TEST(StepSegments, ComputeTheSameInEveryOrderOnAnyStreams) {
  int recorded = 0, on_several_streams = 0;
  for (int seed = 1; seed <= aloni::test::random_cases(1500); ++seed) {
    const RandomStep step = random_step(static_cast<std::uint64_t>(seed));
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " +
                 testing::PrintToString(test_step_graph::lines(step.graph, step.actions)));
    const PieceGraph pieces = graph_of_pieces(step.graph, step.actions, step.plan);
    ASSERT_EQ(find_race(pieces.graph, pieces.actions, step.plan.outer), std::nullopt);
    ASSERT_EQ(implied_events(step.plan.outer), Events{});
    int next = 0;
    for (const StepSegment& s : step.plan.segments) {
      ASSERT_EQ(s.first, next);
      next = s.last + 1;
      if (!s.recorded()) continue;
      ++recorded;
      on_several_streams += s.inner.streams > 1 ? 1 : 0;
      for (int a = s.first; a <= s.last; ++a)
        ASSERT_EQ(reason_against_recording(step.graph, step.actions[static_cast<std::size_t>(a)]), std::nullopt);
      const PieceGraph within = graph_within(step.graph, step.actions, s);
      ASSERT_EQ(find_race(within.graph, within.actions, s.inner), std::nullopt);
    }
    ASSERT_EQ(next, static_cast<int>(step.actions.size()));
    ASSERT_TRUE(run_late(step, random_order(static_cast<std::uint64_t>(seed)),
                         random_order(static_cast<std::uint64_t>(seed) + 1)) == in_order(step));
  }
  EXPECT_GT(recorded, aloni::test::random_cases(1500) / 2);
  EXPECT_GT(on_several_streams, aloni::test::random_cases(1500) / 10);
}

/// Begin and end touch no cell. Without the event before a segment's own begin or end, find_race() alone complains.
TEST(StepSegments, GiveAWrongNumberWithoutAnyOneEvent) {
  int removed_between = 0, removed_within = 0;
  for (int seed = 1; seed <= aloni::test::random_cases(2000); ++seed) {
    const RandomStep step = random_step(static_cast<std::uint64_t>(seed));
    const Result expected = in_order(step);
    const auto any = random_order(static_cast<std::uint64_t>(seed));
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " +
                 testing::PrintToString(test_step_graph::lines(step.graph, step.actions)));
    const auto touches_no_cell = [](const StreamPlan& plan, const StreamEvent& event) {
      return event.after == begin_of_step || event.before == plan.end();
    };
    const PieceGraph pieces = graph_of_pieces(step.graph, step.actions, step.plan);
    for (std::size_t e = 0; e < step.plan.outer.events.size(); ++e) {
      RandomStep faulty = step;
      auto& events = faulty.plan.outer.events;
      const StreamEvent event = events[e];
      events.erase(events.begin() + static_cast<std::ptrdiff_t>(e));
      ASSERT_NE(find_race(pieces.graph, pieces.actions, faulty.plan.outer), std::nullopt);
      if (touches_no_cell(step.plan.outer, event)) continue;
      // A finish without its start has no data: that is a fault of its own.
      if (pieces.actions[static_cast<std::size_t>(event.before)].kind == StepActionKind::finish) continue;
      const auto order = early_and_late(step.plan.outer.stream(event.before), step.plan.outer.stream(event.after));
      ASSERT_FALSE(run_late(faulty, order, any) == expected) << event.after << " to " << event.before;
      ++removed_between;
    }
    for (std::size_t k = 0; k < step.plan.segments.size(); ++k) {
      const StepSegment& segment = step.plan.segments[k];
      for (std::size_t e = 0; e < segment.inner.events.size(); ++e) {
        RandomStep faulty = step;
        auto& events = faulty.plan.segments[k].inner.events;
        const StreamEvent event = events[e];
        events.erase(events.begin() + static_cast<std::ptrdiff_t>(e));
        const PieceGraph within = graph_within(step.graph, step.actions, segment);
        ASSERT_NE(find_race(within.graph, within.actions, faulty.plan.segments[k].inner), std::nullopt);
        if (touches_no_cell(segment.inner, event)) continue;
        const auto order = early_and_late(segment.inner.stream(event.before), segment.inner.stream(event.after));
        // The other segments have other streams, so their order is one that their events allow.
        ASSERT_FALSE(run_late(faulty, any, order) == expected) << "segment " << k;
        ++removed_within;
      }
    }
  }
  EXPECT_GT(removed_between, aloni::test::random_cases(2000) / 4);
  EXPECT_GT(removed_within, aloni::test::random_cases(2000) / 10);
}

/// The works whose kernels get other arguments in each step are in no recorded segment, in a network that has all.
TEST(StepSegments, OfNetworksLeaveOutDropoutAndTheUpdate) {
  NetworkDescription net = make_model("lenet5");
  net.layers.insert(net.layers.begin() + 2, {"dropout", Dropout{0.25}, net.layers[2].inputs});
  net.layers[3].inputs = {"dropout"};
  for (const char* const grid : {"1", "h2"}) {
    const int ranks = grid[0] == '1' ? 1 : 2;
    const NetworkPlan layers =
        plan_network(net, resolve(Strategy::uniform(views::ProcessGrid::parse(grid)), net, ranks), ranks, 4);
    const StepPlan step = plan_step(net, layers, 0, StepKind::training, machine_of_nodes(ranks, 0),
                                    {.update_options = {.max_norm = 1.0}, .streams = 3});
    const StepGraph graph = graph_of(step);
    const auto actions = schedule(graph, {.kernels_ahead = 1});
    const SegmentedPlan plan = split_into_segments(graph, actions, streams_of(graph, actions, 3));
    std::set<std::string> recorded, others;
    for (const StepSegment& s : plan.segments)
      for (int a = s.first; a <= s.last; ++a)
        (s.recorded() ? recorded : others)
            .insert(kind(step.nodes[static_cast<std::size_t>(actions[static_cast<std::size_t>(a)].node)].work));
    for (const char* const work : {"dropout", "optimiser", "transfer", "reduction"})
      EXPECT_FALSE(recorded.contains(work)) << work;
    for (const char* const work : {"convolution", "filter_gradient", "weights", "loss", "pooling", "pointwise"})
      EXPECT_TRUE(recorded.contains(work)) << work;
    EXPECT_TRUE(others.contains("dropout"));
    EXPECT_TRUE(others.contains("optimiser"));
  }
}

}  // namespace test_step_segments
}  // namespace aloni::nn
