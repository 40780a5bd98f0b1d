#include <aloni/nn/plan/kfac_cost.hpp>

#include <aloni/core/comm/all_reduce_traffic.hpp>
#include <aloni/core/error.hpp>
#include <aloni/nn/plan/detail/reduction_members.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

namespace aloni::nn {

namespace {

Index triangle_of(Index order) { return order * (order + 1) / 2; }

/// The outputs whose products a node adds to the factors.
Index counted_pixels(const PlanNode& node) {
  if (const auto* dense = std::get_if<DenseWork>(&node.work))
    return dense->pass == DensePass::parameters && dense->contributes ? dense->samples : 0;
  Index pixels = 0;
  if (const auto* filters = std::get_if<FilterGradientWork>(&node.work))
    for (const ConvolutionCall& call : filters->calls)  // one that computes nothing has no samples
      pixels += call.problem.samples * call.problem.output[0] * call.problem.output[1] * call.problem.output[2];
  return pixels;
}

double product_flops_of(const StepPlan& plan, const KfacPlan& kfac) {
  double sum = 0;
  for (const PlanNode& node : plan.nodes) {
    const auto layer = std::ranges::find(kfac.layers, node.layer, &KfacLayer::layer);
    if (layer == kfac.layers.end()) continue;
    const auto squares = static_cast<double>(layer->columns * layer->columns + layer->rows * layer->rows);
    sum += 2 * static_cast<double>(counted_pixels(node)) * squares;
  }
  return sum;
}

/// A sum of doubles over all ranks, as Communicator::all_reduce runs it.
NodeCost sum_over_all_ranks(const StepPlan& plan, int rank, Index elements, const MachineDescription& machine) {
  if (plan.ranks == 1 || elements == 0) return {};
  const auto nodes = detail::positions_by_node(detail::members_of_gradients(1, plan.ranks, rank), machine);
  constexpr int bytes = sizeof(double);
  const comm::AllReducePlan chosen =
      comm::AllReduceChooser(nodes, machine.shared_memory, machine.tuning)(elements, bytes);
  const comm::AllReduceTraffic t = comm::all_reduce_traffic(nodes, rank, elements, bytes, chosen);
  return {.flops = static_cast<double>(t.elements_combined),
          .bytes_sent = t.elements_sent * bytes,
          .bytes_received = t.elements_received * bytes,
          .messages_sent = t.messages_sent,
          .messages_received = t.messages_received};
}

}  // namespace

KfacCost cost_of_kfac(const StepPlan& plan, const KfacPlan& kfac, int rank, const MachineDescription& machine) {
  if (rank < 0 || rank >= plan.ranks)
    throw InvalidArgument("aloni::nn::cost_of_kfac", "rank", std::to_string(rank),
                          "a rank from 0 to " + std::to_string(plan.ranks - 1));
  if (plan.kind == StepKind::inference)
    throw InvalidArgument("aloni::nn::cost_of_kfac", "plan", "a step of inference", "a step with a backward pass");
  KfacCost cost{.product_flops = product_flops_of(plan, kfac)};
  Index triangles = 0, squares = 0, longest = factor_patch_elements;
  Index values = 0, largest_layer = 0, own_squares = 0;
  const ElementType activations = plan.buffers[static_cast<std::size_t>(plan.output)].type;
  const Index element = bytes_of(is_16_bit(activations) ? ElementType::float32 : activations);
  for (const KfacLayer& layer : kfac.layers) {
    const Index elements = layer.rows * layer.columns;
    values += elements;
    largest_layer = std::max(largest_layer, elements);
    cost.direction_flops += static_cast<double>(elements);
    for (const Index order : {layer.columns, layer.rows}) {
      triangles += triangle_of(order);
      squares += order * order;
      longest = std::max(longest, order);
    }
    if (layer.owner != rank) {
      cost.directions_received += elements * element;
      continue;
    }
    for (const Index order : {layer.columns, layer.rows}) {
      const auto n = static_cast<double>(order);
      cost.average_flops += 4 * static_cast<double>(triangle_of(order));
      cost.inversion_flops += n * n * n;
      own_squares += order * order;
    }
    // Two matrix products, and the inner product.
    cost.direction_flops += 2 * static_cast<double>(elements) * static_cast<double>(layer.rows + layer.columns + 1);
  }
  cost.factor_sum = sum_over_all_ranks(plan, rank, triangles, machine);
  cost.product_sum = sum_over_all_ranks(plan, rank, static_cast<Index>(kfac.layers.size()), machine);
  constexpr Index in_double = sizeof(double);
  cost.memory = (squares + longest + values + 2 * largest_layer) * element + triangles * in_double +
                own_squares * (in_double + element);
  if (!machine.on_host) cost.memory += (squares + values) * element;  // copies on the host
  return cost;
}

KfacCost largest_cost_of_kfac(const StepPlan& plan, const std::vector<int>& members, const KfacPlan& kfac,
                              const MachineDescription& machine) {
  KfacCost most;
  bool has_other = false;
  for (const int rank : members) {
    const bool owns = std::ranges::find(kfac.layers, rank, &KfacLayer::owner) != kfac.layers.end();
    if (!owns && std::exchange(has_other, true)) continue;
    most = largest_cost(most, cost_of_kfac(plan, kfac, rank, machine));
  }
  return most;
}

KfacCost largest_cost(const KfacCost& a, const KfacCost& b) {
  const auto larger = [](const NodeCost& x, const NodeCost& y) {
    return NodeCost{.flops = std::max(x.flops, y.flops),
                    .bytes_sent = std::max(x.bytes_sent, y.bytes_sent),
                    .bytes_received = std::max(x.bytes_received, y.bytes_received),
                    .messages_sent = std::max(x.messages_sent, y.messages_sent),
                    .messages_received = std::max(x.messages_received, y.messages_received)};
  };
  return {.product_flops = std::max(a.product_flops, b.product_flops),
          .factor_sum = larger(a.factor_sum, b.factor_sum),
          .average_flops = std::max(a.average_flops, b.average_flops),
          .inversion_flops = std::max(a.inversion_flops, b.inversion_flops),
          .direction_flops = std::max(a.direction_flops, b.direction_flops),
          .directions_received = std::max(a.directions_received, b.directions_received),
          .product_sum = larger(a.product_sum, b.product_sum),
          .memory = std::max(a.memory, b.memory)};
}

}  // namespace aloni::nn
