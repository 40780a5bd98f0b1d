#pragma once
// Places the ranks of a step on the nodes of a machine, so that few bytes travel between nodes.
//
//   const RankPlacement placed = place_ranks_of_step(net, layers, machine);
//   simulate(net, layers, machine, kernels, {.rank_of = placed.rank_of}).seconds;      // whether that is faster
//   halo::place_ranks(comm, {.rank_of = placed.rank_of});                               // a running job
//
// Ranks are numbered row by row of their grid. If consecutive ranks fill the nodes, a node of four ranks has a row of
// blocks of the grid h4w4. It exchanges fewer ghosts with other nodes if it has a square of 2 × 2 blocks. The traffic
// is that of the plans; halo/placement/placement.hpp searches the order. Sums over all ranks do not count: their time
// depends on the number of nodes alone.
//
// Of thousands of ranks, groups that exchange values are placed all alike. In the grid n256h4w4 these are 16
// consecutive ranks. So the search takes as long as for one group.
//
// Source: Pearson et al., "Node-Aware Stencil Communication for Heterogeneous Supercomputers", iWAPT 2020
// ("Placement"). Pure; equal arguments give equal results on all ranks.
#include <aloni/model/machine.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/plan_step.hpp>

#include <string>
#include <vector>

namespace aloni::model {

struct RankPlacement {
  /// The place of each rank, as for description_of(). Empty: no other order sends fewer bytes between nodes, or none
  /// was searched. Rank 0 keeps its place, because it writes the files of a job.
  std::vector<int> rank_of = {};
  /// Of a step, sent by all ranks: in this order, and with each rank at its own place. Both are 0 without a search.
  double bytes_between_nodes = 0, bytes_in_order = 0;
  std::string reason = {};  ///< one line: why rank_of is empty; empty if it is not
};

/// Ranks that exchange values, at most; a larger group is not placed. Each of them is planned.
inline constexpr int most_placed_ranks = 64;

/// @pre `layers` was made from `network`. Throws InvalidArgument as description_of().
RankPlacement place_ranks_of_step(const nn::NetworkDescription& network, const nn::NetworkPlan& layers,
                                  const Machine& machine, nn::StepKind kind = nn::StepKind::training,
                                  const nn::StepOptions& step = {});

}  // namespace aloni::model
