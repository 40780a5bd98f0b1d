#pragma once
// One kernel of a step plan alone: the nodes that its measurement needs, and the caches in which it starts.
//
//   const MemoryLayout layout = lay_out_memory({&plan}, machine);
//   const IsolatedNode alone = isolate(plan, n, layout);
//   // run alone.plan's nodes before the last one once, then for each measurement:
//   for (const Operand& o : alone.operands) touch(o), then touch as many other bytes as o.distance says;
//   // run alone.weights if it is not -1, and measure the last node
//
// A kernel whose operands lie in the cache of its core takes half of the time of a kernel that reads main memory. So a
// measurement in a loop is wrong for most nodes. In a step the caches have the operands that were used last. The bytes
// that the nodes in between use are the stack distance of an operand. An LRU cache still has the operand if it is
// larger than this distance. Source: Mattson, Gecsei, Slutz and Traiger, Evaluation techniques for storage hierarchies,
// 1970. Places in memory count, not buffers: a new gradient lies where another one lay that was read a moment ago.
//
// Pure arithmetic on the plan.
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/plan/memory_layout.hpp>
#include <aloni/nn/plan/step_plan.hpp>

#include <optional>
#include <vector>

namespace aloni::nn {

/// A region that the node reads or writes.
struct Operand {
  PlanRegion region;
  /// Bytes that a step uses between the last use of this memory and the node, each once. Steps repeat, so the last use
  /// may be in the step before. A mean over the region.
  double distance = 0;
  /// Arithmetic and bytes of the nodes in between, as often as they are used: a measure of time.
  double flops = 0, bytes = 0;
};

struct IsolatedNode {
  /// The nodes without which the node has no valid operands, then the node. Buffers have the positions that they have
  /// in the whole plan.
  StepPlan plan;
  /// Position of a WeightsWork in `plan` that runs before each measurement; -1: none. Then kernels put filters in
  /// their order during the measurement. In a step the first kernel of a pass does that for all.
  int weights = -1;
  std::vector<Operand> operands = {};  ///< by descending distance; without those that kernels allocate
  /// Bytes that a step uses between the last node with the same code_of() and this one. Its code and branches are
  /// in the core's caches only if these are few.
  double code_distance = 0;
  /// A network whose Parameters have the memory that the node's kernel takes from them, if it takes any. This memory is
  /// the tensors of an update in their order, as one segment; running statistics; or the place of the loss behind the
  /// gradients.
  std::optional<NetworkDescription> parameters = {};

  int node() const { return static_cast<int>(plan.nodes.size()) - 1; }
};

/// Whether the kernels of a convolution put their filters in their own order during this node: it is the first one of
/// its pass after the WeightsWork. False for other work. @pre 0 ≤ node < number of nodes
bool orders_filters(const StepPlan& plan, int node);

/// `layout`: of the plan, or of several plans of which it is one.
/// Throws InvalidArgument if the node does not exist, or is a transfer or a reduction. Equal on all ranks that pass
/// equal arguments.
IsolatedNode isolate(const StepPlan& plan, int node, const MemoryLayout& layout);

}  // namespace aloni::nn
