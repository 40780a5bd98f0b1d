#include <aloni/nn/plan/convolution_cases.hpp>

#include <aloni/nn/detail/convolution_direction.hpp>

#include <cstddef>
#include <set>
#include <utility>
#include <variant>

namespace aloni::nn {

namespace {

const PlanBuffer& buffer_in(const StepPlan& plan, BufferId b) { return plan.buffers[static_cast<std::size_t>(b)]; }

bool has_gaps(const StepPlan& plan, BufferId b, const views::Box& part) {
  return !detail::is_dense(part, buffer_in(plan, b).box);
}

}  // namespace

std::vector<ConvolutionInPlan> convolutions_of(const StepPlan& plan, const PlanNode& node) {
  std::vector<ConvolutionInPlan> all;
  const auto add = [&](const ConvolutionCall& call, local::ConvolutionPass pass, ElementType type, bool input_gaps,
                       bool output_gaps) {
    all.push_back({&call, {call.problem, pass, type, input_gaps, output_gaps}});
  };
  if (const auto* work = std::get_if<ConvolutionWork>(&node.work)) {
    for (const ConvolutionCall& call : work->calls) {
      if (!call.computes) continue;
      const bool source = work->copy == no_buffer && has_gaps(plan, work->source, call.source);
      const bool target = has_gaps(plan, work->target, call.target);
      const auto pass = work->gathers ? local::ConvolutionPass::forward : local::ConvolutionPass::backward_data;
      add(call, pass, buffer_in(plan, work->target).type, work->gathers ? source : target,
          work->gathers ? target : source);
    }
  } else if (const auto* gradient = std::get_if<FilterGradientWork>(&node.work)) {
    for (const ConvolutionCall& call : gradient->calls) {
      if (!call.computes) continue;
      const bool x = has_gaps(plan, gradient->x, call.source), dy = has_gaps(plan, gradient->dy, call.target);
      add(call, local::ConvolutionPass::backward_filter, buffer_in(plan, gradient->x).type,
          gradient->transposed ? dy : x, gradient->transposed ? x : dy);
    }
  }
  return all;
}

std::vector<ExplainedChoice> explain_convolutions(const NetworkDescription& network, const StepPlan& plan,
                                                  const MachineDescription& machine) {
  std::vector<ExplainedChoice> all;
  std::set<std::string> seen;
  for (const PlanNode& node : plan.nodes) {
    for (const ConvolutionInPlan& c : convolutions_of(plan, node)) {
      std::string text = to_string(c.convolution);
      if (!seen.insert(text).second) continue;
      const bool given = c.call->chosen_by == local::ChoiceSource::given;
      all.push_back({.layer = node.layer < 0 ? "" : network.layers[static_cast<std::size_t>(node.layer)].name,
                     .convolution = std::move(text),
                     .implementation = to_string(local::ConvolutionImplementation{c.call->backend, c.call->engine}),
                     .source = c.call->chosen_by,
                     .reason = given ? "given" : local::explain_choice(c.convolution, machine)});
    }
  }
  return all;
}

}  // namespace aloni::nn
