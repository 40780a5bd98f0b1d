#pragma once
// Where every tensor of a network lives and what each rank needs to compute its part: the pure arithmetic between a
// description with a strategy and the running Network. No communication; the same value on every rank.
//
//   const NetworkPlan plan = plan_network(net, resolve(strategy, net, ranks), ranks, 64);
//   plan.layers[2].input_needed(rank);   // rows of conv2's input that `rank` reads, ghosts included
//
// Spatial layers (convolution, pooling, pointwise ones) cut input and output by the same grid, so that for "same"-sized
// windows only halos move (spatial-parallel-cnn, section III.A). Layers without spatial extent cut the samples only.
#include <aloni/halo/range_map.hpp>
#include <aloni/halo/stencil.hpp>
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

struct LayerPlan {
  std::vector<LayerInput> inputs;
  views::Distribution input;  ///< that this layer wants its inputs in (all have the same extents)
  views::Distribution output;
  bool windowed = false;  ///< an output depends on a window of the input: convolution, pooling, up-sampling
  halo::Stencil stencil;  ///< the windows; the identity unless windowed
  std::optional<halo::RangeMap>
      range_map;                   ///< the windows instead, where these have no stride: adaptive pooling, up-sampling
  bool output_has_ghosts = false;  ///< its only reader reads it in_place

  /// The input indices that the rank reads: for windowed layers those that its output depends on, clipped to the tensor
  /// (empty when it owns no output), for all others what it owns of the input.
  views::Box input_needed(int rank) const;
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

/// @pre grids.size() == network.layers.size() (from resolve())
/// @pre samples ≥ 1, ranks ≥ 1
/// Throws InvalidArgument (equal on all ranks).
NetworkPlan plan_network(const NetworkDescription& network, const std::vector<views::ProcessGrid>& grids, int ranks,
                         Index samples);

/// Whether on any rank `needed` reaches beyond what it owns.
bool needs_ghosts(const views::Distribution& owned, const std::vector<views::Box>& needed);

}  // namespace aloni::nn
