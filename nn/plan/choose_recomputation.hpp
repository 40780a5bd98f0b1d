#pragma once
// Chooses the blocks of layers that a training step computes again, to fit into a limit of memory. Pure arithmetic on
// plans.
//
//   const NetworkPlan layers = plan_network(net, splits, ranks, 64);
//   StepOptions options;
//   options.recompute = choose_recomputation(net, layers, machine, options, Index{2} << 30).blocks;
//
// The memory is PlanMemoryUse::peak of the training step, on the rank that takes most. Libraries, code and pages of
// other ranks come on top (nn/plan/process_memory.hpp).
//
// The layers are split into blocks. A split costs the bytes of the tensors that are read behind it, because they are
// kept. For each of several sizes of blocks, dynamic programming finds the splits that keep fewest bytes. No block has
// more bytes than that size. Then blocks are taken by descending bytes dropped per flop, until the peak of the plan is
// within the limit. Of all sizes, the choice with fewest flops counts. All choices are priced on one rank, with the
// largest peak without recomputation of the first 32 that differ. The best one is priced on all ranks, and the next one
// if it exceeds the limit there.
#include <aloni/core/machine.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/plan/recomputation.hpp>

#include <optional>
#include <string>

namespace aloni::nn {

/// A recomputation with its price. Each number is the largest one of all ranks.
struct PricedRecomputation {
  Recomputation blocks = {};
  Index peak_bytes = 0;         ///< PlanMemoryUse::peak of the training step
  double flops = 0;             ///< of the kernels of the training step
  double extra_flops = 0;       ///< of them, those of repeated nodes
  std::string peak_layer = {};  ///< layer at the peak; empty: none
};

/// The price of options.recompute. @pre as plan_step(), for all ranks of `layers`
PricedRecomputation price_recomputation(const NetworkDescription& network, const NetworkPlan& layers,
                                        const MachineDescription& machine, const StepOptions& options);

/// The blocks with the fewest flops, of those tried, whose peak is at most `limit` bytes. Without a limit: the blocks
/// with the least peak. options.recompute does not count. Equal on all ranks that pass equal arguments.
/// Throws InvalidArgument if no choice is within the limit; the text names the least peak that was found and its layer.
/// With more than 32 different ranks it is that of the first ones, and others may need a little more.
PricedRecomputation choose_recomputation(const NetworkDescription& network, const NetworkPlan& layers,
                                         const MachineDescription& machine, const StepOptions& options,
                                         std::optional<Index> limit);

}  // namespace aloni::nn
