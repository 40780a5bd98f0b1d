#pragma once
// Which ranks add their sums, and how these ranks lie on the nodes of a machine.
#include <aloni/core/machine.hpp>
#include <aloni/nn/layer.hpp>
#include <aloni/nn/network_plan.hpp>

#include <vector>

namespace aloni::nn::detail {

/// The ranks over whose boxes a layer takes its sums (normalisation, mean over pixels), ascending. `rank` alone for
/// layers without sums over ranks.
std::vector<int> members_of_sums(const Operation& operation, const LayerPlan& plan, int rank);

/// Group normalisation: the ranks that add sums have consecutive blocks of the channels, and together they have whole
/// groups. A group may have channels in several blocks, and a block may have channels of several groups.
struct LinkedBlocks {
  int first = 0, end = 1;  ///< blocks: grid coordinates of the channel dimension
  halo::Range channels;    ///< of these blocks, a multiple of a group
};
/// The linked blocks of a rank; its own block alone if no border between blocks divides a group.
LinkedBlocks linked_blocks(const GroupNorm& op, const LayerPlan& plan, int rank);

/// Elements of a channel over which batch normalisation takes mean and variance. @pre `members`: members_of_sums()
Index count_of(const BatchNorm& op, const LayerPlan& plan, const std::vector<int>& members);

/// The ranks that sum the gradients of a segment with this number of weight blocks.
std::vector<int> members_of_gradients(int blocks, int ranks, int rank);

/// Positions of the members on each node. Ranks that share no memory count as ranks of different nodes.
std::vector<std::vector<int>> positions_by_node(const std::vector<int>& members, const MachineDescription& machine);

}  // namespace aloni::nn::detail
