#include "conv/step_convolutions.hpp"

#include <aloni/core/comm/running_machine.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/convolution_cases.hpp>
#include <aloni/nn/plan/plan_step.hpp>

#include <optional>
#include <variant>

namespace aloni::bench {

using namespace nn::local;

namespace {

/// None for a node without convolutions. A transposed convolution belongs to the forward pass, though it computes as a
/// gradient does.
std::optional<ConvolutionPass> phase_of(const nn::PlanNode& node) {
  if (std::holds_alternative<nn::FilterGradientWork>(node.work)) return ConvolutionPass::backward_filter;
  if (!std::holds_alternative<nn::ConvolutionWork>(node.work)) return std::nullopt;
  return node.phase == nn::StepPhase::forward ? ConvolutionPass::forward : ConvolutionPass::backward_data;
}

}  // namespace

std::vector<TrainingStep> training_steps() {
  using views::make_extents;
  return {{"lenet5-28x28x1-b64-n2", "lenet5", make_extents(1, {28, 28}, 1), 64, "n2"},
          {"lenet5-28x28x1-b1024-n2", "lenet5", make_extents(1, {28, 28}, 1), 1024, "n2"},
          {"mesh1k-512x512x18-b1-h2", "mesh1k", make_extents(1, {512, 512}, 18), 1, "h2"},
          {"resnet18-32x32x3-b64-n2", "resnet18", make_extents(1, {32, 32}, 3), 64, "n2"},
          {"unet2d-256x256x1-b1-h2", "unet2d", make_extents(1, {256, 256}, 1), 1, "h2"},
          {"unet3d-64x64x64x1-b1-d2", "unet3d", make_extents(1, {64, 64, 64}, 1), 1, "d2"},
          {"densenet121-32x32x3-b64-n2", "densenet121", make_extents(1, {32, 32}, 3), 64, "n2"}};
}

StepConvolutions::StepConvolutions(const comm::Communicator& world, const TrainingStep& step, ConvolutionPass phase) {
  constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Exec::memory_space>::accessible;
  const MachineDescription machine = comm::describe_machine(world, machine_of_this_build(on_host));
  const nn::NetworkDescription network = nn::make_model(step.model, {.input = step.input});
  const nn::Strategy strategy = nn::Strategy::uniform(nn::LayerSplit::parse(step.split));
  const nn::NetworkPlan layers =
      plan_network(network, resolve(strategy, network, world.size()), world.size(), step.samples);
  const nn::StepPlan plan =
      plan_step(network, layers, world.rank(), nn::StepKind::training, machine, {.largest_overhead = 0});
  for (const nn::PlanNode& node : plan.nodes) {
    if (phase_of(node) != phase) continue;
    for (const nn::ConvolutionInPlan& found : convolutions_of(plan, node)) {
      const auto& [problem, pass, type, input_gaps, output_gaps] = found.convolution;
      convolutions_.push_back(std::make_unique<LocalRun<>>(problem, pass, ConvolutionBackend::automatic));
      flops_ += nn::local::flops(problem);
    }
  }
}

void StepConvolutions::run() {
  for (const auto& convolution : convolutions_) convolution->run();
}

}  // namespace aloni::bench
