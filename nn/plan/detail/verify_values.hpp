#pragma once
// Proves the values of one rank. No node reads a cell that no node has written, or that a node of another layer has
// overwritten. A buffer that returns from host memory has the values with which it left. The results of the step are
// complete, and each gradient is added to something.
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/step_plan.hpp>

namespace aloni::nn::detail {

/// Throws Found.
void check_values(const NetworkPlan& layers, const StepPlan& plan);

}  // namespace aloni::nn::detail
