#pragma once
// Where every tensor of a network lives, and the inputs that each rank needs to compute its part. Pure arithmetic
// between a description with a strategy and the running Network: no communication, equal on every rank.
//
//   const NetworkPlan plan = plan_network(net, resolve(strategy, net, ranks), ranks, 64);
//   plan.layers[2].input_needed(rank);   // rows of conv2's input that `rank` reads, ghosts included
//
// Channels are split as described in nn/layer_split.hpp. Spatial layers (convolution, pooling, pointwise) split input
// and output by the same grid.
// So only halos move for windows that keep the extents (spatial-parallel-cnn, section III.A). Layers without spatial
// extent split samples and channels. A dense layer with split channels or filters is planned as a convolution over one
// pixel.
#include <aloni/halo/range_map.hpp>
#include <aloni/halo/stencil.hpp>
#include <aloni/nn/layer_blocks.hpp>
#include <aloni/nn/layer_split.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/views/distribution.hpp>

#include <functional>
#include <optional>
#include <vector>

namespace aloni::nn {

/// Where a layer finds its input on each rank.
enum class InputMode {
  shared,    ///< the producer's output as it is: same distribution, no ghosts
  in_place,  ///< the producer writes into a buffer with ghosts, which a halo exchange fills
  /// The layer has its own buffer, filled by a redistribution, ghosts included. The buffer of a concatenation is its
  /// output.
  separate,
};

struct LayerInput {
  int source = -1;  ///< layer whose output is read; -1: the network's input
  InputMode mode = InputMode::shared;
  /// The distribution in which the layer reads it: LayerPlan::input, except for a concatenation. There it has the
  /// input's own channels. A rank's block of these are the channels that lie in the rank's block of the output, and
  /// may be empty.
  views::Distribution distribution;
  Index channel_offset = 0;  ///< position of its first channel in the output of a concatenation; otherwise 0
};

/// Consecutive channels times consecutive filters: the unit that a local kernel computes.
struct ConvolutionPart {
  halo::Range channels, filters;  ///< indices in the whole tensors
  Index groups = 1;               ///< groups into which channels and filters are split

  friend bool operator==(const ConvolutionPart&, const ConvolutionPart&) = default;
};

/// The plan of a convolution, transposed or not, or of a dense layer with split channels or filters. It adds to the
/// plan of its layer.
struct ConvolutionPlan {
  bool transposed = false;  ///< if so, the layer's stencil is that of the mirrored convolution, from output to input
  Index channels = 1, filters = 1, groups = 1;  ///< of the whole layer
  int channel_blocks = 1, filter_blocks = 1;    ///< of the layer's split
  Overlap overlap = Overlap::interior_first;

  /// The products that a rank computes: in every group, its block of channels times its block of filters. Whole
  /// groups are joined into one part; each partial group is a part of its own. Empty if the rank's blocks have no
  /// group in common.
  std::vector<ConvolutionPart> parts(int rank) const;
  /// Box of the weights that a part uses. `weights`: extents of the whole weights, indexed as in parameters_of().
  /// Ranks equal modulo blocks() have the same parts. Parts of other ranks have no element in common with them.
  views::Box weights_of(const ConvolutionPart& part, const views::Extents& weights) const;
  int blocks() const { return channel_blocks * filter_blocks; }
  /// The range from the first to the last channel of the parts, and the same for filters.
  ConvolutionPart hull(int rank) const;
};

struct LayerPlan {
  std::vector<LayerInput> inputs;
  /// Distribution in which the layer needs its inputs; all have equal extents. A concatenation: that of its inputs
  /// side by side, equal to `output`.
  views::Distribution input;
  views::Distribution output;
  bool is_identity_in_inference = false;  ///< dropout: its output may then be its input
  bool passes_gradient_on = false;        ///< a sum: dL/dx of each input is dL/dy
  bool windowed = false;  ///< each output depends on a window of the input: convolution, pooling, up-sampling
  halo::Stencil stencil;  ///< the windows; the identity unless `windowed`
  /// Replaces `stencil` for windows without a stride: adaptive pooling, up-sampling.
  std::optional<halo::RangeMap> range_map;
  bool output_has_ghosts = false;  ///< the only reader of the output reads it in_place
  std::optional<ConvolutionPlan> convolution;

  /// The boxes below, dimension by dimension.
  LayerBlocks blocks;

  /// Extents of all weights, as in parameters_of(). @pre convolution
  views::Extents weights() const;
  /// Bounding box of the weights that the rank uses. @pre convolution
  views::Box weights_needed(int rank) const;

  /// The outputs that the rank computes or adds to: the owned box, for a convolution with all filters that the rank
  /// multiplies.
  views::Box output_work(int rank) const;
  /// The inputs whose gradient the rank computes or adds to.
  views::Box input_work(int rank) const;
  /// The input that `outputs` depend on, and the dL/dy that the gradients of `inputs` depend on. Both are clipped to
  /// the tensor and contain all channels or filters that the rank multiplies.
  /// @pre convolution
  views::Box input_of(const views::Box& outputs, int rank) const;
  views::Box output_gradient_of(const views::Box& inputs, int rank) const;

  /// Whether the memory of dL/dy includes ghosts. It does for a convolution that multiplies filters it does not own,
  /// and where the owned box stays contiguous with ghosts around it.
  bool output_gradient_in_place = false;
  /// Box that the memory of dL/dy covers.
  views::Box output_gradient_box(int rank) const;

  /// Overlap::recompute_halo only: for each rank, the owned outputs and the outputs its readers need. Empty if on all
  /// ranks this is the owned box.
  std::vector<views::Box> recomputed;
  /// Outputs that the rank computes in the forward pass: `recomputed`, or output_work() where that is empty.
  /// Gradients cover the owned outputs only.
  views::Box forward_work(int rank) const;

  /// The inputs that the rank reads. Windowed layers: the inputs of forward_work(), clipped to the tensor; empty if
  /// there is no output. Other layers: `recomputed`, or the owned inputs where that is empty.
  views::Box input_needed(int rank) const;
  /// input_needed() in the indices of one of `inputs`, which differ from those of the layer in a concatenation.
  views::Box needed_of(const LayerInput& input, int rank) const;
  /// The inputs that the owned outputs depend on. The gradients of the owned outputs are added to these inputs.
  views::Box input_needed_by_owned(int rank) const;
  /// The outputs whose gradient is needed for the gradient of the rank's own input (backward-data).
  views::Box output_gradient_needed(int rank) const;
};

/// The caller's own tensor as the network's input. The plan reads it and never writes it.
struct AdoptedInputPlan {
  views::Distribution distribution;
  bool dense = false;  ///< on all ranks the owned box is dense; kernels read no other memory
};

struct NetworkPlan {
  views::Distribution input;      ///< of the network's input
  bool input_has_ghosts = false;  ///< the only reader of the input reads it in_place
  bool input_is_adopted = false;  ///< the input lies in memory of the caller
  std::vector<LayerPlan> layers;
  /// Per layer: the layers that read its output, ascending; twice if read twice.
  std::vector<std::vector<int>> readers;
  std::vector<int> input_readers;

  const views::Distribution& output_of(int layer) const { return layer < 0 ? input : layers[layer].output; }
  const std::vector<int>& readers_of(int layer) const { return layer < 0 ? input_readers : readers[layer]; }
};

/// `adopted`: the input, if it lies in memory of the caller. Then its distribution may be any. Layers that need
/// ghosts, another distribution or dense memory read it by a redistribution (`separate`).
/// @pre splits.size() == network.layers.size() (from resolve())
/// @pre samples ≥ 1, ranks ≥ 1
/// @pre `adopted` has the extents of the mini-batch and this number of ranks
/// Throws InvalidArgument (equal on all ranks).
NetworkPlan plan_network(const NetworkDescription& network, const std::vector<LayerSplit>& splits, int ranks,
                         Index samples, const std::optional<AdoptedInputPlan>& adopted = {});

/// The box with its channels moved by `offset`.
views::Box shift_channels(views::Box box, Index offset);

/// Whether any rank of the layer needs a box that reaches beyond the box that it owns. `owned`: the distribution of the
/// layer's input or output. `needed`: one of the boxes of LayerPlan.
bool needs_ghosts(const LayerPlan& layer, const views::Distribution& owned,
                  const std::function<views::Box(int rank)>& needed);

}  // namespace aloni::nn
