#include <aloni/nn/plan/recomputation.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/nearest_name.hpp>
#include <aloni/nn/layer_pattern.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace aloni::nn {

namespace {

std::vector<std::string_view> separated_by_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(',');
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string> layer_names_of(const NetworkDescription& network) {
  std::vector<std::string> names;
  for (const LayerDescription& layer : network.layers) names.push_back(layer.name);
  return names;
}

}  // namespace

Recomputation recomputed_blocks(const NetworkDescription& network, const std::string& patterns) {
  const auto layers = static_cast<int>(network.layers.size());
  std::vector<int> pattern_of(network.layers.size(), -1);
  int number = 0;
  for (const std::string_view pattern : separated_by_commas(patterns)) {
    bool selects = false;
    for (int i = 0; i < layers; ++i) {
      const auto l = static_cast<std::size_t>(i);
      if (pattern_of[l] >= 0 || !matches_pattern(pattern, network.layers[l].name)) continue;
      pattern_of[l] = number;
      selects = true;
    }
    if (!selects) {
      throw InvalidArgument("aloni::nn::recomputed_blocks", "pattern", '"' + std::string(pattern) + '"',
                            "a pattern that matches the name of a layer that no earlier pattern matches" +
                                did_you_mean(pattern, layer_names_of(network)));
    }
    ++number;
  }
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
