#pragma once
// Proves that all ranks list their communication in the same order, and that the members of a sum agree on it. Each
// message that one rank sends is the message that its peer receives.
#include <aloni/nn/plan/step_plan.hpp>

#include <span>

namespace aloni::nn::detail {

/// Throws Found. @pre check_progress() has passed
void check_communication(std::span<const StepPlan> plans);

}  // namespace aloni::nn::detail
