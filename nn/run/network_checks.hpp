#pragma once
// What the constructor of Network derives from its arguments, checks and compares, before it allocates anything. Each
// function runs on all ranks, and throws on all ranks.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/machine.hpp>
#include <aloni/nn/network.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/plan_step.hpp>

#include <optional>

namespace aloni::nn::detail {

/// Throws Unsupported if the backend cannot compute with activations of type T, or not in TF32.
template <class T, class Exec>
void check_support(const NetworkOptions& options);

/// Returns `comm`, once all ranks have passed equal arguments: plans of different arguments would wait for ever.
/// `input`: distribution of an adopted input, or null. Collective. Throws InvalidArgument.
template <class T>
const comm::Communicator& agreed(const comm::Communicator& comm, const NetworkDescription& description,
                                 const Strategy& strategy, Index samples, const NetworkOptions& options,
                                 OptimiserKind optimiser, const UpdateOptions& update,
                                 const views::Distribution* input);

/// The costs by which steps are planned: the defaults, replaced by those of the options. Throws InvalidArgument.
MachineDescription costs_of(const NetworkOptions& options, bool on_host);

/// How the steps of a network with activations of type T are planned.
template <class T, class AllParameters>
StepOptions step_options(const NetworkOptions& options, const AllParameters& parameters,
                         GradientSums sums = GradientSums::beside_backward) {
  return {.activations = element_type<T>,
          .backend = options.backend,
          .tf32 = options.tf32,
          .split_parameters = parameters.is_split(),
          .input_gradient = options.input_gradient,
          .fuse_inference = options.fuse_inference,
          .fuse_batch_norm = options.fuse_batch_norm,
          .fuse_pooling = options.fuse_pooling,
          .sums = sums,
          .accumulates = parameters.gradient_sum() != nullptr,
          .update = options.update,
          .optimiser = parameters.optimiser(),
          .update_options = parameters.update_options(),
          .largest_overhead = options.largest_overhead,
          .recompute = options.recompute,
          .offload = options.offload,
          .keeps_filters = options.inference,
          .streams = options.streams};
}

/// The facts of an adopted input that the plan needs. Collective. Throws InvalidArgument for a View of another box.
template <class T, class Mem>
std::optional<AdoptedInputPlan> plan_of(const comm::Communicator& comm,
                                        const std::optional<AdoptedInput<T, Mem>>& input);

/// Throws InvalidArgument if a rank does not keep the weights by which its layers multiply, or not for this use.
template <class T, class Exec>
void check_parameters(const comm::Communicator& comm, const NetworkDescription& description, const NetworkPlan& plan,
                      const Parameters<T, Exec>& parameters, const NetworkOptions& options);

}  // namespace aloni::nn::detail
