#pragma once
// Adds the copies of activations to host memory and back (nn/plan/offloading.hpp) to a plan that has all other nodes.
//
// A buffer leaves behind its last node of the forward pass or of the loss. Its place is free, and it begins to return,
// at nodes that follow from estimated times. Buffers of at most two nodes are on their way at once. Buffers that would
// return before their place is free stay: copies of them would save nothing.
//
// Ranks may have different copies: their nodes are kernels, which no other rank awaits.
#include <aloni/core/machine.hpp>
#include <aloni/nn/plan/cost.hpp>
#include <aloni/nn/plan/detail/builder.hpp>
#include <aloni/nn/plan/offloading.hpp>

namespace aloni::nn::detail {

/// Bytes that cross the link to the host while a kernel of this cost runs, by `work`.
double bytes_copied_beside(const NodeCost& kernel, ElementType activations, const WorkPerCopiedByte& work);

/// @pre the plan has its marks of mark_reads_beyond(), and no lifetimes yet
void add_offloading(PlanBuilder& builder, const Offloading& layers);

}  // namespace aloni::nn::detail
