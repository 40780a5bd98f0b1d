#include <aloni/nn/plan/detail/verify_fault.hpp>

#include <utility>

namespace aloni::nn::detail {

using views::Box;

void refuse(const StepPlan& plan, const PlanNode* node, const std::string& what) {
  throw Found{{what, node ? node->label : "", {plan.rank}}};
}

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

void subtract(std::vector<Box>& boxes, const Box& other) {
  std::vector<Box> rest;
  for (const Box& box : boxes) {
    const Box common = intersect(box, other);
    if (common.empty()) {
      rest.push_back(box);
    } else {
      for (const Box& part : difference(box, common)) rest.push_back(part);
    }
  }
  boxes = std::move(rest);
}

bool covered(const Box& box, const std::vector<Box>& by) {
  if (box.empty()) return true;
  std::vector<Box> rest{box};
  for (const Box& b : by) {
    if (rest.empty()) return true;
    subtract(rest, b);
  }
  return rest.empty();
}

}  // namespace aloni::nn::detail
