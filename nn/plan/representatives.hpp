#pragma once
// Ranks whose step plans differ by position only: equal up to a translation of boxes and other numbers of ranks. One
// plan then stands for all of them, and the plans of 4,096 ranks cost as much as those of a few.
//
//   const Representatives few = find_representatives(net, layers, machine);
//   ReductionCosts reductions(net, layers, machine);
//   for (std::size_t i = 0; i < few.ranks.size(); ++i) {
//     const StepPlan plan = plan_step(net, layers, few.ranks[i], StepKind::training, machine);
//     cost_without_reductions(plan, machine);             // of each rank in few.members[i]
//     memory_of(plan, machine);                           // likewise
//     reductions.of(plan, few.members[i]);                // one cost for each of these ranks
//   }
//
// Ranks share a representative only if plan_step() makes equal decisions for them, with equal cost and memory:
//  - in each layer and each dimension their grid coordinates are in one class (nn/layer_blocks.hpp);
//  - the same ones of their neighbours share memory with them;
//  - both share memory with other ranks, or neither does;
//  - transfers between different distributions have equal messages;
//  - both are the first copy of a tensor, or neither is.
// Messages of a sum over ranks depend on the rank's position among the members. ReductionCosts counts them for each
// rank. The members of a sum are not compared, only whether there are several.
#include <aloni/core/machine.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/cost.hpp>
#include <aloni/nn/plan/step_plan.hpp>

#include <memory>
#include <vector>

namespace aloni::nn {

struct Representatives {
  std::vector<int> ranks;                 ///< ascending, from rank 0; each is the lowest of its members
  std::vector<std::vector<int>> members;  ///< of each representative, ascending, itself included
};

/// For every kind of step and all options. @pre `layers` was made from `network`; `machine` describes all its ranks
Representatives find_representatives(const NetworkDescription& network, const NetworkPlan& layers,
                                     const MachineDescription& machine);

struct ReductionCost {
  NodeCost all, gradients;  ///< `gradients`: the part for sums of gradients
};

/// Costs of the sums over ranks for many ranks, by arithmetic on positions. The arguments outlive this object.
class ReductionCosts {
 public:
  ReductionCosts(const NetworkDescription& network, const NetworkPlan& layers, const MachineDescription& machine);
  ~ReductionCosts();

  /// The sum over all reductions in a step of each rank. @pre `plan` is the plan of a representative of `ranks`
  std::vector<ReductionCost> of(const StepPlan& plan, const std::vector<int>& ranks);

 private:
  class Cache;
  std::unique_ptr<Cache> cache_;
};

}  // namespace aloni::nn
