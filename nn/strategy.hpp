#pragma once
// How each layer is split over the ranks, as plain data with a readable text form.
// One rule per line: a layer name, or a pattern with `*` and `?`; a split; optionally an overlap (name() in
// nn/layer_split.hpp).
// The first rule that matches a layer counts. `#` starts a comment.
//
//   # LeNet-5: rows split for the convolutions, samples for the rest
//   conv1   h2  blocking
//   conv*   h2
//   pool*   h2
//   *       n2
//
// recompute_halo joins the halo exchanges of consecutive layers into one (nn/layer_split.hpp). It is refused for
// layers that compute statistics, and for convolutions and dense layers with split channels or filters.
//
// A split may have fewer blocks than there are ranks. The number of blocks must divide the number of ranks. Then
// ranks / blocks ranks compute each block, with identical results.
// Layers whose tensors have no spatial extent (dense) fold the spatial grid into the sample dimension: h2w2 acts as n4,
// h2c2 as n2c2. A flatten of several pixels folds channels and filters too: h2c2 acts as n4.
// The last layer before a softmax over classes, of samples or of pixels, folds blocks of channels and filters into the
// sample dimension.
#include <aloni/nn/layer_split.hpp>
#include <aloni/nn/network_description.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace aloni::nn {

struct StrategyRule {
  std::string pattern;
  LayerSplit split;
  int line = 0;  ///< line of the source text; 0 if the rule has no source text
};

struct Strategy {
  std::string source = "strategy";  ///< name in error messages: a path, or the text of the grid
  std::vector<StrategyRule> rules;

  /// The same split for all layers.
  static Strategy uniform(const LayerSplit& split);
  /// Throws InvalidArgument naming `source` and the line.
  static Strategy parse(std::string_view text, const std::string& source);
  /// Reads a file on the calling rank; not collective. Throws FileError, InvalidArgument.
  static Strategy read(const std::string& path);
};

std::string to_string(const Strategy& s);

struct Support {
  std::string reason;  ///< empty if supported
  explicit operator bool() const { return reason.empty(); }
};

/// Whether a layer can have this split on this number of ranks, and otherwise the reason. Runs nothing.
/// `layer` is the position in network.layers. Blocks thinner than a halo, empty blocks, and more blocks than channels
/// or rows are all supported.
/// @pre 0 ≤ layer < network.layers.size()
Support supports(const NetworkDescription& network, int layer, const LayerSplit& split, int ranks);

/// The split of every layer, in the order of layers.
/// Throws InvalidArgument (equal on all ranks) for
/// * a rule without `*` or `?` that names no layer;
/// * a layer that no rule matches;
/// * a split into more blocks than ranks, or whose size does not divide the number of ranks;
/// * a letter for a spatial dimension that the network does not have;
/// * a layer that cannot use recompute_halo.
std::vector<LayerSplit> resolve(const Strategy& strategy, const NetworkDescription& network, int ranks);

}  // namespace aloni::nn
