#include <aloni/nn/plan/memory_savings.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/plan/cost.hpp>
#include <aloni/nn/plan/detail/offload_planner.hpp>
#include <aloni/nn/plan/largest_memory.hpp>
#include <aloni/nn/plan/memory_shortage.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace aloni::nn {

namespace {

constexpr const char* operation = "aloni::nn::memory_savings_for";

Offloading first_layers(int number) {
  Offloading chosen(static_cast<std::size_t>(number));
  std::iota(chosen.begin(), chosen.end(), 0);
  return chosen;
}

/// The largest number from 0 to `most` of which `good` is true. @pre good(0); if it is true of a number, then of all
/// smaller ones
template <class F>
int largest(int most, const F& good) {
  if (good(most)) return most;
  int high = most, low = 0;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (good(middle) ? low : high) = middle;
  }
  return low;
}

/// The first layers, as many as the kernels of the forward pass hide the copies of. It is shorter than the backward
/// pass. Of rank 0, which has the largest blocks.
Offloading hidden_offloading(const NetworkDescription& network, const NetworkPlan& layers,
                             const MachineDescription& machine, const StepOptions& options) {
  const auto planned = [&](int number) {
    StepOptions step = options;
    step.offload = first_layers(number);
    return plan_step(network, layers, 0, StepKind::training, machine, step);
  };
  const StepPlan plan = planned(0);
  double hidden = 0;
  for (const PlanNode& node : plan.nodes)
    if (node.phase == StepPhase::forward && node.kind() == NodeKind::kernel)
      hidden +=
          detail::bytes_copied_beside(cost(plan, node, machine), options.activations, machine.work_per_copied_byte);
  const auto fits = [&](int number) {
    Index moved = 0;
    for (const PlanBuffer& buffer : planned(number).buffers)
      if (buffer.on_host()) moved += buffer.bytes();
    return static_cast<double>(moved) <= hidden;
  };
  return first_layers(largest(static_cast<int>(network.layers.size()), fits));
}

}  // namespace

Offloading choose_offloading(const NetworkDescription& network, const NetworkPlan& layers,
                             const MachineDescription& machine, const StepOptions& options,
                             std::optional<Index> limit) {
  const auto all = static_cast<int>(network.layers.size());
  if (!limit) return first_layers(all);
  const auto is_too_much = [&](int number) {
    StepOptions step = options;
    step.offload = first_layers(number);
    return largest_memory(network, layers, machine, StepKind::training, step, limit).peak > *limit;
  };
  if (!is_too_much(0)) return {};
  return first_layers(std::min(all, largest(all, is_too_much) + 1));
}

void check_can_offload(const MachineDescription& machine, const MemoryWish& wish) {
  if (machine.on_host && !wish.offload.empty()) {
    throw Unsupported(operation, "offloading", '"' + wish.offload + '"',
                      "recomputation, or a device: activations of a host are in host memory already");
  }
}

MemorySavings memory_savings_for(const NetworkDescription& network, const NetworkPlan& layers,
                                 const MachineDescription& machine, const StepOptions& options,
                                 const MemoryWish& wish) {
  const bool chooses_blocks = wish.recompute == "auto", chooses_layers = wish.offload == "auto";
  check_can_offload(machine, wish);
  StepOptions step = options;
  step.recompute =
      wish.recompute.empty() || chooses_blocks ? Recomputation{} : recomputed_blocks(network, wish.recompute);
  step.offload = wish.offload.empty() || chooses_layers ? Offloading{} : offloaded_layers(network, wish.offload);
  if (chooses_layers) step.offload = choose_offloading(network, layers, machine, step, wish.limit);
  const auto recomputation = [&] {
    return chooses_blocks ? choose_recomputation(network, layers, machine, step, wish.limit)
                          : price_recomputation(network, layers, machine, step);
  };
  std::optional<PricedRecomputation> chosen;
  if (chooses_blocks && chooses_layers && wish.limit) {
    const Offloading needed = step.offload;
    const Offloading hidden = hidden_offloading(network, layers, machine, step);
    if (hidden.size() < needed.size()) {
      step.offload = hidden;
      try {
        chosen = recomputation();
      } catch (const InvalidArgument&) {  // more must leave, although kernels will wait
        step.offload = needed;
      }
    }
  }
  if (!chosen) chosen = recomputation();
  MemorySavings savings{.recomputation = *std::move(chosen), .offload = step.offload};
  const PricedRecomputation& priced = savings.recomputation;
  if (wish.limit && priced.peak_bytes > *wish.limit) {
    throw InvalidArgument(operation, memory_limit_argument, std::to_string(*wish.limit) + " bytes",
                          to_string(MemoryShortage{priced.peak_bytes, *wish.limit, priced.peak_layer}) + ". " +
                              to_string(ways_beside(wish, machine)));
  }
  if (savings.offload.empty()) return savings;
  savings.apply(step);
  const LargestMemory most = largest_memory(network, layers, machine, StepKind::training, step);
  savings.moved_bytes = most.moved;
  savings.host_bytes = most.host;
  return savings;
}

}  // namespace aloni::nn
