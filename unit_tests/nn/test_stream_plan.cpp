// Streams and events of a step. A plan is proved by find_race(), and run on streams that work late and in any order:
// a missing event is a sentence of the one and a wrong number of the other.
#include <aloni/core/error.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/strategy.hpp>
#include <aloni/nn/stream_plan.hpp>

#include "late_streams.hpp"
#include "random_graph.hpp"

#include <support/random_cases.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn {
namespace test_stream_plan {

using test::early_and_late;
using test::LateStreams;
using test::random_order;
using test::StreamChoice;
using test_step_graph::Dice;
using test_step_graph::random_streams;
using Result = test_step_graph::HashedResult;
using Events = std::vector<StreamEvent>;

struct NoQueue {};

Result in_sequence(const StepGraph& graph) {
  Result result;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    result.read[static_cast<int>(i)] = result.memory.read(graph.nodes[i]);
    if (graph.nodes[i].kind != NodeKind::kernel)
      result.last_read[static_cast<int>(i)] = result.memory.read(graph.nodes[i], true);
    result.memory.write(graph.nodes[i], i, result.read[static_cast<int>(i)]);
  }
  return result;
}

/// A step whose streams work late, in the order of `choose`.
Result run_late(const StepGraph& graph, const std::vector<StepAction>& actions, const StreamPlan& plan,
                StreamChoice choose) {
  Result result;
  LateStreams<NoQueue> streams({}, plan.streams);
  run_on_streams(plan, streams, [&](std::size_t a, const NoQueue&) { act(graph, actions[a], result); });
  streams.run(std::move(choose));
  return result;
}

StreamPlan without(StreamPlan plan, std::size_t event) {
  plan.events.erase(plan.events.begin() + static_cast<std::ptrdiff_t>(event));
  return plan;
}

std::vector<ScheduleOptions> all_orders(Dice& dice) {
  std::vector<ScheduleOptions> orders = test_step_graph::other_orders(dice);
  orders.emplace_back();
  return orders;
}

TEST(StreamPlan, HasNoEventsOnOneStream) {
  Dice dice(1);
  const StepGraph graph = test_step_graph::random_graph(dice);
  const auto actions = schedule(graph);
  const StreamPlan plan = plan_streams(graph, actions, std::vector<int>(actions.size(), compute_stream));
  EXPECT_EQ(plan.streams, 1);
  EXPECT_EQ(plan.events, Events{});
  EXPECT_EQ(find_race(graph, actions, plan), std::nullopt);
}

TEST(StreamPlan, MakesAStreamWaitForTheOtherOnce) {
  using namespace test_step_graph;
  const StepGraph graph{{transfer("halo", {reads(0, rows(0, 8)), writes(0, rows(8, 9))}),
                         kernel("interior", {reads(0, rows(0, 8)), writes(1, rows(0, 7))}),
                         kernel("boundary", {reads(0, rows(6, 9)), writes(1, rows(7, 8))}),
                         kernel("more", {reads(0, rows(6, 9)), writes(1, rows(8, 9))}),
                         transfer("next", {reads(1, rows(0, 8)), writes(2, rows(8, 9))})}};
  const auto actions = schedule(graph);
  ASSERT_EQ(lines(graph, actions), (Lines{"start halo", "run interior", "finish halo", "run boundary", "start next",
                                          "run more", "finish next"}));
  const StreamPlan plan = plan_streams(graph, actions, communication_beside(actions));
  EXPECT_EQ(plan.events, (Events{{begin_of_step, 0}, {2, 3}, {3, 4}, {6, 7}}));
  EXPECT_EQ(plan.end(), 7);

  // On a stream of its own the border waits for the halo. "next" then waits for the border alone, which follows the
  // halo, and for the interior.
  const StreamPlan three = plan_streams(graph, actions, {1, 0, 1, 2, 1, 0, 1});
  EXPECT_EQ(three.events, (Events{{begin_of_step, 0}, {2, 3}, {1, 4}, {3, 4}, {2, 5}, {6, 7}}));
}

TEST(StreamPlan, NamesTheActionsOfARace) {
  using namespace test_step_graph;
  const StepGraph graph{{kernel("maker", {writes(0, rows(0, 8))}), transfer("halo", {reads(0, rows(0, 8))})}};
  const auto actions = schedule(graph);
  StreamPlan plan = plan_streams(graph, actions, communication_beside(actions));
  ASSERT_EQ(plan.events, (Events{{0, 1}, {2, 3}}));
  EXPECT_EQ(find_race(graph, actions, without(plan, 0)),
            "start of halo (action 1, stream 1) may run before work before the step (stream 0)");
  EXPECT_EQ(find_race(graph, actions, without(plan, 1)),
            "work after the step (stream 0) may run before start of halo (action 1, stream 1)");
  plan.events = {{begin_of_step, 1}, {2, 3}};
  EXPECT_EQ(find_race(graph, actions, plan),
            "start of halo (action 1, stream 1) may run before maker (action 0, stream 0)");
  plan.events = {{1, 0}, {0, 1}, {2, 3}};
  EXPECT_EQ(
      find_race(graph, actions, plan),
      "maker (action 0, stream 0) waits for an event that is recorded only behind start of halo (action 1, stream 1)");
}

TEST(StreamPlan, GivesBordersAStreamOfTheirOwn) {
  using namespace test_step_graph;
  StepGraph graph{{transfer("halo", {reads(0, rows(0, 8)), writes(0, rows(8, 9))}),
                   kernel("interior", {reads(0, rows(0, 8)), writes(1, rows(0, 7))}),
                   kernel("border", {reads(0, rows(6, 9)), writes(1, rows(7, 8))}),
                   collective("sum", {reads(1, rows(0, 8)), writes(2, rows(0, 1))})}};
  graph.nodes[2].border = true;
  const auto actions = schedule(graph);
  ASSERT_EQ(lines(graph, actions),
            (Lines{"start halo", "run interior", "finish halo", "run border", "start sum", "finish sum"}));
  EXPECT_EQ(streams_of(graph, actions, 1), std::vector<int>(6, compute_stream));
  EXPECT_EQ(streams_of(graph, actions, 2), communication_beside(actions));
  EXPECT_EQ(streams_of(graph, actions, 3), (std::vector<int>{1, 0, 1, 2, 1, 1}));
  // The border waits for the halo, not for the interior. The sum waits for both.
  EXPECT_EQ(plan_streams(graph, actions, streams_of(graph, actions, 3)).events,
            (Events{{begin_of_step, 0}, {2, 3}, {1, 4}, {3, 4}, {5, 6}}));
  EXPECT_THROW(check_streams(0, "test"), InvalidArgument);
  EXPECT_THROW(check_streams(5, "test"), InvalidArgument);
}

TEST(StreamPlan, GivesCopiesToHostMemoryAStreamOfTheirOwn) {
  using namespace test_step_graph;
  StepGraph graph{
      {kernel("maker", {writes(0, rows(0, 8))}), kernel("leaves", {reads(0, rows(0, 8)), writes(1, rows(0, 8))}),
       kernel("next", {writes(2, rows(0, 8))}), kernel("returns", {reads(1, rows(0, 8)), writes(0, rows(0, 8))}),
       kernel("reader", {reads(0, rows(0, 8)), reads(2, rows(0, 8))})}};
  graph.nodes[1].copies = graph.nodes[3].copies = true;
  const auto actions = schedule(graph);
  EXPECT_EQ(streams_of(graph, actions, 3), std::vector<int>(5, compute_stream));
  EXPECT_EQ(streams_of(graph, actions, 4), (std::vector<int>{0, 3, 0, 3, 0}));
  // The copy waits for the maker, and the reader for the return. Other kernels wait for no copy.
  EXPECT_EQ(plan_streams(graph, actions, streams_of(graph, actions, 4)).events, (Events{{0, 1}, {3, 4}}));
}

TEST(StreamPlan, RefusesAStreamTooFewAndANegativeStream) {
  const StepGraph graph{{test_step_graph::kernel("a", {})}};
  const auto actions = schedule(graph);
  EXPECT_THROW((void)plan_streams(graph, actions, {}), InvalidArgument);
  EXPECT_THROW((void)plan_streams(graph, actions, {-1}), InvalidArgument);
}

TEST(StreamPlan, ComputesTheSameInEveryOrderOnAnyStreams) {
  int events = 0, most_streams = 0;
  for (int seed = 1; seed <= aloni::test::random_cases(1500); ++seed) {
    Dice dice(static_cast<std::uint64_t>(seed));
    const StepGraph graph = test_step_graph::random_graph(dice);
    const Result expected = in_sequence(graph);
    for (const ScheduleOptions& options : all_orders(dice)) {
      const auto actions = schedule(graph, options);
      SCOPED_TRACE("seed " + std::to_string(seed) + ": " +
                   testing::PrintToString(test_step_graph::lines(graph, actions)));
      for (const auto& stream_of : {communication_beside(actions), random_streams(dice, actions.size())}) {
        const StreamPlan plan = plan_streams(graph, actions, stream_of);
        ASSERT_EQ(find_race(graph, actions, plan), std::nullopt);
        ASSERT_EQ(implied_events(plan), Events{});
        ASSERT_TRUE(run_late(graph, actions, plan, random_order(static_cast<std::uint64_t>(seed))) == expected);
        events += static_cast<int>(plan.events.size());
        most_streams = std::max(most_streams, plan.streams);
      }
    }
  }
  EXPECT_GT(events, aloni::test::random_cases(1500));
  EXPECT_EQ(most_streams, 4);
}

/// The hash of a node depends on all cells that it reads and writes. So an action that runs too early, behind a missing
/// event, leaves a wrong number. Begin and end touch no cell; see test_late_streams.cpp.
TEST(StreamPlan, GivesAWrongNumberWithoutAnyOneEvent) {
  int removed = 0;
  for (int seed = 1; seed <= aloni::test::random_cases(2000); ++seed) {
    Dice dice(static_cast<std::uint64_t>(seed));
    const StepGraph graph = test_step_graph::random_graph(dice);
    const Result expected = in_sequence(graph);
    const auto actions = schedule(graph, all_orders(dice)[static_cast<std::size_t>(dice(0, 2))]);
    const StreamPlan plan = plan_streams(
        graph, actions, dice.one_in(2) ? communication_beside(actions) : random_streams(dice, actions.size()));
    for (std::size_t e = 0; e < plan.events.size(); ++e) {
      const StreamEvent event = plan.events[e];
      const StreamPlan faulty = without(plan, e);
      SCOPED_TRACE("seed " + std::to_string(seed) + ", without the event from " + std::to_string(event.after) + " to " +
                   std::to_string(event.before) + ": " +
                   testing::PrintToString(test_step_graph::lines(graph, actions)));
      ASSERT_NE(find_race(graph, actions, faulty), std::nullopt);
      if (event.after == begin_of_step || event.before == plan.end()) continue;
      // A finish without its start has no data: that is a fault of its own.
      if (actions[static_cast<std::size_t>(event.before)].node == actions[static_cast<std::size_t>(event.after)].node)
        continue;
      const StreamChoice order = early_and_late(plan.stream(event.before), plan.stream(event.after));
      ASSERT_FALSE(run_late(graph, actions, faulty, order) == expected);
      ++removed;
    }
  }
  EXPECT_GT(removed, aloni::test::random_cases(1000));
}

TEST(StreamPlan, ReportsEventsThatOthersImply) {
  for (int seed = 1; seed <= aloni::test::random_cases(300); ++seed) {
    Dice dice(static_cast<std::uint64_t>(seed));
    const StepGraph graph = test_step_graph::random_graph(dice);
    const auto actions = schedule(graph);
    const StreamPlan plan = plan_streams(graph, actions, random_streams(dice, actions.size()));
    if (plan.events.empty()) continue;
    // An event from an earlier point of the same stream to the same point is implied.
    const StreamEvent& chosen =
        plan.events[static_cast<std::size_t>(dice(0, static_cast<int>(plan.events.size()) - 1))];
    for (int point = begin_of_step; point < chosen.after; ++point) {
      if (plan.stream(point) != plan.stream(chosen.after)) continue;
      StreamPlan more = plan;
      const StreamEvent extra{point, chosen.before};
      if (std::ranges::find(plan.events, extra) != plan.events.end()) continue;
      const auto by_point = [](const StreamEvent& a, const StreamEvent& b) {
        return std::pair(a.before, a.after) < std::pair(b.before, b.after);
      };
      more.events.insert(std::ranges::upper_bound(more.events, extra, by_point), extra);
      ASSERT_EQ(implied_events(more), Events{extra}) << "seed " << seed;
    }
  }
}

/// Steps of whole networks on several ranks: each event matters to the proof.
struct NetworkCase {
  const char* model;
  ModelOptions options;
  const char* grid;
};

TEST(StreamPlan, HasNoEventTooManyInStepsOfNetworks) {
  const std::vector<NetworkCase> cases{{"lenet5", {}, "n4"},
                                       {"lenet5", {}, "h2w2"},
                                       {"resnet18", {.input = views::Extents{{1, 1, 32, 32, 3}}}, "n2h2"},
                                       {"mesh1k", {.input = views::Extents{{1, 1, 256, 256, 18}}}, "h2w2"}};
  std::size_t all_events = 0;
  int with_borders = 0;
  for (const NetworkCase& c : cases) {
    const NetworkDescription net = make_model(c.model, c.options);
    const NetworkPlan layers =
        plan_network(net, resolve(Strategy::uniform(views::ProcessGrid::parse(c.grid)), net, 4), 4, 8);
    const MachineDescription machine = machine_of_nodes(4, 0);
    std::size_t events = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const StepPlan step = plan_step(net, layers, rank, StepKind::training, machine);
      const StepGraph graph = graph_of(step);
      for (const auto& [ahead, streams] : {std::pair{0, 2}, std::pair{2, 2}, std::pair{0, 3}, std::pair{2, 3}}) {
        SCOPED_TRACE(std::string(c.model) + " " + c.grid + ", rank " + std::to_string(rank) + ", " +
                     std::to_string(streams) + " streams");
        const auto actions = schedule(graph, {.kernels_ahead = ahead});
        const StreamPlan plan = plan_streams(graph, actions, streams_of(graph, actions, streams));
        with_borders += streams == 3 && plan.streams == 3 ? 1 : 0;
        ASSERT_EQ(find_race(graph, actions, plan), std::nullopt);
        EXPECT_EQ(implied_events(plan), Events{});
        for (std::size_t e = 0; e < plan.events.size(); ++e)
          ASSERT_NE(find_race(graph, actions, without(plan, e)), std::nullopt) << "event " << e;
        events += plan.events.size();
      }
    }
    EXPECT_GT(events, 0u) << c.model;
    all_events += events;
  }
  EXPECT_GE(all_events, 200u);
  EXPECT_GE(with_borders, 16);  // of resnet18 and mesh1k
}

}  // namespace test_stream_plan
}  // namespace aloni::nn
