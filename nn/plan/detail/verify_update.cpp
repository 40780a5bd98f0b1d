#include <aloni/nn/plan/detail/verify_update.hpp>

#include <aloni/nn/optimiser.hpp>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

namespace aloni::nn::detail {

namespace {

/// Checks the plan of one rank. Each function returns the violated rule, or nothing.
class UpdateCheck {
 public:
  explicit UpdateCheck(const StepPlan& plan) : plan_(plan), update_of_(plan.buffers.size(), -1) {}

  std::optional<PlanFault> fault() {
    for (int n = 0; n < size(); ++n) {
      const auto* work = std::get_if<OptimiserWork>(&node(n).work);
      if (!work) continue;
      if (auto what = fault_of(n, *work)) return refused(&node(n), *what);
    }
    // Learned tensors have a gradient; running statistics have none.
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b)
      if (plan_.update && plan_.buffers[b].role == BufferRole::parameter_gradients && update_of_[b] < 0)
        return refused(nullptr, "no update uses " + plan_.buffers[b].name);
    for (int n = 0; n < size(); ++n)
      if (auto what = fault_of_order(n)) return refused(&node(n), *what);
    return std::nullopt;
  }

 private:
  using Rule = std::optional<std::string>;

  int size() const { return static_cast<int>(plan_.nodes.size()); }
  const PlanNode& node(int n) const { return plan_.nodes[static_cast<std::size_t>(n)]; }
  const PlanBuffer& buffer(BufferId b) const { return plan_.buffers[static_cast<std::size_t>(b)]; }
  PlanFault refused(const PlanNode* node, const std::string& what) const {
    return {what, node ? node->label : "", {plan_.rank}};
  }
  static bool names(const std::vector<PlanRegion>& regions, BufferId b, const views::Box& box) {
    return box.empty() ||
           std::ranges::any_of(regions, [&](const PlanRegion& r) { return r.buffer == b && contains(r.box, box); });
  }

  Rule fault_of(int n, const OptimiserWork& work) {
    if (!plan_.update) return "updates the parameters in a step that ends with their gradients";
    if (work.kind != *plan_.update)
      return std::string("updates by ") + name(work.kind) + " in a step of " + name(*plan_.update);
    Index elements = 0;
    for (const UpdatedTensor& tensor : work.tensors) {
      if (auto what = fault_of(node(n), tensor, properties_of(work.kind))) return what;
      int& update = update_of_[static_cast<std::size_t>(tensor.value)];
      if (update >= 0) return buffer(tensor.value).name + " is updated twice";
      update = update_of_[static_cast<std::size_t>(tensor.gradient)] = n;
      elements += std::max<Index>(1, buffer(tensor.value).box.size());  // each tensor has a distinct address
    }
    if (elements != work.elements) return "updates another number of elements than its tensors have";
    return std::nullopt;
  }

  Rule fault_of(const PlanNode& n, const UpdatedTensor& tensor, const OptimiserProperties& properties) const {
    const PlanBuffer& value = buffer(tensor.value);
    if (value.role != BufferRole::parameters) return "updates " + value.name + ", which is not learned";
    if (buffer(tensor.gradient).name != value.name + ".gradient")
      return "updates " + value.name + " with " + buffer(tensor.gradient).name;
    if (tensor.states.size() != properties.states.size())
      return "updates " + value.name + " with " + std::to_string(tensor.states.size()) + " states instead of " +
             std::to_string(properties.states.size());
    if (!names(n.reads, tensor.gradient, value.box) || !names(n.reads, tensor.value, value.box) ||
        !names(n.writes, tensor.value, value.box))
      return "does not name all of " + value.name + " and its gradient";
    for (std::size_t k = 0; k < tensor.states.size(); ++k) {
      const PlanBuffer& state = buffer(tensor.states[k]);
      if (state.name != value.name + '.' + std::string(properties.states[k]) || state.box != value.box)
        return "updates " + value.name + " with the state " + state.name;
      if (!names(n.reads, tensor.states[k], state.box) || !names(n.writes, tensor.states[k], state.box))
        return "does not name all of " + state.name;
    }
    return std::nullopt;
  }

  /// Readers of a value and sums of its gradient come before the update.
  Rule fault_of_order(int n) const {
    for (const PlanRegion& r : node(n).reads) {
      const PlanBuffer& b = buffer(r.buffer);
      const int update = update_of_[static_cast<std::size_t>(r.buffer)];
      if (b.role == BufferRole::parameters && update >= 0 && update < n) return "reads " + b.name + " after its update";
    }
    const auto* sum = std::get_if<ReductionWork>(&node(n).work);
    if (!sum || sum->segment < 0) return std::nullopt;
    for (int u = 0; u < n; ++u) {
      const auto* work = std::get_if<OptimiserWork>(&node(u).work);
      if (!work) continue;
      for (const UpdatedTensor& tensor : work->tensors)
        if (std::ranges::find(sum->buffers, tensor.gradient) != sum->buffers.end())
          return "sums " + buffer(tensor.gradient).name + " after the update by it";
    }
    return std::nullopt;
  }

  const StepPlan& plan_;
  std::vector<int> update_of_;  ///< of each value and gradient: the node that updates by it, or -1
};

}  // namespace

std::optional<PlanFault> find_update_fault(std::span<const StepPlan> plans) {
  for (const StepPlan& plan : plans)
    if (plan.update != plans[0].update)
      return PlanFault{"the ranks update by different optimisers", "", {plans[0].rank, plan.rank}};
  for (const StepPlan& plan : plans)
    if (auto fault = UpdateCheck(plan).fault()) return fault;
  return std::nullopt;
}

}  // namespace aloni::nn::detail
