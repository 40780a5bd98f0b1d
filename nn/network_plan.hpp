#pragma once
// Where every tensor of a network lives and what each rank needs to compute its part: the pure arithmetic between a
// description with a strategy and the running Network. No communication; the same value on every rank.
//
//   const NetworkPlan plan = plan_network(net, resolve(strategy, net, ranks), ranks, 64);
//   plan.layers[2].input_needed(rank);   // rows of conv2's input that `rank` reads, ghosts included
//
// Channels are split as nn/layer_split.hpp says. Spatial layers (convolution, pooling, pointwise ones) split input and output by the same grid, so that for "same"-sized
// windows only halos move (spatial-parallel-cnn, section III.A). Layers without spatial extent split the samples only.
#include <aloni/halo/range_map.hpp>
#include <aloni/halo/stencil.hpp>
#include <aloni/nn/layer_split.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/views/distribution.hpp>

#include <optional>
#include <vector>

namespace aloni::nn {

/// Where a layer finds its input on each rank.
enum class InputMode {
  shared,    ///< the producer's output as it is: same distribution, no ghosts
  in_place,  ///< the producer writes into a buffer with ghosts, which a halo exchange fills
  separate,  ///< a buffer of its own, filled by a redistribution (ghosts included)
};

struct LayerInput {
  int source = -1;  ///< layer whose output is read, -1: the network's input
  InputMode mode = InputMode::shared;
};

/// One product of a run of channels with a run of filters: what a local kernel computes.
struct ConvolutionPart {
  halo::Range channels, filters;  ///< of the whole tensors
  Index groups = 1;               ///< that both are split into

  friend bool operator==(const ConvolutionPart&, const ConvolutionPart&) = default;
};

/// What a convolution, transposed or not, adds to the plan of a layer.
struct ConvolutionPlan {
  bool transposed = false;  ///< the layer's stencil then is that of the mirrored convolution, from output to input
  Index channels = 1, filters = 1, groups = 1;  ///< of the layer
  int channel_blocks = 1, filter_blocks = 1;    ///< of its split
  Overlap overlap = Overlap::interior_first;

  /// What a rank multiplies: of every group, its block of channels with its block of filters. Groups of which it has only a part are parts of their
  /// own, the others together are one. None where its blocks have no group in common.
  std::vector<ConvolutionPart> parts(int rank) const;
  /// The box of the whole weights, indexed as in parameters_of() with the given extents, that a part multiplies by. Parts of ranks that are equal
  /// modulo blocks() are the same; those of the others have no element in common with them.
  views::Box weights_of(const ConvolutionPart& part, const views::Extents& weights) const;
  int blocks() const { return channel_blocks * filter_blocks; }
  /// From the first to the last channel, and filter, of the parts.
  ConvolutionPart hull(int rank) const;
};

struct LayerPlan {
  std::vector<LayerInput> inputs;
  views::Distribution input;  ///< that this layer wants its inputs in (all have the same extents)
  views::Distribution output;
  bool windowed = false;  ///< an output depends on a window of the input: convolution, pooling, up-sampling
  halo::Stencil stencil;  ///< the windows; the identity unless windowed
  std::optional<halo::RangeMap>
      range_map;                   ///< the windows instead, where these have no stride: adaptive pooling, up-sampling
  bool output_has_ghosts = false;  ///< its only reader reads it in_place
  std::optional<ConvolutionPlan> convolution;

  /// Of all weights, as in parameters_of(). @pre convolution
  views::Extents weights() const;
  /// The box around all that the rank multiplies by. @pre convolution
  views::Box weights_needed(int rank) const;

  /// The outputs that the rank computes, or adds to: what it owns, but with a convolution all the filters it multiplies.
  views::Box output_work(int rank) const;
  /// The inputs whose gradient the rank computes, or adds to.
  views::Box input_work(int rank) const;
  /// What a box of outputs, or of gradients of inputs, depends on, clipped to the tensor, with all channels or filters that the rank multiplies.
  /// @pre convolution
  views::Box input_of(const views::Box& outputs, int rank) const;
  views::Box output_gradient_of(const views::Box& inputs, int rank) const;

  /// Whether dL/dy has memory for what the rank needs of other ranks' around what it owns: with a convolution that multiplies other filters than it owns, or where
  /// what it owns stays contiguous.
  bool output_gradient_in_place = false;
  /// What the memory of dL/dy covers.
  views::Box output_gradient_box(int rank) const;

  /// With Overlap::recompute_halo, of every rank: what it owns of the output and what its readers need of it. Empty where that is what it owns on all of them.
  std::vector<views::Box> recomputed;
  /// The outputs that the rank computes in the forward pass: output_work(), or more with `recomputed`. Gradients are those of what it owns.
  views::Box forward_work(int rank) const;

  /// The input indices that the rank reads: for windowed layers those that forward_work() depends on, clipped to the tensor
  /// (empty when it computes no output), for all others what it owns of the input, or `recomputed`.
  views::Box input_needed(int rank) const;
  /// The same of the outputs that it owns alone: whose gradients theirs add to.
  views::Box input_needed_by_owned(int rank) const;
  /// The output indices whose gradient the gradient of the rank's own input depends on (backward-data).
  views::Box output_gradient_needed(int rank) const;
};

struct NetworkPlan {
  views::Distribution input;      ///< of the network's input
  bool input_has_ghosts = false;  ///< its only reader reads it in_place
  std::vector<LayerPlan> layers;
  std::vector<std::vector<int>> readers;  ///< per layer: who reads its output, ascending; twice if read twice
  std::vector<int> input_readers;

  const views::Distribution& output_of(int layer) const { return layer < 0 ? input : layers[layer].output; }
  const std::vector<int>& readers_of(int layer) const { return layer < 0 ? input_readers : readers[layer]; }
};

/// @pre splits.size() == network.layers.size() (from resolve())
/// @pre samples ≥ 1, ranks ≥ 1
/// Throws InvalidArgument (equal on all ranks).
NetworkPlan plan_network(const NetworkDescription& network, const std::vector<LayerSplit>& splits, int ranks,
                         Index samples);

/// Whether on any rank `needed` reaches beyond what it owns.
bool needs_ghosts(const views::Distribution& owned, const std::vector<views::Box>& needed);

}  // namespace aloni::nn
