#include <aloni/model/detail/layer_pricer.hpp>

#include <aloni/model/detail/reduced_layer.hpp>
#include <aloni/nn/plan/reuse.hpp>
#include <aloni/nn/step_graph.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::model::detail {

using nn::LayerSplit;
using views::Dim;
using views::num_dims;

namespace {

/// Walks over the plan of one rank. Its neighbours are as fast as the rank itself.
class LayerPricer {
 public:
  LayerPricer(const PricedNetwork& net, const LayerFacts& facts, const LayerSplit& split)
      : net_(net),
        facts_(facts),
        split_(split),
        reduced_(reduce(net.network, facts, split, net.ranks, net.folds_pointwise)),
        description_(net.description) {
    description_.nodes.clear();
    if (!net.description.nodes.empty())
      for (const int r : reduced_.real_ranks)
        description_.nodes.push_back(net.description.nodes[static_cast<std::size_t>(r)]);
    description_.tuning = std::nullopt;
  }

  LayerPrice price() {
    nn::StepOptions step = net_.options.step;
    step.accumulates = net_.options.micro_batches > 1;
    step.recompute = {};
    step.offload = {};
    const auto& inputs = net_.network.layers[static_cast<std::size_t>(facts_.layer)].inputs;
    step.input_gradient = std::ranges::any_of(inputs, [](const std::string& i) { return i != "input"; });
    const int ranks = reduced_.split.size();
    const nn::NetworkPlan layers = plan_network(reduced_.network, {reduced_.split}, ranks, reduced_.samples);
    plan_ = plan_step(reduced_.network, layers, reduced_.rank, net_.options.kind, description_, step);
    walk();
    add_gradient_sums();
    add_bytes();
    return price_;
  }

 private:
  bool counts(const nn::PlanNode& node) const { return node.phase != nn::StepPhase::loss && !node.sums_gradients(); }

  void walk() {
    double update = 0;                 // once, in the last micro-batch
    double now = 0, messages_end = 0;  // of those between nodes, which take turns on the link
    std::vector<double> ready(plan_.nodes.size(), 0), finish(plan_.nodes.size(), 0);
    for (const nn::StepAction& action : nn::schedule(nn::graph_of(plan_))) {
      const auto n = static_cast<std::size_t>(action.node);
      const nn::PlanNode& node = plan_.nodes[n];
      if (!counts(node)) continue;
      const double before = now;
      if (action.kind == nn::StepActionKind::run) {
        // The layers around this one are not planned, so all operands count as used a whole step ago.
        KernelProblem problem = kernel_of(plan_, node);
        set_reuse(problem, nn::reuse_at(problem.bytes(), net_.step_bytes));
        now += net_.kernels.of(problem).seconds;
      } else if (action.kind == nn::StepActionKind::finish) {
        now = std::max(now, ready[n]) + finish[n];
      } else if (const auto* transfer = std::get_if<nn::TransferWork>(&node.work)) {
        const TransferCost cost = transfer_cost(plan_, *transfer, net_.machine, description_);
        now += cost.start;
        const double contention = ranks_that_cross_nodes(cost);
        const double link_free = messages_end;
        for (const TransferCost::Arrival& a : cost.arrivals) {
          const double begin = now + a.latency;
          const double arrival = a.between_nodes ? std::max(begin, link_free) + contention * a.wire : begin + a.wire;
          if (a.between_nodes) messages_end = std::max(messages_end, arrival);
          ready[n] = std::max(ready[n], arrival);
        }
        finish[n] = cost.finish;
      } else if (const auto* sum = std::get_if<nn::ReductionWork>(&node.work)) {
        const auto [members, stride] = real_members(*sum);
        const double bytes = static_cast<double>(sum->elements) * static_cast<double>(nn::bytes_of(sum->type));
        const AllReduceParts cost = group_sum(bytes, members, stride, sums_shared_values(plan_, *sum), net_);
        now += net_.machine.exchange_seconds / 2;
        ready[n] = now + cost.flight;
        finish[n] = cost.busy + net_.machine.exchange_seconds / 2;
      }
      if (node.phase == nn::StepPhase::backward) price_.backward += now - before;
      if (node.phase == nn::StepPhase::update) update += now - before;
    }
    price_.seconds = net_.options.micro_batches * (now - update) + update;
  }

  /// The ranks of the node that receive from other nodes at the same time: they share its link.
  double ranks_that_cross_nodes(const TransferCost& cost) const {
    const int mine = reduced_.real_ranks[static_cast<std::size_t>(reduced_.rank)];
    int crossing = 0;
    for (const RankRange& range : net_.nodes.company(mine)) {
      for (int r = range.first; r < range.last; ++r) {
        crossing += std::ranges::any_of(cost.arrivals, [&](const TransferCost::Arrival& a) {
          const int peer = r + reduced_.real_ranks[static_cast<std::size_t>(a.peer)] - mine;  // row-major numbers
          return a.between_nodes && !net_.nodes.share_node(mine, peer);
        });
      }
    }
    return std::max(1, crossing);
  }

  /// The number of members that a sum has in the whole grid, and the distance between two of them.
  std::pair<int, int> real_members(const nn::ReductionWork& sum) const {
    const auto& layer = net_.network.layers[static_cast<std::size_t>(facts_.layer)];
    if (const auto* bn = std::get_if<nn::BatchNorm>(&layer.operation)) {
      const int channels = split_.grid[Dim::channel];
      if (bn->scope == nn::StatisticsScope::all) return {net_.ranks / channels, channels};
      if (bn->scope == nn::StatisticsScope::neighbours) return {std::min(bn->ranks, net_.ranks / channels), channels};
    }
    const views::ProcessGrid few = reduced_.split.tensor_grid();
    int members = 1, stride = 0, distance = 1;
    for (std::size_t i = num_dims; i-- > 0;) {
      std::set<int> coordinates;
      for (const int m : sum.members) coordinates.insert(few.coordinate(m)[i]);
      if (coordinates.size() > 1) {
        const bool whole = static_cast<int>(coordinates.size()) == few.blocks[i];
        members *= whole ? reduced_.real_blocks[i] : static_cast<int>(coordinates.size());
        if (stride == 0) stride = distance;
      }
      distance *= reduced_.real_blocks[i];
    }
    return {members, std::max(1, stride)};
  }

  /// Sums of gradients travel in buckets with those of other layers, so a layer pays for its share of a full bucket.
  void add_gradient_sums() {
    if (net_.options.kind == nn::StepKind::inference || facts_.weights == 0) return;
    const int blocks = split_.grid[Dim::channel] * split_.filters;
    const bool splits_weights =
        net_.options.step.split_parameters && (facts_.properties.convolution || facts_.properties.convolution_if_split);
    const int parts = splits_weights ? blocks : 1;
    const double bytes = std::ceil(static_cast<double>(facts_.weights) / parts) *
                         static_cast<double>(net_.options.step.activations == nn::ElementType::float64 ? 8 : 4);
    const double bucket = std::max(bytes, static_cast<double>(net_.description.bucket_bytes));
    const AllReduceParts sum = group_sum(bucket, net_.ranks / parts, parts, true, net_);
    price_.seconds += sum.busy * bytes / bucket;
    price_.backward += sum.busy * bytes / bucket;
    price_.gradient_flight = sum.flight * bytes / bucket;
  }

  void add_bytes() {
    using Role = nn::BufferRole;
    for (const nn::PlanBuffer& b : plan_.buffers) {
      if (b.alias != nn::no_buffer) continue;
      const bool kept =
          b.role == Role::parameters || b.role == Role::parameter_gradients || b.role == Role::gradient_sums ||
          b.role == Role::optimiser ||
          (net_.options.kind != nn::StepKind::inference && (b.role == Role::activation || b.role == Role::ghosts));
      if (kept) price_.bytes += static_cast<double>(b.bytes());
    }
  }

  const PricedNetwork& net_;
  const LayerFacts& facts_;
  const LayerSplit& split_;
  ReducedLayer reduced_;
  MachineDescription description_;
  nn::StepPlan plan_;
  LayerPrice price_;
};

}  // namespace

LayerPrice price_layer(const PricedNetwork& net, const LayerFacts& facts, const LayerSplit& split) {
  return LayerPricer(net, facts, split).price();
}

AllReduceParts group_sum(double bytes, int members, int stride, bool shared_data, const PricedNetwork& net) {
  if (members < 2 || bytes <= 0) return {};
  const int nodes = net.nodes.of_group(members, stride);
  const double seconds = fastest_sum_seconds(
      {.bytes = bytes, .members = members, .nodes = nodes, .shared_data = shared_data}, net.machine, net.fits);
  return parts_of_all_reduce(seconds, bytes, nodes, net.machine, net.description.on_host);
}

}  // namespace aloni::model::detail
