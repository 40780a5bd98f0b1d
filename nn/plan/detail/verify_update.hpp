#pragma once
// The part of verify() that concerns the update of the parameters.
#include <aloni/nn/plan/step_plan.hpp>
#include <aloni/nn/plan/verify.hpp>

#include <optional>
#include <span>

namespace aloni::nn::detail {

/// The first fault: a learned tensor that is not updated or updated twice, by another optimiser than the plan's, with
/// another tensor's gradient or states, before the sum of its gradient, or before its last reader; a plan without an
/// optimiser that updates; ranks with different optimisers. Otherwise nothing. @pre buffers of all works exist
std::optional<PlanFault> find_update_fault(std::span<const StepPlan> plans);

}  // namespace aloni::nn::detail
