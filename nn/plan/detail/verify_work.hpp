#pragma once
// Proves that the work of one node fits the layer, the memory and the regions that the node names.
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/detail/verify_history.hpp>

namespace aloni::nn::detail {

/// `history`: of the nodes before this one. Throws Found.
void check_work(const NetworkPlan& layers, const History& history, const PlanNode& node);

}  // namespace aloni::nn::detail
