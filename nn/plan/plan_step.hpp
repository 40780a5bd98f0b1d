#pragma once
// Plans one step of a network on one rank: all buffers, kernels, transfers and sums over ranks. Pure arithmetic: any
// rank's plan can be made anywhere.
//
//   const NetworkPlan layers = plan_network(net, resolve(strategy, net, ranks), ranks, 64);
//   const StepPlan step = plan_step(net, layers, rank, StepKind::training, machine, {});
//   memory_of(step).peak;                       // nn/plan/memory.hpp
//   verify(layers, plans_of_all_ranks);         // nn/plan/verify.hpp
#include <aloni/core/machine.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/offloading.hpp>
#include <aloni/nn/plan/parameter_layout.hpp>
#include <aloni/nn/plan/recomputation.hpp>
#include <aloni/nn/plan/step_plan.hpp>

#include <optional>

namespace aloni::nn {

/// How the gradients of all ranks are summed.
enum class GradientSums {
  beside_backward,  ///< in buckets, each of them as soon as the backward pass has left its layers
  after_backward,   ///< in one sum per segment, after the backward pass
  partial           ///< in one round of a partial all-reduce after the backward pass; not with split parameters
};

struct StepOptions {
  ElementType activations = ElementType::float32;
  /// Of all convolutions. `automatic`: the fastest for each.
  local::ConvolutionBackend backend = local::ConvolutionBackend::automatic;
  /// Convolutions of float by cuDNN multiply in TF32, whose mantissa has 10 bits, on tensor cores. Sums stay float.
  bool tf32 = false;
  /// Weights of convolutions with split channels or filters are split too, as Parameters made with splits.
  bool split_parameters = true;
  bool input_gradient = false;  ///< the gradient of the network's input is computed too
  bool fuse_inference = true;   ///< in inference a convolution also computes the ReLU that follows it
  /// A batch normalisation also computes the ReLU that follows it, and its gradient; or the sum (Add) that follows it,
  /// with the ReLU behind that.
  bool fuse_batch_norm = true;
  bool fuse_pooling = true;  ///< a max pooling also computes the ReLU before it, and its gradient
  GradientSums sums = GradientSums::beside_backward;
  /// StepKind::training accumulates gradients over micro-batches (AccumulationWork). All nodes run for each
  /// micro-batch, but for the sums of gradients over ranks and the update: these run for the last one.
  bool accumulates = false;
  bool update = true;  ///< StepKind::training ends with the update of the parameters
  OptimiserKind optimiser = OptimiserKind::sgd;
  UpdateOptions update_options = {};
  /// Replaces the limits of the machine for the overhead of an interior that is computed first.
  std::optional<double> largest_overhead = {};
  /// Steps with a backward pass drop the activations of these blocks and compute them again.
  Recomputation recompute = {};
  /// Steps with a backward pass keep the activations of these layers in host memory between both passes.
  Offloading offload = {};
  /// Each convolution keeps its filters in the orders of its kernels, for many steps with the same values. Otherwise
  /// all convolutions share the memory of one. Empty: in inference only.
  std::optional<bool> keeps_filters = {};
  /// Replaces default_streams() of the machine: StepPlan::streams, from 1 to most_streams.
  std::optional<int> streams = {};
};

/// The buffers have these names:
///  - of the network: input, input_gradient, labels, targets, loss, "loss: sums", metrics;
///  - of each layer: NAME_y, NAME_dy, NAME_x and NAME_dx. If it has several inputs, their numbers follow. A layer that
///    uses the buffer of another one has none of its own;
///  - of each learned tensor: its name, NAME.gradient, with micro-batches NAME.gradient_sum, and the states of the
///    optimiser (nn/optimiser.hpp):
///    NAME.momentum, or NAME.first_moment and NAME.second_moment;
///  - of a step with recomputed blocks: again, which stands for the order of nodes;
///  - of a step that offloads: NAME.host, the place of the buffer NAME in host memory; "offload", as again;
///  - of an update with norms: update.norm_chunks, update.norm_sums, update.norm_block_sums, update.factors.
/// @pre 0 ≤ rank < ranks of the plan; `layers` was made from `network`
/// Throws InvalidArgument, also for GradientSums::partial with split parameters.
StepPlan plan_step(const NetworkDescription& network, const NetworkPlan& layers, int rank, StepKind kind,
                   const MachineDescription& machine, const StepOptions& options = {});

}  // namespace aloni::nn
