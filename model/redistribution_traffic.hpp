#pragma once
// The elements and messages of one rank in a redistribution, for grids of thousands of blocks.
//
//   const BlockLayout from{extents, ProcessGrid::parse("n256h4w4")}, to{extents, ProcessGrid::parse("n1024c4")};
//   const RedistributionTraffic in = received_traffic(from, to, 17, {{16, 20}});      // with 16 to 19 on its node
//   in.node + in.far;                                       // elements from other ranks
//
// Consecutive ranks form a few bricks of the grid: the ranks whose leading coordinates are equal, and whose other
// coordinates are ranges. The elements of a brick are a product over dimensions. The time therefore depends on the
// number of ranges of ranks on a node. It depends neither on the number of ranks nor on the number of ranks of a node.
//
// Pure.
#include <aloni/halo/stencil.hpp>
#include <aloni/views/extents.hpp>
#include <aloni/views/process_grid.hpp>

#include <array>
#include <vector>

namespace aloni::model {

/// A distribution, without the borders of all its blocks: those of thousands of blocks would cost more than the rest.
struct BlockLayout {
  views::Extents extents = {};
  views::ProcessGrid grid = {};
  bool replicates_space = false;            ///< every rank has all of depth, height and width
  std::vector<Index> channel_borders = {};  ///< of the blocks of channels; empty: even blocks

  std::array<halo::Range, views::num_dims> owned(int rank) const;
};

/// Consecutive ranks.
struct RankRange {
  int first = 0, last = 0;  ///< [first, last)

  friend bool operator==(const RankRange&, const RankRange&) = default;
};

/// The traffic of one rank in a redistribution, in elements. Within the node means: with other ranks of it.
struct RedistributionTraffic {
  double self = 0;
  double node = 0, node_messages = 0;
  double far = 0, far_messages = 0;
};

/// The elements that a rank receives. Equal to the counts of halo::plan_redistribution(), without its loop over all
/// ranks. `company`: all ranks of its node, itself included. @pre both layouts have equal extents
RedistributionTraffic received_traffic(const BlockLayout& from, const BlockLayout& to, int rank,
                                       const std::vector<RankRange>& company);

}  // namespace aloni::model
