#pragma once
// Into how many blocks a tensor is split for a machine of nodes, so that little is exchanged, and least between nodes.
//
//   const Extents extents = make_extents(1, {1024, 1024, 1024}, 1);
//   const Decomposition d = decompose(extents, {Dim::depth, Dim::height, Dim::width}, 2, 6);
//   to_string(d.nodes);                              // "d2": each of 2 nodes has a half
//   to_string(d.grid);                               // "d2h3w2": which it splits for its 6 ranks
//   Distribution::block(extents, d.grid, 12);
//
// The hierarchical decomposition of Pearson et al., "Node-Aware Stencil Communication for Heterogeneous
// Supercomputers", iWAPT 2020 ("Decomposition"): the prime factors of a count, largest first, each split the dimension
// that is the longest by then; first those of the nodes, then those of the ranks in a node. Large factors go first
// because the small ones after them even out what is left.
// Which rank gets which block is a question of its own: halo/placement/placement.hpp.
#include <aloni/views/process_grid.hpp>

#include <array>
#include <vector>

namespace aloni::halo {

struct Decomposition {
  views::ProcessGrid grid;   ///< blocks per dimension
  views::ProcessGrid nodes;  ///< bricks of blocks, one for each node, per dimension; divides the grid

  friend bool operator==(const Decomposition&, const Decomposition&) = default;
};

struct DecompositionOptions {
  /// How wide the halo is in each dimension: lengths are compared in halo widths, because a split across dimension d
  /// exchanges halo[d] layers of a thickness of one. Above 0.
  std::array<double, views::num_dims> halo{1, 1, 1, 1, 1};
};

/// Nodes × ranks_per_node blocks. Only `dims` are split; of equally long ones the first in `dims`. With fewer elements
/// than blocks in a dimension some blocks are empty, as Distribution::block says.
/// @pre dims not empty, each at most once
/// @pre nodes ≥ 1, ranks_per_node ≥ 1
/// @pre halo widths above 0
/// Throws InvalidArgument (equal on all ranks).
Decomposition decompose(const views::Extents& extents, const std::vector<views::Dim>& dims, int nodes,
                        int ranks_per_node, const DecompositionOptions& options = {});
/// For machines whose nodes have different numbers of ranks: without nodes, as if all ranks were on one.
Decomposition decompose(const views::Extents& extents, const std::vector<views::Dim>& dims, int ranks,
                        const DecompositionOptions& options = {});

/// The brick, numbered row-major as blocks are, that holds a block. @pre 0 ≤ block < grid.size()
int node_of(const Decomposition& decomposition, int block);

}  // namespace aloni::halo
