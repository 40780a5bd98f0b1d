#pragma once
// The memory of a step on the rank that takes most. Pure arithmetic on plans.
//
//   const LargestMemory most = largest_memory(net, layers, machine, StepKind::training, options);
//   most.peak, most.peak_rank, most.peak_node;         // bytes, rank, label of the node where they are in use
//
// Only representatives are planned (representatives.hpp). A caller that has their plans calls add() for each.
#include <aloni/core/machine.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/memory.hpp>
#include <aloni/nn/plan/plan_step.hpp>

#include <optional>
#include <string>

namespace aloni::nn {

struct LargestMemory {
  Index peak = 0;  ///< PlanMemoryUse::peak
  int peak_rank = 0;
  int peak_layer = -1;         ///< of the node where most bytes are in use; -1: of no layer
  std::string peak_node = {};  ///< its label
  /// Of the rank that takes most if each buffer has its own memory.
  PlanMemoryUse separate = {};
  int separate_rank = 0;
  Index host = 0;   ///< the largest PlanMemoryUse::host of all ranks
  Index moved = 0;  ///< the largest sum of the buffers that leave for host memory

  /// @pre as memory_of()
  void add(const StepPlan& plan, const MachineDescription& machine);
};

/// `limit`: the search stops at the first rank above it, whose peak is then the result.
/// @pre `layers` was made from `network`; `machine` describes all its ranks
LargestMemory largest_memory(const NetworkDescription& network, const NetworkPlan& layers,
                             const MachineDescription& machine, StepKind kind, const StepOptions& options,
                             std::optional<Index> limit = std::nullopt);

}  // namespace aloni::nn
