#pragma once
// Chooses a process grid for a machine of nodes, so that ranks exchange few bytes, and nodes even fewer.
//
//   const Extents extents = make_extents(1, {1024, 1024, 1024}, 1);
//   const Decomposition d = decompose(extents, {Dim::depth, Dim::height, Dim::width}, 2, 6);
//   to_string(d.nodes);                              // "d2": each of 2 nodes has one half
//   to_string(d.grid);                               // "d2h3w2": each node splits its half for its 6 ranks
//   Distribution::block(extents, d.grid, 12);
//
// The hierarchical decomposition of Pearson et al., "Node-Aware Stencil Communication for Heterogeneous
// Supercomputers", iWAPT 2020 ("Decomposition"). The prime factors of a count, largest first, each split the dimension
// that is the longest at that point. The factors of the number of nodes come first, then those of the ranks per node.
// Large factors go first because the small factors can even out the remaining differences.
// halo/placement/placement.hpp chooses which rank gets which block.
#include <aloni/views/process_grid.hpp>

#include <array>
#include <vector>

namespace aloni::halo {

struct Decomposition {
  views::ProcessGrid grid;   ///< blocks per dimension
  views::ProcessGrid nodes;  ///< nodes per dimension; divides the grid into one brick of blocks per node

  friend bool operator==(const Decomposition&, const Decomposition&) = default;
};

struct DecompositionOptions {
  /// Halo width in each dimension, above 0. Lengths are compared in halo widths, because a split of dimension d
  /// exchanges halo[d] layers.
  std::array<double, views::num_dims> halo{1, 1, 1, 1, 1};
};

/// A grid of nodes × ranks_per_node blocks. Only `dims` are split; among equally long dimensions the first in `dims`.
/// If a dimension has fewer elements than blocks, some blocks are empty (Distribution::block).
/// @pre dims not empty, each at most once
/// @pre nodes ≥ 1, ranks_per_node ≥ 1, their product ≤ views::max_blocks
/// @pre halo widths above 0
/// Throws InvalidArgument (equal on all ranks).
Decomposition decompose(const views::Extents& extents, const std::vector<views::Dim>& dims, int nodes,
                        int ranks_per_node, const DecompositionOptions& options = {});
/// For machines whose nodes have different numbers of ranks: ignores nodes, as if all ranks were on one node.
Decomposition decompose(const views::Extents& extents, const std::vector<views::Dim>& dims, int ranks,
                        const DecompositionOptions& options = {});

/// The node whose brick contains a block. Nodes are numbered row-major, as blocks are. @pre 0 ≤ block < grid.size()
int node_of(const Decomposition& decomposition, int block);

}  // namespace aloni::halo
