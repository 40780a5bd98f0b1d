#pragma once
// Proves that the step plans of all ranks fit together and compute the step. Pure arithmetic on the plans.
//
//   std::vector<StepPlan> plans;
//   for (int r = 0; r < ranks; ++r) plans.push_back(plan_step(net, layers, r, StepKind::training, machine));
//   const auto fault = verify(layers, plans);
//   if (fault) std::cerr << to_string(*fault);
//
// Proved are:
// * Messages. All ranks list their communication in the same order. Each message that one rank sends is the message
//   that its peer receives: same moves, elements and type. The members of a sum agree on members, elements and type.
// * Values. No node reads a cell that no node has written, ghosts and recomputed cells included. A result of a window
//   counts as written only if the window's whole input was valid. Each value that a layer reads was written last by the
//   layer that produces it. So nothing is overwritten that is still needed, and no node is missing.
// * Dropped values. No node reads a value from before a range in which the plan says that the buffer is not needed.
// * Repetition. A node that repeats a forward node reads the values that this node read, and changes nothing that
//   outlives the step.
// * Gradients. The summands of each learned tensor cover each weight with each output once. They are summed over
//   exactly the ranks that have one, before they are used.
// * Updates. If the plan has an optimiser, each learned tensor is updated once, with its own gradient and states. The
//   update comes after the sum of the gradient over the ranks. No node reads the new value.
// * Norms. If the update clips gradients or is LARS, the squares of each learned tensor are summed once, each block on
//   one rank, and over all ranks where tensors are split. Each update uses the result.
// * Sums. A sum over ranks that a stage reads was made once, over exactly the ranks that have a part. These are
//   statistics of normalisations, means over pixels, and losses. The owner of a partial sum of a convolution gets the
//   products of each channel once.
// * No deadlock. The plans of all ranks run to the end if each communication is a rendezvous. Then they do in every
//   order of schedule() (nn/plan/detail/verify_progress.hpp has the proof).
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/step_plan.hpp>

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace aloni::nn {

struct PlanFault {
  std::string what;        ///< the violated rule, with buffer and box
  std::string node;        ///< label of the node; empty: none
  std::vector<int> ranks;  ///< the ranks concerned
};
/// "rank 2, forward conv1: interior: …"
std::string to_string(const PlanFault& fault);

/// The first fault, or nothing. @pre plans[r].rank == r; the plans were made for `layers`
std::optional<PlanFault> verify(const NetworkPlan& layers, std::span<const StepPlan> plans);

}  // namespace aloni::nn
