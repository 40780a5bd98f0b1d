#include <aloni/nn/plan/verify.hpp>

#include <aloni/nn/plan/detail/verify_accumulation.hpp>
#include <aloni/nn/plan/detail/verify_fault.hpp>
#include <aloni/nn/plan/detail/verify_gradients.hpp>
#include <aloni/nn/plan/detail/verify_messages.hpp>
#include <aloni/nn/plan/detail/verify_norms.hpp>
#include <aloni/nn/plan/detail/verify_partial_sums.hpp>
#include <aloni/nn/plan/detail/verify_progress.hpp>
#include <aloni/nn/plan/detail/verify_update.hpp>
#include <aloni/nn/plan/detail/verify_values.hpp>

namespace aloni::nn {

std::string to_string(const PlanFault& fault) {
  std::string text = fault.ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < fault.ranks.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(fault.ranks[i]);
  return text + (fault.node.empty() ? "" : ", " + fault.node) + ": " + fault.what;
}

std::optional<PlanFault> verify(const NetworkPlan& layers, std::span<const StepPlan> plans) {
  try {
    for (const StepPlan& plan : plans)
      if (plan.communications != plans[0].communications)
        throw detail::Found{{"another number of communications", "", {0, plan.rank}}};
    detail::check_progress(plans);
    detail::check_communication(plans);
    for (const StepPlan& plan : plans) detail::check_values(layers, plan);
    for (const StepPlan& plan : plans) detail::check_accumulation(plan);
    detail::check_partial_sums(layers, plans);
    if (plans[0].kind != StepKind::inference) detail::check_gradients(layers, plans);
    if (const auto fault = detail::find_update_fault(plans)) return fault;
    if (const auto fault = detail::find_norm_fault(plans)) return fault;
  } catch (const detail::Found& found) {
    return found.fault;
  }
  return std::nullopt;
}

}  // namespace aloni::nn
