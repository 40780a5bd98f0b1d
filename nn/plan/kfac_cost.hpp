#pragma once
// The work and the memory of K-FAC (nn/kfac.hpp) on one rank, beside a step plan: flops, payload, bytes. Pure
// arithmetic: nothing is measured, and no time is predicted.
//
//   const KfacPlan kfac = plan_kfac(net, splits, ranks);
//   const StepPlan step = plan_step(net, layers, rank, StepKind::training, machine);
//   const KfacCost all = cost_of_kfac(step, kfac, rank, machine);
//   all.product_flops;         // of a step whose mini-batch enters the factors
//   all.memory;                // as Kfac::bytes()
//
// The products of the factors are those of the nodes for gradients of weights: Network::record_factors() adds them
// there. Flops count as in nn/plan/cost.hpp. Copies of patches count nothing. Only the owner of a layer (KfacLayer) has
// its averages, its inverses and its V.
#include <aloni/core/machine.hpp>
#include <aloni/nn/kfac_options.hpp>
#include <aloni/nn/plan/cost.hpp>
#include <aloni/nn/plan/step_plan.hpp>

#include <vector>

namespace aloni::nn {

/// Elements of the memory for patches of FactorSums, or one patch if that is longer. Rows of patches beyond it are
/// added in several products.
inline constexpr Index factor_patch_elements = Index{1} << 20;

struct KfacCost {
  // In a step whose mini-batch enters the factors (KfacOptions::factors_every).
  double product_flops = 0;  ///< Σ a aᵀ and Σ g gᵀ over the outputs of this rank
  NodeCost factor_sum = {};  ///< the sum over ranks of the lower triangles of all factors, in double
  double average_flops = 0;  ///< running averages
  // In a step that starts inversions (KfacOptions::every).
  double inversion_flops = 0;  ///< n³ for a factor of order n: a Cholesky factorisation and the inverse from it
  // In every step.
  double direction_flops = 0;     ///< V of own layers, ⟨V, ∇W⟩, and ν V of all layers
  Index directions_received = 0;  ///< bytes of V that other ranks broadcast
  NodeCost product_sum = {};      ///< the sum over ranks of ⟨V, ∇W⟩ of each layer
  Index memory = 0;               ///< bytes, as Kfac::bytes(): without matrices of inversions that run
};

/// The cost on `rank`, whose steps are those of `plan`, or differ in the owners alone: `plan` may be the plan of a rank
/// that it represents (nn/plan/representatives.hpp).
/// @pre `kfac` is of the same network, splits and number of ranks; the plan has a backward pass; `machine` describes
/// all ranks; 0 ≤ rank < plan.ranks. Throws InvalidArgument for a rank out of range and for a plan of inference.
KfacCost cost_of_kfac(const StepPlan& plan, const KfacPlan& kfac, int rank, const MachineDescription& machine = {});

/// The largest costs on `members`, the ranks that have this plan (Representatives::members): on the owners of layers,
/// and on one other rank. @pre, and throws, as cost_of_kfac()
KfacCost largest_cost_of_kfac(const StepPlan& plan, const std::vector<int>& members, const KfacPlan& kfac,
                              const MachineDescription& machine = {});

/// Each member the larger one of both, for the rank with the largest number.
KfacCost largest_cost(const KfacCost& a, const KfacCost& b);

}  // namespace aloni::nn
