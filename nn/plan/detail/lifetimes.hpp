#pragma once
// The nodes during which the contents of each buffer are needed.
#include <aloni/nn/plan/step_plan.hpp>

namespace aloni::nn::detail {

/// Sets `first`, `last` and `unused` of all buffers of a plan with all its nodes.
void set_lifetimes(StepPlan& plan);

}  // namespace aloni::nn::detail
