#include <aloni/nn/plan/detail/verify_partial_sums.hpp>

#include <aloni/nn/detail/convolution_direction.hpp>
#include <aloni/nn/plan/detail/verify_fault.hpp>

#include <algorithm>
#include <variant>
#include <vector>

namespace aloni::nn::detail {

namespace {

using views::Box;
using views::Dim;

/// Products that reach an owner: of all source channels in the range, for each cell of the box.
struct Products {
  int rank = 0;
  Box cells;
  halo::Range channels;
  Index channels_of_cell = 0;  ///< of the cell's group
};

class PartialSums {
 public:
  PartialSums(const NetworkPlan& layers, std::span<const StepPlan> plans) : layers_(layers), plans_(plans) {
    for (const StepPlan& plan : plans) {
      std::vector<const PlanNode*> nodes(plan.buffers.size(), nullptr);
      for (const PlanNode& n : plan.nodes)
        if (const auto* work = std::get_if<ConvolutionWork>(&n.work); work && work->partial_sums)
          nodes[static_cast<std::size_t>(work->target)] = &n;
      makers_.push_back(std::move(nodes));
    }
  }

  void run() const {
    for (const StepPlan& plan : plans_)
      for (const PlanNode& n : plan.nodes) {
        const auto* work = std::get_if<TransferWork>(&n.work);
        if (!work || !work->adjoint) continue;
        for (std::size_t i = 0; i < work->items.size(); ++i)
          if (buffer_of(plan, work->items[i].destination).role == BufferRole::partial_sums) check(plan, n, i);
      }
  }

 private:
  const PlanNode* maker(int rank, BufferId sums) const {
    return makers_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(sums)];
  }

  /// The products of `rank` for cells that this item of its transfer adds to an owner.
  void add_products(int rank, const PlanNode& transfer, std::size_t item, const Box& cells,
                    std::vector<Products>& all) const {
    const TransferItemPlan& plan = std::get<TransferWork>(transfer.work).items[item];
    const PlanNode* const node = maker(rank, plan.destination);
    if (!node) return;
    const auto& work = std::get<ConvolutionWork>(node->work);
    const Direction direction{layers_.layers[static_cast<std::size_t>(node->layer)], work.backward};
    const auto& weights =
        plans_[static_cast<std::size_t>(rank)].convolution_weights[static_cast<std::size_t>(work.weights)];
    for (const ConvolutionCall& call : work.calls) {
      const ConvolutionPart& part = weights.parts[static_cast<std::size_t>(call.part)].part;
      const Box mine = intersect(call.target, cells);
      const halo::Range channels = direction.source_channels(part);
      if (!mine.empty()) all.push_back({rank, mine, channels, (channels.hi - channels.lo) / part.groups});
    }
  }

  const PlanNode& same_transfer(int rank, int communication) const {
    const auto& nodes = plans_[static_cast<std::size_t>(rank)].nodes;
    return *std::ranges::find_if(
        nodes, [&](const PlanNode& n) { return n.communication == communication && n.kind() == NodeKind::transfer; });
  }

  void check(const StepPlan& plan, const PlanNode& n, std::size_t i) const {
    const TransferItemPlan& item = std::get<TransferWork>(n.work).items[i];
    std::vector<Products> all;
    for (const halo::Move& m : item.plan.local) add_products(plan.rank, n, i, m.source, all);
    for (const halo::Message& message : item.plan.sends) {  // received, as the transfer runs backwards
      const PlanNode& theirs = same_transfer(message.peer, n.communication);
      for (const halo::Move& m : message.moves) add_products(message.peer, theirs, i, m.source, all);
    }
    Index wanted = 0, found = 0;
    const ConvolutionPlan& convolution = *layers_.layers[static_cast<std::size_t>(n.layer)].convolution;
    const bool of_filters = n.phase == StepPhase::backward && n.repeats < 0;  // dL/dx sums over filters
    const Index each = (of_filters ? convolution.filters : convolution.channels) / convolution.groups;
    Box sums;
    for (const PlanRegion& r : n.writes) {
      if (r.buffer != item.source) continue;
      wanted += r.box.size() * each;
      sums = hull(sums, r.box);
    }
    const std::string name = buffer_of(plan, item.source).name + " " + views::to_string(sums);
    for (std::size_t a = 0; a < all.size(); ++a) {
      found += all[a].cells.size() * all[a].channels_of_cell;
      for (std::size_t b = 0; b < a; ++b) {
        const bool same_channels =
            std::max(all[a].channels.lo, all[b].channels.lo) < std::min(all[a].channels.hi, all[b].channels.hi);
        if (const Box common = intersect(all[a].cells, all[b].cells); same_channels && !common.empty())
          throw Found{{name + " gets the products of the same channels twice for " + views::to_string(common),
                       n.label,
                       {plan.rank, all[b].rank, all[a].rank}}};
      }
    }
    if (found != wanted) {
      throw Found{
          {name + " lacks products of some channels: " + std::to_string(found) + " of " + std::to_string(wanted),
           n.label,
           {plan.rank}}};
    }
  }

  const NetworkPlan& layers_;
  std::span<const StepPlan> plans_;
  std::vector<std::vector<const PlanNode*>> makers_;  ///< by rank and buffer: the node that computes partial sums
};

}  // namespace

void check_partial_sums(const NetworkPlan& layers, std::span<const StepPlan> plans) {
  PartialSums(layers, plans).run();
}

}  // namespace aloni::nn::detail
