#pragma once
// How each layer is spread over the ranks, as plain data with a readable text form. One rule per line: the name of a layer,
// or a pattern with `*` and `?`, a split, and if wanted how exchange and computation overlap; the first rule that matches a layer counts;
// `#` starts a comment.
//
//   # LeNet-5: rows split for the convolutions, samples for the rest
//   conv1   h2  blocking
//   conv*   h2
//   pool*   h2
//   *       n2
//
// recompute_halo makes one exchange of the ghosts of consecutive layers (nn/layer_split.hpp). It is refused for layers that take statistics, and for convolutions
// whose channels or filters are split.
//
// A split into fewer blocks than ranks must divide their number; the layer is then computed ranks / blocks times, identically.
// Layers whose tensors have no spatial extent (flatten, dense) fold the grid into the sample dimension: h2w2 acts as n4. So do those that
// need all channels of a cell (group and layer normalisation, the last layer before a softmax) with blocks of channels and filters.
#include <aloni/nn/layer_split.hpp>
#include <aloni/nn/network_description.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace aloni::nn {

struct StrategyRule {
  std::string pattern;
  LayerSplit split;
  int line = 0;  ///< in the text it came from, 0 if from none
};

struct Strategy {
  std::string source = "strategy";  ///< what errors call it: a path, or the grid's text
  std::vector<StrategyRule> rules;

  /// One split for all layers.
  static Strategy uniform(const LayerSplit& split);
  /// Throws InvalidArgument naming `source` and the line.
  static Strategy parse(std::string_view text, const std::string& source);
  /// Throws FileError, InvalidArgument. Not collective: reads on the calling rank.
  static Strategy read(const std::string& path);
};

std::string to_string(const Strategy& s);

struct Support {
  std::string reason;  ///< empty: supported
  explicit operator bool() const { return reason.empty(); }
};

/// Whether a layer (position in network.layers) can be split so over that many ranks, or why not, before anything runs. Blocks thinner than a halo,
/// empty blocks, more blocks than channels or rows all can. @pre 0 ≤ layer < network.layers.size()
Support supports(const NetworkDescription& network, int layer, const LayerSplit& split, int ranks);

/// The split of every layer, in the order of layers.
/// Throws InvalidArgument (equal on all ranks): a rule without `*` or `?` that names no layer; a layer that no rule matches; a split
/// into more blocks than ranks, or whose size doesn't divide them; a spatial letter that the network doesn't have; a layer that can't be wide.
std::vector<LayerSplit> resolve(const Strategy& strategy, const NetworkDescription& network, int ranks);

}  // namespace aloni::nn
