#pragma once
// The boxes of one layer, dimension by dimension, so that planners look at few ranks where there are thousands.
//
//   const LayerBlocks blocks = find_blocks(layer);
//   blocks.representatives;        // ranks that stand for all ranks where only extents and distances count
//   blocks.neighbours(rank);       // ranks with which this one may exchange ghosts or partial sums, itself included
//
// Each box of a layer (owned, needed, computed; see LayerPlan) is the product of one range per dimension. That range
// depends on the rank's grid coordinate in this dimension alone. A box is empty exactly if one of its ranges is. Two
// coordinates are in one class if all their ranges are equal except for a translation. This includes the ranges of the
// coordinate itself and the ranges of the coordinates that overlap with it. A translation may differ between input and
// output, if windows are translated with them. So work, messages and memory are equal on ranks whose coordinates are in
// equal classes.
#include <aloni/halo/stencil.hpp>
#include <aloni/views/process_grid.hpp>

#include <array>
#include <vector>

namespace aloni::nn {

struct LayerPlan;

struct LayerBlocks {
  struct Dimension {
    std::vector<int> classes = {0};  ///< of each coordinate, numbered from 0 in the order of their first coordinates
    /// Of each coordinate: the coordinates with overlapping ranges, ascending, itself included. Empty: itself alone.
    std::vector<std::vector<int>> neighbours = {};
    /// LayerPlan::input_needed of each coordinate. Empty: the owned input.
    std::vector<halo::Range> needed = {};
  };

  /// False: the boxes are no products. Then each rank is a representative, and all ranks are neighbours.
  bool are_products = true;
  views::ProcessGrid grid = {};
  std::array<Dimension, views::num_dims> dimensions = {};
  /// Ascending. Each rank has its class in every dimension in common with one of these ranks.
  std::vector<int> representatives = {0};

  /// Ranks of the same replica, ascending.
  std::vector<int> neighbours(int rank) const;
};

/// @pre distributions, windows and LayerPlan::recomputed of the layer are set
LayerBlocks find_blocks(const LayerPlan& layer);

/// Ranks whose needed part of one input overlaps with the box of a rank that owns part of it. Ascending; may contain
/// ranks without an overlap. `input`: position in LayerPlan::inputs. `owned`: a box of this input, in its own indices.
std::vector<int> readers_of(const LayerPlan& layer, std::size_t input, const views::Box& owned);

/// Of each grid coordinate: the range of one input that the layer needs, in indices of this input.
/// @pre layer.blocks.are_products
std::vector<halo::Range> needed_ranges(const LayerPlan& layer, std::size_t input, views::Dim d);

}  // namespace aloni::nn
