#pragma once
// One direction of a convolution, from x to y or from dL/dy to dL/dx, as arithmetic on boxes: who computes what of it, what that takes, and
// what of it can be computed before ghosts have come.
#include <aloni/nn/local/convolution_problem.hpp>
#include <aloni/nn/network_plan.hpp>

#include <functional>
#include <utility>
#include <vector>

namespace aloni::nn::detail {

std::vector<views::Box> boxes_of(int ranks, const std::function<views::Box(int)>& box);

views::Box with_range(views::Box box, views::Dim d, Index lo, Index hi);
views::Box with_channels(const views::Box& box, const halo::Range& channels);

/// Its size without channels.
Index pixels(const views::Box& box);

/// The outermost dimension in which there is more than one index: slabs of it are contiguous. The sample dimension where there is none.
views::Dim outermost(const views::Box& box);

/// Part k of `count` of a box, split along one dimension.
views::Box chunk_of(const views::Box& box, views::Dim d, int k, int count);

/// @pre plan.convolution; the plan outlives this
struct Direction {
  const LayerPlan& plan;
  bool backward = false;

  const views::Distribution& source() const { return backward ? plan.output : plan.input; }
  const views::Distribution& target() const { return backward ? plan.input : plan.output; }
  /// What a rank computes, or adds to.
  views::Box work(int rank) const { return backward ? plan.input_work(rank) : plan.forward_work(rank); }
  /// What it needs for a part of that.
  views::Box needed_for(const views::Box& part, int rank) const {
    return backward ? plan.output_gradient_of(part, rank) : plan.input_of(part, rank);
  }
  views::Box needed(int rank) const { return needed_for(work(rank), rank); }
  const halo::Range& source_channels(const ConvolutionPart& p) const { return backward ? p.filters : p.channels; }
  const halo::Range& target_channels(const ConvolutionPart& p) const { return backward ? p.channels : p.filters; }
  /// Whether the local kernel runs its convolution forward.
  bool gathers() const { return backward == plan.convolution->transposed; }

  /// Of the indices of `work`, which a rank computes, those in one dimension that need nothing of other ranks.
  halo::Range interior(int rank, const views::Box& work, views::Dim dim) const;

  /// What is computed before the ghosts have come, and after: slabs along the outermost spatial dimension are left for later, faces of the others
  /// computed twice. Without an interior all is for later.
  std::pair<std::vector<views::Box>, std::vector<views::Box>> interior_first(int rank, const views::Box& work) const;

  /// What the latter costs, as a share of computing all at once; 1 without an interior.
  double overhead(int rank, const views::Box& work) const;
};

/// The local problem of one part: `x` and `y` are boxes of the layer's tensors with the part's channels and filters.
local::ConvolutionProblem problem_of(const LayerPlan& plan, const ConvolutionPart& part, const views::Box& x,
                                     const views::Box& y);

}  // namespace aloni::nn::detail
