#pragma once
// The ways in which a training step saves memory, as a user wishes them: recomputation, offloading, and a limit.
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
#include <aloni/nn/plan/offloading.hpp>
#include <aloni/nn/plan/plan_step.hpp>

#include <optional>
#include <string>

namespace aloni::nn {

struct MemoryWish {
  std::string recompute = {};       ///< "" (none), "auto", or patterns for recomputed_blocks()
  std::string offload = {};         ///< "" (none), "auto", or patterns for offloaded_layers()
  std::optional<Index> limit = {};  ///< bytes of PlanMemoryUse::peak; empty: "auto" finds the least peak

  bool empty() const { return recompute.empty() && offload.empty() && !limit; }
};

/// Each number is that of the rank with the largest number.
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

/// options.recompute and options.offload do not count. Equal on all ranks that pass equal arguments.
/// Throws Unsupported for offloading from a host: its activations are in host memory already.
/// Throws InvalidArgument as recomputed_blocks() and offloaded_layers(), and if the step takes more than the limit; the
/// text names the least peak, its layer, and the ways that are left.
MemorySavings memory_savings_for(const NetworkDescription& network, const NetworkPlan& layers,
                                 const MachineDescription& machine, const StepOptions& options, const MemoryWish& wish);

}  // namespace aloni::nn
