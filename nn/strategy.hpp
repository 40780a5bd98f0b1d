#pragma once
// How each layer is spread over the ranks, as plain data with a readable text form. One rule per line: the name of a layer,
// or a pattern with `*` and `?`, and a process grid; the first rule that matches a layer counts; `#` starts a comment.
//
//   # LeNet-5: rows split for the convolutions, samples for the rest
//   conv*   h2
//   pool*   h2
//   *       n2
//
// A grid of fewer blocks than ranks must divide their number; the layer is then computed ranks / blocks times, identically.
// Layers whose tensors have no spatial extent (flatten, dense) fold the grid into the sample dimension: h2w2 acts as n4.
#include <aloni/nn/network_description.hpp>
#include <aloni/views/process_grid.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace aloni::nn {

struct StrategyRule {
  std::string pattern;
  views::ProcessGrid grid;
  int line = 0;  ///< in the text it came from, 0 if from none
};

struct Strategy {
  std::string source = "strategy";  ///< what errors call it: a path, or the grid's text
  std::vector<StrategyRule> rules;

  /// One grid for all layers.
  static Strategy uniform(const views::ProcessGrid& grid);
  /// Throws InvalidArgument naming `source` and the line.
  static Strategy parse(std::string_view text, const std::string& source);
  /// Throws FileError, InvalidArgument. Not collective: reads on the calling rank.
  static Strategy read(const std::string& path);
};

std::string to_string(const Strategy& s);

/// The grid of every layer, in the order of layers.
/// Throws InvalidArgument (equal on all ranks): a rule without `*` or `?` that names no layer; a layer that no rule matches; a grid
/// of more blocks than ranks, or whose size doesn't divide them; a spatial letter that the network doesn't have.
/// Throws Unsupported for a cut of the channel dimension.
std::vector<views::ProcessGrid> resolve(const Strategy& strategy, const NetworkDescription& network, int ranks);

/// The grid with all blocks moved to the sample dimension.
views::ProcessGrid fold_into_samples(const views::ProcessGrid& grid);

}  // namespace aloni::nn
