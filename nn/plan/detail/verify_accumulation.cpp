#include <aloni/nn/plan/detail/verify_accumulation.hpp>

#include <aloni/nn/plan/detail/verify_fault.hpp>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

namespace aloni::nn::detail {

namespace {

/// Throws Found unless each gradient is accumulated into its own sum, once.
void check_sums(const StepPlan& plan, std::vector<int>& accumulated_at) {
  for (std::size_t n = 0; n < plan.nodes.size(); ++n) {
    const PlanNode& node = plan.nodes[n];
    const auto* work = std::get_if<AccumulationWork>(&node.work);
    if (!work) continue;
    if (!plan.accumulates) refuse(plan, &node, "accumulates gradients in a step without micro-batches");
    if (work->gradients.size() != work->sums.size()) refuse(plan, &node, "the numbers of gradients and sums differ");
    Index elements = work->with_loss ? 2 : 0;
    for (std::size_t k = 0; k < work->gradients.size(); ++k) {
      const PlanBuffer &gradient = buffer_of(plan, work->gradients[k]), &sum = buffer_of(plan, work->sums[k]);
      if (gradient.role != BufferRole::parameter_gradients || sum.name != gradient.name + "_sum")
        refuse(plan, &node, "accumulates " + gradient.name + " in " + sum.name);
      int& at = accumulated_at[static_cast<std::size_t>(work->gradients[k])];
      if (at >= 0) refuse(plan, &node, "accumulates " + gradient.name + " twice");
      at = static_cast<int>(n);
      elements += std::max<Index>(1, gradient.box.size());  // each tensor has a distinct address
    }
    if (elements != work->elements) refuse(plan, &node, "accumulates another number of elements than its tensors have");
  }
}

bool is_final_use(const PlanNode& node) { return node.sums_gradients() || node.phase == StepPhase::update; }

}  // namespace

void check_accumulation(const StepPlan& plan) {
  std::vector<int> accumulated_at(plan.buffers.size(), -1);
  check_sums(plan, accumulated_at);
  if (!plan.accumulates) return;
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    const PlanBuffer& buffer = plan.buffers[b];
    if (buffer.role == BufferRole::parameter_gradients && accumulated_at[b] < 0)
      refuse(plan, nullptr, buffer.name + " is not accumulated");
  }
  for (int n = 0; n < static_cast<int>(plan.nodes.size()); ++n) {
    const PlanNode& node = plan.nodes[static_cast<std::size_t>(n)];
    if (node.accumulates()) continue;
    for (const auto* regions : {&node.reads, &node.writes}) {
      for (const PlanRegion& r : *regions) {
        const int at = accumulated_at[static_cast<std::size_t>(r.buffer)];
        if (at < 0 || (at < n) == is_final_use(node)) continue;
        refuse(plan, &node,
               (at < n ? "changes " : "uses ") + buffer_of(plan, r.buffer).name +
                   (at < n ? " after it was accumulated" : " before it is accumulated"));
      }
    }
  }
}

}  // namespace aloni::nn::detail
