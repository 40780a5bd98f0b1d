#include <aloni/nn/plan/largest_memory.hpp>

#include <aloni/nn/plan/representatives.hpp>

#include <algorithm>

namespace aloni::nn {

void LargestMemory::add(const StepPlan& plan, const MachineDescription& machine) {
  const PlanMemoryUse use = memory_of(plan, machine);
  host = std::max(host, use.host);
  moved = std::max(moved, use.of(BufferRole::offloaded));
  if (use.separate > separate.separate) {
    separate = use;
    separate_rank = plan.rank;
  }
  if (use.peak <= peak) return;
  peak = use.peak;
  peak_rank = plan.rank;
  const PlanNode* const node = use.peak_node < 0 ? nullptr : &plan.nodes[static_cast<std::size_t>(use.peak_node)];
  peak_layer = node == nullptr ? -1 : node->layer;
  peak_node = node == nullptr ? "" : node->label;
}

LargestMemory largest_memory(const NetworkDescription& network, const NetworkPlan& layers,
                             const MachineDescription& machine, StepKind kind, const StepOptions& options,
                             std::optional<Index> limit) {
  LargestMemory most;
  // Rank 0 has the largest blocks. Where it exceeds the limit, the other representatives need not be found.
  most.add(plan_step(network, layers, 0, kind, machine, options), machine);
  if (limit && most.peak > *limit) return most;
  for (const int rank : find_representatives(network, layers, machine).ranks) {
    if (rank == 0) continue;
    most.add(plan_step(network, layers, rank, kind, machine, options), machine);
    if (limit && most.peak > *limit) break;
  }
  return most;
}

}  // namespace aloni::nn
