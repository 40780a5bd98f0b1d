#pragma once
// The part of verify() that concerns the norms of an update.
#include <aloni/nn/plan/step_plan.hpp>
#include <aloni/nn/plan/verify.hpp>

#include <optional>
#include <span>

namespace aloni::nn::detail {

/// The first fault, or nothing. Faults of a plan: an update ignores the factors, or has them without need; the squares
/// of a learned tensor are not summed, or summed twice. Faults of all plans: a block of a split segment is counted by
/// no rank, or by several. (A missing sum over ranks is a fault of values.) @pre buffers of all works exist
std::optional<PlanFault> find_norm_fault(std::span<const StepPlan> plans);

}  // namespace aloni::nn::detail
