#pragma once
// Where each learned tensor lies on one rank: whole or in blocks, and at which place of which segment. A segment is one
// flat block of memory with all tensors whose gradients are summed over the same ranks. Pure arithmetic.
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/views/box.hpp>

#include <cstddef>
#include <vector>

namespace aloni::nn {

/// Numbers of blocks into which the weights of a convolution or dense layer are split, by channels and by filters.
struct WeightBlocks {
  int channels = 1, filters = 1;

  int count() const { return channels * filters; }
  friend bool operator==(const WeightBlocks&, const WeightBlocks&) = default;
};

/// Where a tensor is stored.
struct ParameterPlace {
  WeightBlocks blocks = {};
  views::Box kept;  ///< the box of the tensor that the rank keeps
  /// The disjoint boxes that only this rank keeps, apart from ranks equal to it modulo blocks.count().
  std::vector<views::Box> own = {};
  std::size_t segment = 0;
  Index offset = 0;  ///< position in the segment
  Index first = 0;   ///< position of the whole tensor among all tensors
};

struct ParameterLayout {
  std::vector<ParameterDescription> descriptions;
  std::vector<ParameterPlace> places;  ///< one per tensor
  /// Per segment, ascending: number of weight blocks. Ranks that are equal modulo this number keep the same block.
  std::vector<int> blocks;
  std::vector<Index> lengths;  ///< elements per segment

  /// Position of the k-th tensor of a layer. Throws InvalidArgument for a layer without tensors.
  int find(int layer, int k) const;
};

/// All tensors whole on every rank.
ParameterLayout lay_out_parameters(const NetworkDescription& network);
/// Weights of layers with split channels or filters split likewise. @pre 0 ≤ rank < ranks of the plan
ParameterLayout lay_out_parameters(const NetworkDescription& network, const NetworkPlan& plan, int rank);

}  // namespace aloni::nn
