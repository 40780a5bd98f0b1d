#pragma once
// One direction of a convolution (x to y, or dL/dy to dL/dx) as arithmetic on boxes. There are three: the box that each
// rank computes, the box it needs for that, and the box it can compute without ghosts.
#include <aloni/nn/local/convolution_problem.hpp>
#include <aloni/nn/network_plan.hpp>

#include <utility>
#include <vector>

namespace aloni::nn::detail {

views::Box with_range(views::Box box, views::Dim d, Index lo, Index hi);
views::Box with_channels(const views::Box& box, const halo::Range& channels);

/// The channels of a box as the box of a flat tensor, for example of a bias.
views::Box channels_of(const views::Box& box);

/// Whether the elements of `part` fill one block of dense memory that covers `memory`. @pre contains(memory, part)
bool is_dense(const views::Box& part, const views::Box& memory);

/// Size of a box without channels.
Index pixels(const views::Box& box);

/// The first dimension with more than one index; slabs along it are contiguous. The sample dimension if there is
/// none.
views::Dim outermost(const views::Box& box);

/// Chunk k of `count` of a box that is split along one dimension.
views::Box chunk_of(const views::Box& box, views::Dim d, int k, int count);

/// @pre plan.convolution; the plan outlives this object
struct Direction {
  const LayerPlan& plan;
  bool backward = false;

  const views::Distribution& source() const { return backward ? plan.output : plan.input; }
  const views::Distribution& target() const { return backward ? plan.input : plan.output; }
  /// Targets that the rank computes or adds to.
  views::Box work(int rank) const { return backward ? plan.input_work(rank) : plan.forward_work(rank); }
  /// Sources that the rank needs for a part of its work.
  views::Box needed_for(const views::Box& part, int rank) const {
    return backward ? plan.output_gradient_of(part, rank) : plan.input_of(part, rank);
  }
  views::Box needed(int rank) const { return needed_for(work(rank), rank); }
  const halo::Range& source_channels(const ConvolutionPart& p) const { return backward ? p.filters : p.channels; }
  const halo::Range& target_channels(const ConvolutionPart& p) const { return backward ? p.channels : p.filters; }
  /// Whether the local kernel is a forward convolution: each target gathers its sources.
  bool gathers() const { return backward == plan.convolution->transposed; }

  /// The range of indices in `dim`, within `work`, that needs no ghosts.
  halo::Range interior(int rank, const views::Box& work, views::Dim dim) const;

  /// Boxes of the interior and of the border. The border has slabs along the outermost spatial dimension, and faces
  /// in the other dimensions. The interior contains these faces too, so they are computed twice. Without an interior
  /// all is border.
  std::pair<std::vector<views::Box>, std::vector<views::Box>> interior_first(int rank, const views::Box& work) const;

  /// Extra cost of interior_first(), relative to computing `work` at once; 1 without an interior.
  /// `pixels_per_call`: MachineDescription::pixels_per_call.
  double overhead(int rank, const views::Box& work, double pixels_per_call) const;
};

/// The local problem of one part. `x` and `y`: boxes of the layer's tensors with the channels and filters of the
/// part. Where a layer multiplies one pixel of each sample, the problem has one sample, and the samples as its width.
local::ConvolutionProblem problem_of(const LayerPlan& plan, const ConvolutionPart& part, const views::Box& x,
                                     const views::Box& y);

}  // namespace aloni::nn::detail
