#include <aloni/nn/plan/isolated_node.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/plan/cost.hpp>
#include <aloni/nn/plan/detail/addresses.hpp>
#include <aloni/nn/plan/reuse.hpp>
#include <aloni/views/extents.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <variant>

namespace aloni::nn {

namespace {

using detail::Addresses;
using detail::AddressRange;
using detail::for_each_region;
using views::Dim;

const PlanNode& node_at(const StepPlan& plan, int n) { return plan.nodes[static_cast<std::size_t>(n)]; }

/// The weights by which a convolution multiplies; -1 for other work.
int multiplied_weights(const Work& work) {
  if (const auto* region = std::get_if<ConvolutionWork>(&work)) return region->weights;
  if (const auto* gradient = std::get_if<FilterGradientWork>(&work)) return gradient->weights;
  return -1;
}

/// The last WeightsWork before the node; -1: none.
int weights_node_before(const StepPlan& plan, int node, int weights) {
  for (int n = node - 1; n >= 0; --n)
    if (const auto* work = std::get_if<WeightsWork>(&node_at(plan, n).work); work && work->weights == weights) return n;
  return -1;
}

/// Positions of maxima, which the backward pass reads; no_buffer for other work.
BufferId positions_read(const Work& work) {
  if (const auto* pooling = std::get_if<PoolingWork>(&work); pooling && pooling->backward) return pooling->argmax;
  if (const auto* resampling = std::get_if<ResamplingWork>(&work); resampling && resampling->backward)
    return resampling->argmax;
  return no_buffer;
}

bool node_writes(const StepPlan& plan, const PlanNode& node, BufferId b) {
  return std::ranges::any_of(node.writes, [&](const PlanRegion& r) { return plan.root(r.buffer) == plan.root(b); });
}

/// The nodes without which the node has no valid operands, in the order of the plan. All other operands may have any
/// finite values.
std::vector<int> nodes_needed(const StepPlan& plan, int node) {
  std::vector<int> needed;
  const Work& work = node_at(plan, node).work;
  if (const int weights = multiplied_weights(work); weights >= 0) {
    const int ready = weights_node_before(plan, node, weights);
    if (ready >= 0) needed.push_back(ready);
  }
  if (const BufferId positions = positions_read(work); positions != no_buffer) {
    int n = node - 1;
    while (n >= 0 && !node_writes(plan, node_at(plan, n), positions)) --n;
    if (n >= 0) needed.push_back(n);
  }
  // The kernels of group and layer normalisation keep means and sums between their stages.
  if (const auto* stage = std::get_if<NormalisationWork>(&work); stage && stage->kind != NormalisationKind::batch) {
    for (int n = 0; n < node; ++n)
      if (const auto* before = std::get_if<NormalisationWork>(&node_at(plan, n).work);
          before && before->layer == stage->layer)
        needed.push_back(n);
  }
  return needed;
}

/// Tensors of the given numbers of elements, in their order: dense layers of one input each. Names that end with
/// ".weight" are those of weights.
NetworkDescription network_with_tensors(const std::vector<Index>& elements) {
  NetworkDescription network{
      .spatial_rank = 2, .input = views::make_extents(1, {1, 1}, 1), .layers = {}, .loss = Loss::mean_squared_error};
  std::vector<std::string> names;
  for (const Index n : elements) {
    names.push_back("tensor" + std::to_string(names.size()));
    network.layers.push_back({names.back(), Dense{.features = n, .bias = false}, {"input"}});
  }
  if (names.empty()) network.layers.push_back({"none", Relu{}, {"input"}});
  if (names.size() > 1) network.layers.push_back({"all", Concatenate{}, names});
  return network;
}

NetworkDescription network_with_statistics(Index channels) {
  NetworkDescription network{.spatial_rank = 2,
                             .input = views::make_extents(1, {1, 1}, channels),
                             .layers = {},
                             .loss = Loss::mean_squared_error};
  network.layers.push_back({"statistics", BatchNorm{}, {"input"}});
  return network;
}

std::vector<Index> elements_of(const StepPlan& plan, const std::vector<UpdatedTensor>& tensors) {
  std::vector<Index> elements;
  for (const UpdatedTensor& t : tensors)  // a tensor of which the rank keeps nothing has one element in its segment
    elements.push_back(std::max<Index>(1, plan.buffers[static_cast<std::size_t>(t.gradient)].box.size()));
  return elements;
}

/// Sets IsolatedNode::parameters, and the places in it that the work names.
struct Adapter {
  const StepPlan& plan;
  std::optional<NetworkDescription>& parameters;

  void operator()(OptimiserWork& work) const {
    parameters = network_with_tensors(elements_of(plan, work.tensors));
    work.segment = 0;
  }
  void operator()(AccumulationWork& work) const {
    std::vector<UpdatedTensor> tensors;
    for (const BufferId gradient : work.gradients) tensors.push_back({.gradient = gradient});
    const std::vector<Index> elements = elements_of(plan, tensors);
    parameters = network_with_tensors(elements);
    work.segment = 0;
    work.first = 0;
    work.elements = std::accumulate(elements.begin(), elements.end(), Index{0});
    work.with_loss = false;
  }
  void operator()(NormWork& work) const {
    // The second stage reads sums of squares alone; a tensor has one.
    parameters =
        network_with_tensors(work.stage == NormStage::squares
                                 ? elements_of(plan, work.tensors)
                                 : std::vector<Index>(static_cast<std::size_t>(std::max<Index>(1, work.sums_read)), 1));
    work.segment = 0;
  }
  void operator()(NormalisationWork& work) const {
    if (work.kind != NormalisationKind::batch || !work.updates_running) return;
    parameters = network_with_statistics(std::max<Index>(1, work.region.upper(Dim::channel)));
    work.layer = 0;
  }
  void operator()(LossWork& work) const {
    if (work.gradient != no_buffer) parameters = network_with_tensors({1});
  }
  template <class Other>
  void operator()(Other&) const {}
};

/// A set of bytes.
class Bytes {
 public:
  /// Returns the number of bytes that are new.
  Index add(AddressRange r) {
    if (r.bytes() == 0) return 0;
    Index fresh = r.bytes();
    auto next = ranges_.upper_bound(r.first);
    if (next != ranges_.begin() && std::prev(next)->second >= r.first) --next;
    while (next != ranges_.end() && next->first <= r.end) {
      fresh -= AddressRange{std::max(next->first, r.first), std::min(next->second, r.end)}.bytes();
      r = {std::min(r.first, next->first), std::max(r.end, next->second)};
      next = ranges_.erase(next);
    }
    // The part of the hull that earlier ranges have covered is not new.
    ranges_.emplace(r.first, r.end);
    return fresh;
  }

 private:
  std::map<Index, Index> ranges_;  ///< end by first; disjoint
};

/// Bytes of the nodes between the last one with the same code and this one.
double code_distance_of(const StepPlan& plan, int node, const MemoryLayout& layout) {
  const Addresses addresses(plan, layout);
  const int nodes = static_cast<int>(plan.nodes.size());
  double bytes = 0;
  for (int back = 1; back <= nodes; ++back) {
    const int before = (node - back + nodes) % nodes;
    if (code_of(node_at(plan, before).work) == code_of(node_at(plan, node).work)) break;
    for_each_region(plan, before, [&](const PlanRegion& r) { bytes += static_cast<double>(addresses.of(r).bytes()); });
  }
  return bytes;
}

/// Sets the members of the operands that tell their last use.
void find_last_uses(const StepPlan& plan, int node, const MemoryLayout& layout, std::vector<Operand>& operands) {
  const Addresses addresses(plan, layout);
  /// A region in pieces, whose last uses differ where memory was used by others.
  struct Piece {
    AddressRange range;
    Operand* operand;
    double share;
    bool found = false;
  };
  constexpr Index most_pieces = 16;
  std::vector<Piece> pieces;
  for (Operand& operand : operands) {
    const AddressRange all = addresses.of(operand.region);
    const Index count = std::clamp<Index>(all.bytes() / 4096, 1, most_pieces);
    for (Index i = 0; i < count; ++i)
      pieces.push_back({{all.first + all.bytes() * i / count, all.first + all.bytes() * (i + 1) / count},
                        &operand,
                        1.0 / static_cast<double>(count)});
  }
  double distance = 0, flops = 0, bytes = 0;
  const auto set = [&](Piece& piece) {
    piece.found = true;
    piece.operand->distance += piece.share * distance;
    piece.operand->flops += piece.share * flops;
    piece.operand->bytes += piece.share * bytes;
  };
  Bytes used;
  const int nodes = static_cast<int>(plan.nodes.size());
  std::size_t missing = pieces.size();
  for (int back = 1; back <= nodes && missing > 0; ++back) {
    const int before = (node - back + nodes) % nodes;
    for_each_region(plan, before, [&](const PlanRegion& r) {
      const AddressRange range = addresses.of(r);
      for (Piece& piece : pieces)
        if (!piece.found && std::max(piece.range.first, range.first) < std::min(piece.range.end, range.end)) {
          set(piece);
          --missing;
        }
    });
    for_each_region(plan, before, [&](const PlanRegion& r) {
      const AddressRange range = addresses.of(r);
      bytes += static_cast<double>(range.bytes());
      distance += static_cast<double>(used.add(range));
    });
    flops += cost(plan, node_at(plan, before)).flops;
  }
  for (Piece& piece : pieces)
    if (!piece.found) set(piece);
}

}  // namespace

bool orders_filters(const StepPlan& plan, int node) {
  const auto* const work = std::get_if<ConvolutionWork>(&node_at(plan, node).work);
  if (!work || std::ranges::none_of(work->calls, &ConvolutionCall::computes)) return false;
  const int ready = weights_node_before(plan, node, work->weights);
  for (int n = node - 1; n > ready; --n) {
    const auto* const before = std::get_if<ConvolutionWork>(&node_at(plan, n).work);
    if (before && before->weights == work->weights && before->backward == work->backward &&
        before->gathers == work->gathers && before->partial_sums == work->partial_sums &&
        std::ranges::any_of(before->calls, &ConvolutionCall::computes))
      return false;
  }
  return true;
}

IsolatedNode isolate(const StepPlan& plan, int node, const MemoryLayout& layout) {
  if (node < 0 || node >= static_cast<int>(plan.nodes.size())) {
    throw InvalidArgument("aloni::nn::isolate", "node", std::to_string(node),
                          "0 to " + std::to_string(static_cast<int>(plan.nodes.size()) - 1));
  }
  if (node_at(plan, node).kind() != NodeKind::kernel) {
    throw InvalidArgument("aloni::nn::isolate", "node", node_at(plan, node).label,
                          "a kernel; a transfer or a sum over ranks has no time of its own");
  }
  IsolatedNode alone;
  alone.plan = {.kind = plan.kind,
                .rank = plan.rank,
                .ranks = plan.ranks,
                .samples = plan.samples,
                .buffers = plan.buffers,
                .convolution_weights = plan.convolution_weights,
                .update = plan.update,
                .update_options = plan.update_options,
                .keeps_filters = plan.keeps_filters};
  for (const int n : nodes_needed(plan, node)) {
    if (orders_filters(plan, node) && std::holds_alternative<WeightsWork>(node_at(plan, n).work))
      alone.weights = static_cast<int>(alone.plan.nodes.size());
    alone.plan.nodes.push_back(node_at(plan, n));
  }
  alone.plan.nodes.push_back(node_at(plan, node));
  for (PlanNode& n : alone.plan.nodes) std::visit(Adapter{plan, alone.parameters}, n.work);
  for_each_region(plan, node, [&](const PlanRegion& r) {
    if (!plan.buffers[static_cast<std::size_t>(r.buffer)].by_kernels && !r.box.empty())
      alone.operands.push_back({.region = r});
  });
  find_last_uses(plan, node, layout, alone.operands);
  alone.code_distance = code_distance_of(plan, node, layout);
  std::ranges::stable_sort(alone.operands, std::greater{}, &Operand::distance);
  return alone;
}

}  // namespace aloni::nn
