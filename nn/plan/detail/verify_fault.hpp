#pragma once
// How the parts of verify() (nn/plan/verify.hpp) report a fault, and the arithmetic on lists of boxes that they share.
#include <aloni/nn/plan/verify.hpp>

#include <string>
#include <vector>

namespace aloni::nn::detail {

/// Thrown by a part of verify(), and caught by verify() only.
struct Found {
  PlanFault fault;
};

[[noreturn]] void refuse(const StepPlan& plan, const PlanNode* node, const std::string& what);

/// "0, 1, 2".
std::string list_of(const std::vector<int>& ranks);

/// Removes `other` from all boxes.
void subtract(std::vector<views::Box>& boxes, const views::Box& other);

/// Whether the boxes of `by` together contain `box`.
bool covered(const views::Box& box, const std::vector<views::Box>& by);

inline const PlanBuffer& buffer_of(const StepPlan& plan, BufferId b) {
  return plan.buffers[static_cast<std::size_t>(b)];
}

}  // namespace aloni::nn::detail
