#pragma once
// Proof that a step accumulates gradients over micro-batches: each of them once, behind the kernels that compute it,
// before its sum over ranks and before its update. A part of verify() (nn/plan/verify.hpp).
#include <aloni/nn/plan/step_plan.hpp>

namespace aloni::nn::detail {

/// Throws Found.
void check_accumulation(const StepPlan& plan);

}  // namespace aloni::nn::detail
