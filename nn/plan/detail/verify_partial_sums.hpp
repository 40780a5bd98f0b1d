#pragma once
// Proves that partial sums of convolutions are added over exactly the right ranks.
//
// Where channels or filters are split, a rank multiplies some of the source channels of a cell. An adjoint transfer
// then adds these products to the owner of the cell. The owner must get each source channel of each cell once: from
// itself, or from the rank that has multiplied it.
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/step_plan.hpp>

#include <span>

namespace aloni::nn::detail {

/// Throws Found. @pre the messages of the plans pair up
void check_partial_sums(const NetworkPlan& layers, std::span<const StepPlan> plans);

}  // namespace aloni::nn::detail
