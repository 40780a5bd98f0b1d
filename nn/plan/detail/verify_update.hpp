#pragma once
// The part of verify() that concerns the update of the parameters.
#include <aloni/nn/plan/step_plan.hpp>
#include <aloni/nn/plan/verify.hpp>

#include <optional>
#include <span>

namespace aloni::nn::detail {

/// The first fault, or nothing. Faults of one update: it has another optimiser than the plan, or another tensor's
/// gradient or states. It comes before the sum of its gradient, or before the last reader of the tensor. Faults of a
/// plan: a learned tensor is not updated, or updated twice; the plan updates without an optimiser; ranks have different
/// optimisers. @pre buffers of all works exist
std::optional<PlanFault> find_update_fault(std::span<const StepPlan> plans);

}  // namespace aloni::nn::detail
