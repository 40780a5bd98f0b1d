#pragma once
// The memory of a step plan on one rank: by role, and in all. Pure arithmetic on the buffers and their lifetimes.
//
//   const StepPlan step = plan_step(net, layers, rank, StepKind::training, machine);
//   const PlanMemoryUse use = memory_of(step, machine);
//   use.peak;                              // bytes that a Network takes
//   step.nodes[use.peak_node].label;       // where most of them are in use
//   use.separate;                          // bytes if each buffer had its own memory
//
// Counted are the buffers of the plan, and the packed messages of its transfers. Activations that leave the device
// (nn/plan/offloading.hpp) count in host memory by themselves. Not counted are the libraries, message
// buffers of the collectives, and memory that kernels allocate beyond their buffers in the plan.
#include <aloni/core/machine.hpp>
#include <aloni/nn/plan/memory_layout.hpp>
#include <aloni/nn/plan/step_plan.hpp>

#include <array>
#include <string>
#include <vector>

namespace aloni::nn {

struct PlanMemoryUse {
  static constexpr std::size_t roles = static_cast<std::size_t>(BufferRole::offloaded) + 1;  // the last one

  /// Bytes by role, each buffer with its own memory. An alias has none. `messages`: sent and received values of
  /// transfers, for ranks whose memory this rank cannot read.
  std::array<Index, roles> by_role{};
  Index separate = 0;  ///< sum of by_role, without activations in host memory
  /// The bytes that a Network and its Parameters take: buffers share memory over time (lay_out_memory()), gaps
  /// included. Messages and buffers whose contents outlive the step have their own memory.
  Index peak = 0;
  Index host = 0;      ///< host memory of activations that leave the device
  int peak_node = -1;  ///< the first node at which most bytes are in use; -1 for a plan without nodes

  Index of(BufferRole role) const { return by_role[static_cast<std::size_t>(role)]; }
};

/// Bytes in use while a step runs.
struct MemoryOverNodes {
  /// Of buffers with memory of their own, and of packed messages. Without gradients of parameters that share memory.
  Index always = 0;
  std::vector<Index> at_nodes = {};  ///< of the other buffers, at each node of the plan

  /// The first node at which most bytes are in use; -1 without nodes.
  int peak_node() const;
};

/// @pre as memory_of()
MemoryOverNodes memory_over_nodes(const StepPlan& plan, const MachineDescription& machine = {});

/// @pre the lifetimes of the buffers are set; `machine` describes all ranks of the plan
PlanMemoryUse memory_of(const StepPlan& plan, const MachineDescription& machine = {});

/// Bytes of all buffers of plans of one rank with this layout, and of the packed messages of the first plan. Learned
/// tensors, their gradients, the optimiser's state and activations in host memory are not included.
Index bytes_of(const std::vector<const StepPlan*>& plans, const MemoryLayout& layout,
               const MachineDescription& machine = {});

/// Bytes of the buffers of each layer, and of its packed messages, each buffer with its own memory. A buffer belongs to
/// the layer whose name it begins with (plan_step()): its output, its gradients, its ghosts, its parameters. The last
/// element has all others: input, targets, loss. Their sum is PlanMemoryUse::separate.
std::vector<Index> memory_by_layer(const StepPlan& plan, const std::vector<std::string>& layer_names,
                                   const MachineDescription& machine = {});

}  // namespace aloni::nn
