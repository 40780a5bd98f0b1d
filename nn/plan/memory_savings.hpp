#pragma once
// The layers with which a training step saves memory, by recomputation and offloading, for the wish of a user.
//
//   StepOptions options;
//   const MemorySavings savings =
//       memory_savings_for(net, layers, machine, options, {.offload = "auto", .limit = Index{6} << 30});
//   savings.apply(options);
//
// With a limit, "auto" saves as little as meets it. The first layers leave first: their activations wait longest for
// the backward pass, so their copies have most time. If both ways are "auto", layers leave as long as kernels hide
// their copies, by an estimate (nn/plan/detail/offload_planner.hpp). If that does not suffice, blocks are computed
// again.
#include <aloni/core/machine.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/choose_recomputation.hpp>
#include <aloni/nn/plan/memory_wish.hpp>
#include <aloni/nn/plan/offloading.hpp>
#include <aloni/nn/plan/plan_step.hpp>

#include <optional>

namespace aloni::nn {

/// Each number is the largest one of all ranks.
struct MemorySavings {
  PricedRecomputation recomputation = {};  ///< with the peak and the flops of the step, offloading included
  Offloading offload = {};
  Index moved_bytes = 0;  ///< that leave the device in a step, and return
  Index host_bytes = 0;   ///< PlanMemoryUse::host

  void apply(StepOptions& options) const {
    options.recompute = recomputation.blocks;
    options.offload = offload;
  }
};

/// The first layers, as few as meet the limit. All layers if these do not, and without a limit. Found by bisection.
/// options.offload does not count. @pre as plan_step(), for all ranks of `layers`
Offloading choose_offloading(const NetworkDescription& network, const NetworkPlan& layers,
                             const MachineDescription& machine, const StepOptions& options, std::optional<Index> limit);

/// Throws Unsupported if the wish is to offload from a host: its activations are in host memory already.
void check_can_offload(const MachineDescription& machine, const MemoryWish& wish);

/// options.recompute and options.offload do not count. Equal on all ranks that pass equal arguments.
/// Throws as check_can_offload().
/// Throws InvalidArgument as recomputed_blocks() and offloaded_layers(), and if the step takes more than the limit; the
/// text names the least peak, its layer, and the ways that are left.
MemorySavings memory_savings_for(const NetworkDescription& network, const NetworkPlan& layers,
                                 const MachineDescription& machine, const StepOptions& options, const MemoryWish& wish);

}  // namespace aloni::nn
