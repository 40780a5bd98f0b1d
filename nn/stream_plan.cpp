#include <aloni/nn/stream_plan.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <utility>

namespace aloni::nn {

namespace {

constexpr int nothing = begin_of_step - 1;  ///< the point before all points

/// What is complete at each point of a step: vector clocks (Fidge 1988; Mattern 1988). By point and stream: the last
/// point of that stream which precedes the end of this point in every order that the events allow.
class Clocks {
 public:
  explicit Clocks(const StreamPlan& plan)
      : plan_(plan),
        streams_(static_cast<std::size_t>(plan.streams)),
        after_(static_cast<std::size_t>(plan.end() + 2) * streams_, nothing),
        last_(streams_, nothing),
        now_(streams_, nothing) {
    complete(begin_of_step);
  }

  /// Goes to the point `point`: what precedes it on its own stream is complete.
  void begin(int point) {
    const int before = last_[stream(point)];
    if (before == nothing) {
      std::ranges::fill(now_, nothing);
    } else {
      const auto row = static_cast<std::size_t>(before - begin_of_step) * streams_;
      std::copy_n(after_.begin() + static_cast<std::ptrdiff_t>(row), streams_, now_.begin());
    }
  }
  /// Whether `other` is complete here.
  bool follows(int other) const { return now_[stream(other)] >= other; }
  /// Whether `other` is complete at the end of `point`, which begin() has passed.
  bool ends_after(int point, int other) const { return after(point, stream(other)) >= other; }
  /// Waits for the end of `point`, which begin() has passed.
  void await(int point) {
    for (std::size_t s = 0; s < streams_; ++s) now_[s] = std::max(now_[s], after(point, s));
  }
  void complete(int point) {
    now_[stream(point)] = point;
    std::ranges::copy(now_, after_.begin() + (point - begin_of_step) * static_cast<std::ptrdiff_t>(streams_));
    last_[stream(point)] = point;
  }

 private:
  std::size_t stream(int point) const { return static_cast<std::size_t>(plan_.stream(point)); }
  int after(int point, std::size_t stream) const {
    return after_[static_cast<std::size_t>(point - begin_of_step) * streams_ + stream];
  }

  const StreamPlan& plan_;
  std::size_t streams_;
  std::vector<int> after_, last_, now_;
};

/// The last action of each node, or its start.
std::vector<int> positions(const StepGraph& graph, const std::vector<StepAction>& actions, bool of_starts) {
  std::vector<int> position(graph.nodes.size(), nothing);
  for (std::size_t a = 0; a < actions.size(); ++a)
    if ((actions[a].kind == StepActionKind::start) == of_starts)
      position[static_cast<std::size_t>(actions[a].node)] = static_cast<int>(a);
  return position;
}

/// Calls f(earlier point) for each point that must be complete before `point` begins.
class NeededPoints {
 public:
  NeededPoints(const StepGraph& graph, const std::vector<StepAction>& actions)
      : actions_(actions),
        before_(dependencies(graph)),
        starts_(positions(graph, actions, true)),
        ends_(positions(graph, actions, false)) {}

  template <class F>
  void of(int point, const F& f) const {
    f(begin_of_step);
    if (point == static_cast<int>(actions_.size())) {
      for (int a = 0; a < point; ++a) f(a);
      return;
    }
    const StepAction& action = actions_[static_cast<std::size_t>(point)];
    const auto node = static_cast<std::size_t>(action.node);
    if (action.kind == StepActionKind::finish) {
      f(starts_[node]);
    } else {
      for (const int j : before_[node]) f(ends_[static_cast<std::size_t>(j)]);
    }
  }

 private:
  const std::vector<StepAction>& actions_;
  std::vector<std::vector<int>> before_;
  std::vector<int> starts_, ends_;
};

std::string name_of(const StepGraph& graph, const std::vector<StepAction>& actions, const StreamPlan& plan, int point) {
  if (point == begin_of_step) return "work before the step (stream 0)";
  if (point == plan.end()) return "work after the step (stream 0)";
  const StepAction& action = actions[static_cast<std::size_t>(point)];
  const char* const what = action.kind == StepActionKind::run     ? ""
                           : action.kind == StepActionKind::start ? "start of "
                                                                  : "finish of ";
  return what + graph.nodes[static_cast<std::size_t>(action.node)].label + " (action " + std::to_string(point) +
         ", stream " + std::to_string(plan.stream(point)) + ")";
}

}  // namespace

void check_streams(int streams, const std::string& operation) {
  if (streams >= 1 && streams <= most_streams) return;
  throw InvalidArgument(operation, "options.streams", std::to_string(streams),
                        "1 (all in order), 2 (communication beside kernels), 3 (borders of convolutions too), or 4 "
                        "(copies to host memory too)");
}

std::vector<int> streams_of(const StepGraph& graph, const std::vector<StepAction>& actions, int streams) {
  std::vector<int> stream_of;
  for (const StepAction& action : actions) {
    const bool communicates = action.kind != StepActionKind::run;
    const StepNode& node = graph.nodes[static_cast<std::size_t>(action.node)];
    int stream = compute_stream;
    if (communicates && streams > communication_stream) stream = communication_stream;
    if (node.border && has_border_stream(streams)) stream = border_stream;
    if (node.copies && streams > copy_stream) stream = copy_stream;
    stream_of.push_back(stream);
  }
  return stream_of;
}

std::vector<int> communication_beside(const std::vector<StepAction>& actions) {
  std::vector<int> streams;
  for (const StepAction& action : actions)
    streams.push_back(action.kind == StepActionKind::run ? compute_stream : communication_stream);
  return streams;
}

StreamPlan plan_streams(const StepGraph& graph, const std::vector<StepAction>& actions, std::vector<int> stream_of) {
  if (stream_of.size() != actions.size()) {
    throw InvalidArgument("aloni::nn::plan_streams", "stream_of", std::to_string(stream_of.size()) + " streams",
                          "one for each of the " + std::to_string(actions.size()) + " actions");
  }
  StreamPlan plan;
  plan.stream_of = std::move(stream_of);
  for (const int s : plan.stream_of) {
    if (s < 0) throw InvalidArgument("aloni::nn::plan_streams", "stream_of", std::to_string(s), "numbers from 0 on");
    plan.streams = std::max(plan.streams, s + 1);
  }
  const NeededPoints needed(graph, actions);
  Clocks clocks(plan);
  std::vector<int> latest(static_cast<std::size_t>(plan.streams));  // of each stream: the last needed point
  for (int point = 0; point <= plan.end(); ++point) {
    clocks.begin(point);
    std::ranges::fill(latest, nothing);
    needed.of(point, [&](int other) {
      int& last = latest[static_cast<std::size_t>(plan.stream(other))];
      if (!clocks.follows(other)) last = std::max(last, other);
    });
    // What another awaited point implies needs no event.
    std::vector<int> awaited;
    for (const int other : latest) {
      const bool implied = std::ranges::any_of(
          latest, [&](int o) { return o != other && o != nothing && other != nothing && clocks.ends_after(o, other); });
      if (other != nothing && !implied) awaited.push_back(other);
    }
    std::ranges::sort(awaited);
    for (const int other : awaited) {
      plan.events.push_back({other, point});
      clocks.await(other);
    }
    if (point < plan.end()) clocks.complete(point);
  }
  return plan;
}

std::optional<std::string> find_race(const StepGraph& graph, const std::vector<StepAction>& actions,
                                     const StreamPlan& plan) {
  const NeededPoints needed(graph, actions);
  Clocks clocks(plan);
  auto event = plan.events.begin();
  for (int point = 0; point <= plan.end(); ++point) {
    clocks.begin(point);
    for (; event != plan.events.end() && event->before == point; ++event) {
      if (event->after >= point) {
        return name_of(graph, actions, plan, point) + " waits for an event that is recorded only behind " +
               name_of(graph, actions, plan, event->after);
      }
      clocks.await(event->after);
    }
    std::optional<std::string> race;
    needed.of(point, [&](int other) {
      if (!race && !clocks.follows(other))
        race = name_of(graph, actions, plan, point) + " may run before " + name_of(graph, actions, plan, other);
    });
    if (race) return race;
    if (point < plan.end()) clocks.complete(point);
  }
  return std::nullopt;
}

std::vector<StreamEvent> implied_events(const StreamPlan& plan) {
  std::vector<StreamEvent> implied;
  for (std::size_t e = 0; e < plan.events.size(); ++e) {
    const StreamEvent& left_out = plan.events[e];
    Clocks clocks(plan);
    for (int point = 0, k = 0; point <= left_out.before; ++point) {
      clocks.begin(point);
      for (; k < static_cast<int>(plan.events.size()) && plan.events[static_cast<std::size_t>(k)].before == point; ++k)
        if (k != static_cast<int>(e)) clocks.await(plan.events[static_cast<std::size_t>(k)].after);
      if (point == left_out.before && clocks.follows(left_out.after)) implied.push_back(left_out);
      if (point < plan.end()) clocks.complete(point);
    }
  }
  return implied;
}

}  // namespace aloni::nn
