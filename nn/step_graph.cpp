#include <aloni/nn/step_graph.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <random>
#include <unordered_map>
#include <utility>

namespace aloni::nn {

namespace {

bool touches(const Access& a) { return a.memory != nullptr && !a.box.empty(); }

/// The accesses to one block, in the order of the nodes.
struct Block {
  struct Use {
    int node;
    views::Box box;
    bool writes;
  };
  std::uintptr_t begin = 0, end = 0;  ///< equal: overlaps no other
  std::vector<Use> uses = {};
  std::vector<int> overlaps = {};  ///< other blocks
};

struct BlockAccess {
  int block = 0;
  const Access* access = nullptr;
};

/// Rows of bits, one row for each node.
class BitRows {
 public:
  explicit BitRows(std::size_t n) : words_((n + 63) / 64), bits_(n * words_, 0) {}
  bool test(std::size_t row, std::size_t i) const { return (bits_[row * words_ + i / 64] >> (i % 64) & 1) != 0; }
  void set(std::size_t row, std::size_t i) { bits_[row * words_ + i / 64] |= std::uint64_t{1} << (i % 64); }
  void add(std::size_t row, std::size_t other) {
    for (std::size_t w = 0; w < words_; ++w) bits_[row * words_ + w] |= bits_[other * words_ + w];
  }

 private:
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

}  // namespace

std::vector<std::vector<int>> dependencies(const StepGraph& graph) {
  const std::size_t n = graph.nodes.size();
  std::vector<Block> blocks;
  std::vector<std::vector<BlockAccess>> accesses(n);
  std::unordered_map<const void*, int> numbers;
  for (std::size_t i = 0; i < n; ++i) {
    for (const Access& a : graph.nodes[i].accesses) {
      if (!touches(a)) continue;
      const auto [place, is_new] = numbers.try_emplace(a.memory, static_cast<int>(blocks.size()));
      if (is_new) blocks.push_back({.begin = a.address, .end = a.address + a.bytes});
      accesses[i].push_back({place->second, &a});
    }
  }
  // Blocks in ascending order of addresses: those that overlap a block follow it until one begins behind its end.
  std::vector<int> sorted;
  for (int b = 0; b < static_cast<int>(blocks.size()); ++b)
    if (blocks[static_cast<std::size_t>(b)].begin != blocks[static_cast<std::size_t>(b)].end) sorted.push_back(b);
  std::ranges::sort(sorted, std::less{}, [&](int b) { return blocks[static_cast<std::size_t>(b)].begin; });
  for (std::size_t k = 0; k < sorted.size(); ++k) {
    Block& block = blocks[static_cast<std::size_t>(sorted[k])];
    for (std::size_t m = k + 1; m < sorted.size(); ++m) {
      Block& other = blocks[static_cast<std::size_t>(sorted[m])];
      if (other.begin >= block.end) break;
      block.overlaps.push_back(sorted[m]);
      other.overlaps.push_back(sorted[k]);
    }
  }
  std::vector<std::vector<int>> before(n);
  BitRows reaches(n);  // row i, bit j: i waits for j, directly or not
  std::vector<int> candidates;
  for (std::size_t i = 0; i < n; ++i) {
    candidates.clear();
    for (const auto& [number, a] : accesses[i]) {
      const Block& block = blocks[static_cast<std::size_t>(number)];
      for (const Block::Use& use : block.uses)
        if ((use.writes || a->writes) && !intersect(use.box, a->box).empty()) candidates.push_back(use.node);
      for (const int other : block.overlaps)
        for (const Block::Use& use : blocks[static_cast<std::size_t>(other)].uses)
          if (use.writes || a->writes) candidates.push_back(use.node);
    }
    std::ranges::sort(candidates, std::greater{});
    for (const int j : candidates) {
      const auto earlier = static_cast<std::size_t>(j);
      if (reaches.test(i, earlier)) continue;
      before[i].push_back(j);
      reaches.set(i, earlier);
      reaches.add(i, earlier);
    }
    std::ranges::reverse(before[i]);
    for (const auto& [number, a] : accesses[i])
      blocks[static_cast<std::size_t>(number)].uses.push_back({static_cast<int>(i), a->box, a->writes});
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
        place_(graph.nodes.size(), 0) {
    find_first_nodes();
  }

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
    find_first_nodes();
  }
  void find_first_nodes() {
    waiting_kernel_ = first(waiting_kernel_, [&](int i) { return is_waiting_kernel(i); });
    unstarted_ = first(unstarted_, [&](int i) { return kind(i) != NodeKind::kernel && state(i) == State::waits; });
    flying_ = first(flying_, [&](int i) { return kind(i) != NodeKind::kernel && state(i) != State::complete; });
    transfer_ = first(transfer_, [&](int i) { return kind(i) == NodeKind::transfer && state(i) != State::complete; });
  }

  /// The first i from `from` on for which the condition holds, else count().
  template <class Condition>
  int first(int from, const Condition& holds) const {
    int i = from;
    while (i < count() && !holds(i)) ++i;
    return i;
  }
  int first_unstarted() const { return unstarted_; }
  int first_in_flight() const { return flying_ < count() && state(flying_) == State::in_flight ? flying_ : count(); }
  int first_kernel() const {
    return first(waiting_kernel_, [&](int i) { return is_waiting_kernel(i) && ready(i); });
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
    const int waiting = std::min(waiting_kernel_, unstarted_);
    if (waiting == count()) return first_in_flight();
    return *std::ranges::find_if(before_[static_cast<std::size_t>(waiting)],
                                 [&](int i) { return state(i) == State::in_flight; });
  }
  /// The first transfer in flight before `end`, else `end`.
  int first_transfer_in_flight(int end) const {
    return transfer_ < end && state(transfer_) == State::in_flight ? transfer_ : end;
  }

  const StepGraph& graph_;
  int ahead_;
  std::vector<std::vector<int>> before_;
  std::vector<State> state_;
  int kernels_ = 0;  ///< number of kernels that have run
  // The first kernel that waits, communication that waits, communication and transfer that are not complete.
  // Communication starts in the order of the nodes. So none of these moves back, and no search begins at node 0.
  int waiting_kernel_ = 0, unstarted_ = 0, flying_ = 0, transfer_ = 0;
  std::vector<int> place_;  ///< of each kernel: its position in the order of runs, from 1
  std::vector<StepAction> actions_;
};

}  // namespace

std::vector<StepAction> schedule(const StepGraph& graph, const ScheduleOptions& options) {
  Scheduler scheduler(graph, options);
  return options.seed > 0 ? scheduler.run_at_random(options.seed) : scheduler.run();
}

}  // namespace aloni::nn
