#pragma once
// The convolutions of a node of a step plan, as the choice of their implementations sees them.
//
//   for (const ConvolutionInPlan& c : convolutions_of(plan, plan.nodes[n]))
//     c.call->backend, c.call->chosen_by, explain_choice(c.convolution, machine);
#include <aloni/core/machine.hpp>
#include <aloni/nn/local/convolution_choice.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/plan/step_plan.hpp>

#include <string>
#include <vector>

namespace aloni::nn {

struct ConvolutionInPlan {
  const ConvolutionCall* call = nullptr;  ///< of the node
  local::ConvolutionCase convolution = {};
};

/// One for each call of the node that computes; empty for nodes without convolutions. The result points into `node`.
/// @pre `node` is a node of `plan`
std::vector<ConvolutionInPlan> convolutions_of(const StepPlan& plan, const PlanNode& node);

/// The choice for one problem of a plan, for people.
struct ExplainedChoice {
  std::string layer;           ///< of the first node that has the problem
  std::string convolution;     ///< to_string(ConvolutionCase)
  std::string implementation;  ///< to_string(ConvolutionImplementation)
  local::ChoiceSource source = local::ChoiceSource::rule;
  std::string reason;  ///< explain_choice(), or "given" if the user gives the implementation
};

/// The choices of a plan, each problem once, in the order of the nodes. `machine`: that of the plan.
/// @pre `plan` was made for `network` and `machine`
std::vector<ExplainedChoice> explain_convolutions(const NetworkDescription& network, const StepPlan& plan,
                                                  const MachineDescription& machine);

}  // namespace aloni::nn
