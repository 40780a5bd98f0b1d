#include <aloni/nn/plan/recomputation.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/detail/layer_names.hpp>
#include <aloni/nn/layer_pattern.hpp>

#include <cstddef>

namespace aloni::nn {

Recomputation recomputed_blocks(const NetworkDescription& network, const std::string& patterns) {
  const auto layers = static_cast<int>(network.layers.size());
  const std::vector<int> pattern_of =
      match_patterns(patterns, detail::layer_names(network), "aloni::nn::recomputed_blocks");
  Recomputation blocks;
  for (int i = 0; i < layers; ++i) {
    const int mine = pattern_of[static_cast<std::size_t>(i)];
    if (mine < 0) continue;
    if (i > 0 && pattern_of[static_cast<std::size_t>(i) - 1] == mine) {
      blocks.back().last = i;
    } else {
      blocks.push_back({i, i});
    }
  }
  return blocks;
}

void check(const Recomputation& blocks, int layers, const char* operation) {
  int next = 0;
  for (const RecomputedBlock& block : blocks) {
    if (block.first < next || block.last < block.first || block.last >= layers) {
      throw InvalidArgument(operation, "recompute",
                            "layers " + std::to_string(block.first) + " to " + std::to_string(block.last),
                            "ascending blocks without common layers, within the " + std::to_string(layers) + " layers");
    }
    next = block.last + 1;
  }
}

std::string to_string(const Recomputation& blocks, const NetworkDescription& network) {
  std::string text;
  for (const RecomputedBlock& block : blocks) {
    text += (text.empty() ? "" : ", ") + network.layers[static_cast<std::size_t>(block.first)].name;
    if (block.last > block.first) text += " to " + network.layers[static_cast<std::size_t>(block.last)].name;
  }
  return text.empty() ? "none" : text;
}

}  // namespace aloni::nn
