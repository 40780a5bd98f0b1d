#pragma once
// Proves that the summands of each learned tensor cover each weight with each output once. Also proves that they are
// summed over exactly the ranks that have one.
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/step_plan.hpp>

#include <span>

namespace aloni::nn::detail {

/// Throws Found. @pre the plans are of a step with gradients
void check_gradients(const NetworkPlan& layers, std::span<const StepPlan> plans);

}  // namespace aloni::nn::detail
