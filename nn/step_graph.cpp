#include <aloni/nn/step_graph.hpp>

#include <algorithm>
#include <cstddef>

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

/// Goes through a step once and writes down what is done.
class Scheduler {
 public:
  explicit Scheduler(const StepGraph& graph)
      : graph_(graph), before_(dependencies(graph)), state_(graph.nodes.size()) {}

  std::vector<StepAction> run() {
    const int count = static_cast<int>(state_.size());
    while (true) {
      start_what_can_start();
      const int kernel = first_kernel();
      if (kernel < count) {
        act(StepActionKind::run, kernel, State::complete);
        continue;
      }
      const int needed = needed_next();
      if (needed == count) return std::move(actions_);
      act(StepActionKind::finish, first_transfer_in_flight(needed), State::complete);
    }
  }

 private:
  enum class State : std::uint8_t { waits, in_flight, complete };

  NodeKind kind(int i) const { return graph_.nodes[static_cast<std::size_t>(i)].kind; }
  State& state(int i) { return state_[static_cast<std::size_t>(i)]; }
  bool ready(int i) {
    return std::ranges::all_of(before_[static_cast<std::size_t>(i)],
                               [&](int j) { return state(j) == State::complete; });
  }
  void act(StepActionKind what, int node, State becomes) {
    actions_.push_back({what, node});
    state(node) = becomes;
  }

  void start_what_can_start() {
    const int count = static_cast<int>(state_.size());
    for (int i = 0; i < count; ++i) {
      if (kind(i) == NodeKind::kernel || state(i) != State::waits) continue;
      if (!ready(i)) return;
      act(StepActionKind::start, i, State::in_flight);
    }
  }
  int first_kernel() {
    const int count = static_cast<int>(state_.size());
    int i = 0;
    while (i < count && (kind(i) != NodeKind::kernel || state(i) != State::waits || !ready(i))) ++i;
    return i;
  }
  /// Of what is in flight. All before the first node that waits has begun: that waits for something in flight.
  int needed_next() {
    const int count = static_cast<int>(state_.size());
    const auto in_flight = [&](int i) { return state(i) == State::in_flight; };
    for (int i = 0; i < count; ++i) {
      if (state(i) == State::waits) return *std::ranges::find_if(before_[static_cast<std::size_t>(i)], in_flight);
    }
    int i = 0;
    while (i < count && !in_flight(i)) ++i;
    return i;
  }
  /// Before `end`, or else that.
  int first_transfer_in_flight(int end) {
    int i = 0;
    while (i < end && (state(i) != State::in_flight || kind(i) != NodeKind::transfer)) ++i;
    return i;
  }

  const StepGraph& graph_;
  std::vector<std::vector<int>> before_;
  std::vector<State> state_;
  std::vector<StepAction> actions_;
};

}  // namespace

std::vector<StepAction> schedule(const StepGraph& graph) { return Scheduler(graph).run(); }

}  // namespace aloni::nn
