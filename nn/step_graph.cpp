#include <aloni/nn/step_graph.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <random>
#include <utility>

namespace aloni::nn {

namespace {

bool conflict(const Access& a, const Access& b) {
  return (a.writes || b.writes) && a.memory == b.memory && a.memory != nullptr && !intersect(a.box, b.box).empty();
}

bool conflict(const StepNode& a, const StepNode& b) {
  return std::ranges::any_of(a.accesses, [&](const Access& mine) {
    return std::ranges::any_of(b.accesses, [&](const Access& other) { return conflict(mine, other); });
  });
}

}  // namespace

std::vector<std::vector<int>> dependencies(const StepGraph& graph) {
  const int count = static_cast<int>(graph.nodes.size());
  const auto n = static_cast<std::size_t>(count);
  std::vector<std::vector<int>> before(n);
  std::vector<std::vector<bool>> reaches(n, std::vector<bool>(n, false));  // [i][j]: i waits for j, directly or not
  for (int i = 0; i < count; ++i) {
    auto& reached = reaches[static_cast<std::size_t>(i)];
    for (int j = i - 1; j >= 0; --j) {
      const auto earlier = static_cast<std::size_t>(j);
      if (reached[earlier] || !conflict(graph.nodes[static_cast<std::size_t>(i)], graph.nodes[earlier])) continue;
      before[static_cast<std::size_t>(i)].push_back(j);
      reached[earlier] = true;
      for (std::size_t k = 0; k < earlier; ++k) reached[k] = reached[k] || reaches[earlier][k];
    }
    std::ranges::reverse(before[static_cast<std::size_t>(i)]);
  }
  return before;
}

namespace {

/// Simulates a step once and records its actions.
class Scheduler {
 public:
  Scheduler(const StepGraph& graph, const ScheduleOptions& options)
      : graph_(graph),
        ahead_(options.kernels_ahead),
        before_(dependencies(graph)),
        state_(graph.nodes.size()),
        place_(graph.nodes.size(), 0) {}

  std::vector<StepAction> run() {
    while (true) {
      start_what_can_start(ahead_);
      const int kernel = first_kernel();
      if (kernel < count()) {
        act(StepActionKind::run, kernel);
        continue;
      }
      if (ahead_ > 0 && start_what_can_start(0)) continue;
      const int needed = needed_next();
      if (needed == count()) return std::move(actions_);
      act(StepActionKind::finish, first_transfer_in_flight(needed));
    }
  }

  std::vector<StepAction> run_at_random(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    while (true) {
      std::vector<StepAction> possible;
      for (int i = 0; i < count(); ++i)
        if (is_waiting_kernel(i) && ready(i)) possible.push_back({StepActionKind::run, i});
      const int next = first_unstarted();
      if (next < count() && ready(next)) possible.push_back({StepActionKind::start, next});
      const int flying = first_transfer_in_flight(first_in_flight());
      if (flying < count()) possible.push_back({StepActionKind::finish, flying});
      if (possible.empty()) return std::move(actions_);
      const StepAction& chosen = possible[static_cast<std::size_t>(random() % possible.size())];
      act(chosen.kind, chosen.node);
    }
  }

 private:
  enum class State : std::uint8_t { waits, in_flight, complete };

  int count() const { return static_cast<int>(state_.size()); }
  NodeKind kind(int i) const { return graph_.nodes[static_cast<std::size_t>(i)].kind; }
  State state(int i) const { return state_[static_cast<std::size_t>(i)]; }
  bool ready(int i) const {
    return std::ranges::all_of(before_[static_cast<std::size_t>(i)],
                               [&](int j) { return state(j) == State::complete; });
  }
  bool is_waiting_kernel(int i) const { return kind(i) == NodeKind::kernel && state(i) == State::waits; }
  void act(StepActionKind what, int node) {
    actions_.push_back({what, node});
    if (what == StepActionKind::run) place_[static_cast<std::size_t>(node)] = ++kernels_;
    state_[static_cast<std::size_t>(node)] = what == StepActionKind::start ? State::in_flight : State::complete;
  }

  /// The first i for which the condition holds, else count().
  template <class Condition>
  int first(const Condition& holds) const {
    int i = 0;
    while (i < count() && !holds(i)) ++i;
    return i;
  }
  int first_unstarted() const {
    return first([&](int i) { return kind(i) != NodeKind::kernel && state(i) == State::waits; });
  }
  int first_in_flight() const {
    return first([&](int i) { return state(i) == State::in_flight; });
  }
  int first_kernel() const {
    return first([&](int i) { return is_waiting_kernel(i) && ready(i); });
  }

  /// Starts communication while the next in order is ready. Returns whether any has started. Communication that needs
  /// a kernel starts only after `ahead` further kernels.
  bool start_what_can_start(int ahead) {
    bool any = false;
    for (int i = first_unstarted(); i < count() && ready(i); i = first_unstarted(), any = true) {
      const bool early = std::ranges::any_of(before_[static_cast<std::size_t>(i)], [&](int j) {
        return kind(j) == NodeKind::kernel && kernels_ - place_[static_cast<std::size_t>(j)] < ahead;
      });
      if (early) break;
      act(StepActionKind::start, i);
    }
    return any;
  }
  /// Of the communication in flight, the first that the first waiting node needs. All nodes before that one have
  /// started, so it waits for a node in flight.
  int needed_next() const {
    const int waiting = first([&](int i) { return state(i) == State::waits; });
    if (waiting == count()) return first_in_flight();
    return *std::ranges::find_if(before_[static_cast<std::size_t>(waiting)],
                                 [&](int i) { return state(i) == State::in_flight; });
  }
  /// The first transfer in flight before `end`, else `end`.
  int first_transfer_in_flight(int end) const {
    return std::min(end, first([&](int i) { return state(i) == State::in_flight && kind(i) == NodeKind::transfer; }));
  }

  const StepGraph& graph_;
  int ahead_;
  std::vector<std::vector<int>> before_;
  std::vector<State> state_;
  int kernels_ = 0;         ///< number of kernels that have run
  std::vector<int> place_;  ///< of each kernel: its position in the order of runs, from 1
  std::vector<StepAction> actions_;
};

}  // namespace

std::vector<StepAction> schedule(const StepGraph& graph, const ScheduleOptions& options) {
  Scheduler scheduler(graph, options);
  return options.seed > 0 ? scheduler.run_at_random(options.seed) : scheduler.run();
}

std::vector<int> waits_between_queues(const StepGraph& graph, const std::vector<StepAction>& actions) {
  const std::vector<std::vector<int>> before = dependencies(graph);
  std::vector<int> end(graph.nodes.size(), -1);  // last action of each node
  std::array<int, 2> waited{-1, -1};             // by queue: the last action waited for
  std::vector<int> waits;
  for (int a = 0; a < static_cast<int>(actions.size()); ++a) {
    const StepAction& action = actions[static_cast<std::size_t>(a)];
    const auto queue_of = [&](int node) {
      return graph.nodes[static_cast<std::size_t>(node)].kind == NodeKind::kernel ? 0 : 1;
    };
    const auto mine = static_cast<std::size_t>(queue_of(action.node));
    int last = -1;
    for (const int j : before[static_cast<std::size_t>(action.node)])
      if (queue_of(j) != queue_of(action.node)) last = std::max(last, end[static_cast<std::size_t>(j)]);
    waits.push_back(last > waited[mine] ? last : -1);
    waited[mine] = std::max(waited[mine], last);
    if (action.kind != StepActionKind::start) end[static_cast<std::size_t>(action.node)] = a;
  }
  return waits;
}

}  // namespace aloni::nn
