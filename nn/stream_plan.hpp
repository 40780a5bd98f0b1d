#pragma once
// Which stream runs each action of a step, and for which actions of other streams it waits: streams and events as data.
//
//   const auto actions = schedule(graph);
//   const StreamPlan plan = plan_streams(graph, actions, streams_of(graph, actions, 3));
//   find_race(graph, actions, plan);                      // nothing: every access comes after those it depends on
//   run_on_streams(plan, streams, [&](std::size_t a, const auto& queue) { … });
//
// A stream runs its actions one after the other, in the order in which they are submitted. Actions of two streams run
// in any order, or at the same time, unless an event is between them. The plan is pure arithmetic, like the graph: a
// device runs it (nn/step.hpp), tests run it late and in random orders, and `model` prices it.
#include <aloni/nn/step_graph.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace aloni::nn {

/// The stream of the caller: earlier work on it precedes the step, later work sees all results.
inline constexpr int compute_stream = 0;
inline constexpr int communication_stream = 1;  ///< transfers and sums over ranks, as streams_of() says
inline constexpr int border_stream = 2;         ///< borders of convolutions, beside their interiors
inline constexpr int copy_stream = 3;           ///< copies between device and host memory (nn/plan/offloading.hpp)
inline constexpr int most_streams = 4;

/// Whether borders have a stream of their own where a step has so many streams.
constexpr bool has_border_stream(int streams) { return streams > border_stream; }
/// Of a step, unless an option says otherwise. On a host all actions run in order on one stream.
constexpr int default_streams(bool on_host) { return on_host ? 1 : most_streams; }
/// Throws InvalidArgument with `operation` unless `streams` is from 1 to most_streams.
void check_streams(int streams, const std::string& operation);

/// A point of a step: an action, by its position in the list; or begin_of_step, or StreamPlan::end(). Begin and end are
/// points of the compute stream.
inline constexpr int begin_of_step = -1;

/// Recorded behind the point `after`, on its stream. The stream of the point `before` waits for it before that point.
struct StreamEvent {
  int after = begin_of_step, before = 0;

  friend auto operator<=>(const StreamEvent&, const StreamEvent&) = default;
};

struct StreamPlan {
  int streams = 1;
  std::vector<int> stream_of = {};       ///< of each action, from 0 to streams - 1
  std::vector<StreamEvent> events = {};  ///< in the order of `before`, then of `after`

  int end() const { return static_cast<int>(stream_of.size()); }
  int stream(int point) const {
    return point == begin_of_step || point == end() ? compute_stream : stream_of[static_cast<std::size_t>(point)];
  }
};

/// The stream of each action, from the kinds of the nodes. 1: all actions on the compute stream. 2: communication on
/// its own stream. 3: borders of convolutions too. 4: copies between device and host memory too.
/// @pre 1 ≤ streams ≤ most_streams
std::vector<int> streams_of(const StepGraph& graph, const std::vector<StepAction>& actions, int streams);
/// As streams_of() with 2 streams.
std::vector<int> communication_beside(const std::vector<StepAction>& actions);

/// Events by which all dependencies of the graph hold. Without any one of them, some action could run before an action
/// that it depends on: an event that others imply is left out.
/// `stream_of`: of each action. Start and finish of one node may be on different streams.
/// @pre `actions` is an order of schedule(graph)
/// Throws InvalidArgument if `stream_of` has another length, or a negative number.
StreamPlan plan_streams(const StepGraph& graph, const std::vector<StepAction>& actions, std::vector<int> stream_of);

/// Two accesses that the plan leaves in any order although one depends on the other, as a sentence; nothing if there
/// are none. Also reports an event that never comes, because a later action records it. Proves the plan for every order
/// that the events allow: each dependency of the graph, each start before its finish, and the step behind its begin and
/// before its end.
std::optional<std::string> find_race(const StepGraph& graph, const std::vector<StepAction>& actions,
                                     const StreamPlan& plan);

/// The events whose order also follows from the other events and the order of the streams.
std::vector<StreamEvent> implied_events(const StreamPlan& plan);

/// Submits all actions in their order. `Streams` has these functions; `point` names an event by the point that records
/// it:
///   submit(int stream, f)             calls f(queue) with the queue of the stream: now, or later in the stream's order
///   record(int stream, int point)     the event is reached once the stream has done its work so far
///   await(int stream, int point)      later work of the stream comes after the event
/// `act(a, queue)` submits the work of action `a` to the queue. It is copied if `Streams` keeps it.
template <class Streams, class Act>
void run_on_streams(const StreamPlan& plan, Streams& streams, const Act& act) {
  std::size_t next = 0;
  const auto await_events_before = [&](int point) {
    for (; next < plan.events.size() && plan.events[next].before == point; ++next)
      streams.await(plan.stream(point), plan.events[next].after);
  };
  streams.record(compute_stream, begin_of_step);
  for (std::size_t a = 0; a < plan.stream_of.size(); ++a) {
    const auto point = static_cast<int>(a);
    await_events_before(point);
    streams.submit(plan.stream_of[a], [act, a](const auto& queue) { act(a, queue); });
    streams.record(plan.stream_of[a], point);
  }
  await_events_before(plan.end());
}

}  // namespace aloni::nn
