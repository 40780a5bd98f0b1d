#include <aloni/nn/plan/detail/verify_norms.hpp>

#include <aloni/nn/optimiser.hpp>

#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::nn::detail {

namespace {

PlanFault refused(const StepPlan& plan, const PlanNode* node, const std::string& what) {
  return {what, node ? node->label : "", {plan.rank}};
}

std::optional<PlanFault> fault_of(const StepPlan& plan) {
  const bool with_norms = plan.update && uses_norms(*plan.update, plan.update_options);
  const bool with_values = with_norms && properties_of(*plan.update).uses_norms;
  const auto name = [&](BufferId b) { return plan.buffers[static_cast<std::size_t>(b)].name; };
  std::vector<int> summed(plan.buffers.size(), 0);
  for (const PlanNode& node : plan.nodes) {
    if (const auto* update = std::get_if<OptimiserWork>(&node.work)) {
      if (with_norms != (update->factors != no_buffer))
        return refused(plan, &node,
                       with_norms ? "updates without the factors of the norms" : "has factors without norms");
      continue;
    }
    const auto* norms = std::get_if<NormWork>(&node.work);
    if (!norms) continue;
    if (!with_norms) return refused(plan, &node, "finds norms that no update needs");
    if (norms->stage != NormStage::squares) continue;
    if (norms->blocks < 1 || norms->block != plan.rank % norms->blocks)
      return refused(plan, &node, "sums the squares of block " + std::to_string(norms->block) + " of another rank");
    for (const UpdatedTensor& t : norms->tensors) {
      if (++summed[static_cast<std::size_t>(t.gradient)] > 1)
        return refused(plan, &node, "sums the squares of " + name(t.gradient) + " twice");
      if (with_values && (t.value == no_buffer || name(t.gradient) != name(t.value) + ".gradient"))
        return refused(plan, &node, "sums the squares of " + name(t.gradient) + " without those of its values");
    }
  }
  for (std::size_t b = 0; with_norms && b < plan.buffers.size(); ++b)
    if (plan.buffers[b].role == BufferRole::parameter_gradients && summed[b] == 0)
      return refused(plan, nullptr, "no node sums the squares of " + plan.buffers[b].name);
  return std::nullopt;
}

}  // namespace

std::optional<PlanFault> find_norm_fault(std::span<const StepPlan> plans) {
  std::map<std::pair<int, int>, std::vector<int>> counted;  // by segment and block: the ranks that count it
  std::map<int, int> blocks;                                // by segment
  for (const StepPlan& plan : plans) {
    if (plan.update_options != plans[0].update_options)
      return PlanFault{"the ranks update with different options", "", {plans[0].rank, plan.rank}};
    if (auto fault = fault_of(plan)) return fault;
    for (const PlanNode& node : plan.nodes) {
      const auto* norms = std::get_if<NormWork>(&node.work);
      if (!norms || norms->stage != NormStage::squares) continue;
      blocks[norms->segment] = norms->blocks;
      if (norms->is_first_copy) counted[{norms->segment, norms->block}].push_back(plan.rank);
    }
  }
  for (const auto& [segment, count] : blocks) {
    if (count == 1) continue;  // whole tensors: no sum over ranks
    for (int b = 0; b < count; ++b) {
      const std::vector<int>& ranks = counted[{segment, b}];
      if (ranks.size() == 1) continue;
      const std::string block = "block " + std::to_string(b) + " of segment " + std::to_string(segment);
      if (ranks.empty()) return PlanFault{"no rank counts the squares of " + block, "", {plans[0].rank}};
      return PlanFault{"several ranks count the squares of " + block, "", ranks};
    }
  }
  return std::nullopt;
}

}  // namespace aloni::nn::detail
