#include <aloni/nn/plan/detail/offload_planner.hpp>

#include <aloni/nn/plan/memory_layout.hpp>

#include <algorithm>
#include <cstddef>
#include <ranges>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::nn::detail {

namespace {

/// A root buffer that leaves behind the node `leaves`, and that a node of the backward pass first uses at `used`. All
/// are positions in the list without copies.
struct OffloadedBuffer {
  BufferId buffer = no_buffer;
  int leaves = 0, used = 0;
  int free = 0;     ///< the node from which others may have its place
  int returns = 0;  ///< the node before which it begins to return
};

/// Buffers of so many nodes are on their way at once, in each direction.
constexpr std::size_t nodes_on_the_way = 2;

/// Positions of maxima, which pooling writes for its backward pass; no_buffer: none.
BufferId positions_of(const Work& work) {
  if (const auto* pooling = std::get_if<PoolingWork>(&work)) return pooling->argmax;
  if (const auto* resampling = std::get_if<ResamplingWork>(&work)) return resampling->argmax;
  return no_buffer;
}

class OffloadPlanner {
 public:
  OffloadPlanner(PlanBuilder& builder, const Offloading& layers) : builder_(builder), plan_(builder.plan()) {
    find_times();
    find_buffers(layers);
    find_offloaded();
    drop_useless_ones();
  }

  void add() {
    if (offloaded_.empty()) return;
    // One element for each return: otherwise the next kernel that opens a gate would wait for the copy before.
    gates_ = builder_.add_array("offload", BufferRole::workspace, ElementType::int32, std::ssize(offloaded_));
    builder_.at(gates_).by_kernels = true;         // they stand for the order alone
    std::vector<std::pair<int, PlanNode>> copies;  // by the position before which they stand
    std::vector<PlanNode> returning;
    for (const OffloadedBuffer& j : offloaded_) {
      auto [away, back] = copies_of(j);
      copies.emplace_back(j.leaves + 1, std::move(away));
      const PlanRegion gate = gate_of(returning.size());
      back.reads.push_back(gate);
      open(gate, j.returns);
      returning.push_back(std::move(back));
    }
    for (std::size_t k = 0; k < offloaded_.size(); ++k)
      copies.emplace_back(offloaded_[k].returns, std::move(returning[k]));
    std::ranges::stable_sort(copies, {}, [](const auto& c) { return c.first; });
    insert(std::move(copies));
  }

 private:
  PlanNode& node(int n) { return plan_.nodes[static_cast<std::size_t>(n)]; }
  int size() const { return static_cast<int>(plan_.nodes.size()); }

  void find_times() {
    times_ = {0};
    for (const PlanNode& n : plan_.nodes) {
      double time = 0;
      if (n.kind() == NodeKind::kernel)
        time = bytes_copied_beside(cost(plan_, n, builder_.machine()), builder_.activations(),
                                   builder_.machine().work_per_copied_byte);
      times_.push_back(times_.back() + time);
    }
  }
  /// Before the node.
  double time(int n) const { return times_[static_cast<std::size_t>(n)]; }
  double copy_time(const OffloadedBuffer& j) const { return static_cast<double>(builder_[j.buffer].bytes()); }
  /// The first node that begins at this time or later, and the last one that begins at it or earlier.
  int first_node_from(double t) const { return static_cast<int>(std::ranges::lower_bound(times_, t) - times_.begin()); }
  int last_node_until(double t) const {
    return static_cast<int>(std::ranges::upper_bound(times_, t) - times_.begin()) - 1;
  }

  /// The buffers of the layers that may leave, and the layer of each.
  void find_buffers(const Offloading& layers) {
    owner_.assign(plan_.buffers.size(), -1);
    std::vector<bool> seen(plan_.buffers.size(), false);
    for (const PlanNode& n : plan_.nodes) {
      if (n.phase != StepPhase::forward) continue;
      for (const PlanRegion& r : n.writes) {
        const BufferId root = plan_.root(r.buffer);
        const auto b = static_cast<std::size_t>(root);
        if (seen[b]) continue;
        seen[b] = true;
        const PlanBuffer& buffer = plan_.buffers[b];
        const bool is_activation = buffer.role == BufferRole::activation || buffer.role == BufferRole::ghosts;
        const bool moves = is_activation || root == positions_of(n.work);
        if (!moves || has_own_memory(buffer) || buffer.adopted || buffer.box.empty()) continue;
        if (std::ranges::binary_search(layers, n.layer)) owner_[b] = n.layer;
      }
    }
  }

  void find_offloaded() {
    std::vector<OffloadedBuffer> of(plan_.buffers.size(), OffloadedBuffer{.leaves = -1, .used = -1});
    std::vector<bool> written_again(plan_.buffers.size(), false);
    for (int n = 0; n < size(); ++n) {
      const auto touch = [&](const PlanRegion& r, bool writes) {
        const auto b = static_cast<std::size_t>(plan_.root(r.buffer));
        if (owner_[b] < 0) return;
        if (node(n).phase == StepPhase::forward || node(n).phase == StepPhase::loss) of[b].leaves = n;
        if (node(n).phase == StepPhase::backward && of[b].used < 0) of[b].used = n;
        // Its contents are computed again: they are not needed in between.
        if (writes && node(n).repeats >= 0) written_again[b] = true;
      };
      for (const PlanRegion& r : node(n).reads) touch(r, false);
      for (const PlanRegion& r : node(n).writes) touch(r, true);
    }
    for (std::size_t b = 0; b < of.size(); ++b) {
      if (of[b].leaves < 0 || of[b].used < 0 || written_again[b]) continue;
      of[b].buffer = static_cast<BufferId>(b);
      offloaded_.push_back(of[b]);
    }
    std::ranges::sort(offloaded_, {}, [](const OffloadedBuffer& j) { return std::tuple(j.used, -j.leaves, j.buffer); });
    find_copies();
  }

  /// Sets `free` and `returns` of all buffers.
  void find_copies() {
    std::vector<OffloadedBuffer*> order;
    for (OffloadedBuffer& j : offloaded_) order.push_back(&j);
    std::ranges::stable_sort(order, {}, &OffloadedBuffer::leaves);
    std::vector<int> leaves, uses;  // each node once, ascending
    for (const OffloadedBuffer* const j : order)
      if (leaves.empty() || leaves.back() < j->leaves) leaves.push_back(j->leaves);
    for (const OffloadedBuffer& j : offloaded_)
      if (uses.empty() || uses.back() < j.used) uses.push_back(j.used);
    const auto place = [](const std::vector<int>& nodes, int node) {
      return static_cast<std::size_t>(std::ranges::lower_bound(nodes, node) - nodes.begin());
    };
    double end = 0;
    for (OffloadedBuffer* const j : order) {
      end = std::max(end, time(j->leaves + 1)) + copy_time(*j);
      j->free = std::clamp(first_node_from(end), j->leaves + 1, size());
      const std::size_t next = std::min(place(leaves, j->leaves) + nodes_on_the_way, leaves.size() - 1);
      j->free = std::min(j->free, leaves[next] + 1);
    }
    const auto backward = std::ranges::find(plan_.nodes, StepPhase::backward, &PlanNode::phase);
    const auto begin = static_cast<int>(backward - plan_.nodes.begin());
    double start = time(size());
    for (OffloadedBuffer& j : std::views::reverse(offloaded_)) {
      start = std::min(start, time(j.used)) - copy_time(j);
      const std::size_t use = place(uses, j.used);
      const int earliest = use >= nodes_on_the_way ? std::max(begin, uses[use - nodes_on_the_way]) : begin;
      j.returns = std::clamp(last_node_until(start), earliest, j.used);
    }
  }

  void drop_useless_ones() {
    const auto is_useless = [](const OffloadedBuffer& j) { return j.free >= j.returns; };
    while (std::erase_if(offloaded_, is_useless) > 0) find_copies();
  }

  std::pair<PlanNode, PlanNode> copies_of(const OffloadedBuffer& j) {
    const PlanBuffer moved = builder_[j.buffer];
    const BufferId host = builder_.add({.name = moved.name + ".host",
                                        .role = BufferRole::offloaded,
                                        .type = moved.type,
                                        .owned = moved.owned,
                                        .box = moved.box});
    const int layer = owner_[static_cast<std::size_t>(j.buffer)];
    PlanNode away{.label = "forward: " + moved.name + " to host memory",
                  .layer = layer,
                  .phase = StepPhase::forward,
                  .work = OffloadWork{.buffer = j.buffer, .host = host, .kept_until = j.free},
                  .reads = {builder_.whole(j.buffer)},
                  .writes = {builder_.whole(host)}};
    PlanNode back{.label = "backward: " + moved.name + " from host memory",
                  .layer = layer,
                  .phase = StepPhase::backward,
                  .work = OffloadWork{.back = true, .buffer = j.buffer, .host = host},
                  .reads = {builder_.whole(host)},
                  .writes = {builder_.whole(j.buffer)}};
    return {std::move(away), std::move(back)};
  }

  PlanRegion gate_of(std::size_t number) const {
    const auto k = static_cast<Index>(number);
    return {gates_, {{0, 0, 0, 0, k}, {1, 1, 1, 1, k + 1}}};
  }
  /// Whether a kernel has its place in the order of the layers. Copies of weights need parameters alone, and run early.
  bool follows_from_activations(const PlanNode& n) const {
    const auto is_of_samples = [&](const PlanRegion& r) {
      const BufferRole role = plan_.buffers[static_cast<std::size_t>(plan_.root(r.buffer))].role;
      return role == BufferRole::activation || role == BufferRole::gradient || role == BufferRole::ghosts;
    };
    return n.kind() == NodeKind::kernel &&
           (std::ranges::any_of(n.reads, is_of_samples) || std::ranges::any_of(n.writes, is_of_samples));
  }
  /// The last such kernel before the return opens the gate. Without it a buffer would return as early as its memory
  /// allows, where the step waits for other ranks.
  void open(const PlanRegion& gate, int returns) {
    for (int n = returns - 1; n >= 0; --n) {
      if (!follows_from_activations(node(n))) continue;
      node(n).writes.push_back(gate);
      return;
    }
  }

  /// `copies`: by the position before which each stands.
  void insert(std::vector<std::pair<int, PlanNode>> copies) {
    std::vector<PlanNode> nodes;
    std::vector<int> position(plan_.nodes.size());
    auto next = copies.begin();
    for (int n = 0; n < size(); ++n) {
      for (; next != copies.end() && next->first == n; ++next) nodes.push_back(std::move(next->second));
      position[static_cast<std::size_t>(n)] = static_cast<int>(nodes.size());
      nodes.push_back(std::move(node(n)));
    }
    for (PlanNode& n : nodes) {
      if (n.repeats >= 0) n.repeats = position[static_cast<std::size_t>(n.repeats)];
      auto* const copy = std::get_if<OffloadWork>(&n.work);
      if (copy && !copy->back) copy->kept_until = position[static_cast<std::size_t>(copy->kept_until)] - 1;
    }
    plan_.nodes = std::move(nodes);
  }

  PlanBuilder& builder_;
  StepPlan& plan_;
  std::vector<double> times_ = {0};  ///< estimated, before each node and at the end, in copied bytes
  std::vector<int> owner_ = {};      ///< by buffer: the layer whose activations may leave in it; -1: it stays
  std::vector<OffloadedBuffer> offloaded_ = {};  ///< in the order of `used`
  BufferId gates_ = no_buffer;
};

}  // namespace

double bytes_copied_beside(const NodeCost& kernel, ElementType activations, const WorkPerCopiedByte& work) {
  return std::max(kernel.flops / (is_16_bit(activations) ? work.flops_16_bit : work.flops),
                  static_cast<double>(kernel.bytes_read + kernel.bytes_written) / work.traffic);
}

void add_offloading(PlanBuilder& builder, const Offloading& layers) {
  if (!layers.empty()) OffloadPlanner(builder, layers).add();
}

}  // namespace aloni::nn::detail
