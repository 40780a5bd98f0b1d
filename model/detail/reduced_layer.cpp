#include <aloni/model/detail/reduced_layer.hpp>

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

namespace aloni::model::detail {

using nn::LayerSplit;
using views::Dim;
using views::Extents;
using views::num_dims;
using views::position;

namespace {

bool has_ghosts(const std::optional<halo::Stencil>& stencil, Dim d) { return stencil && !(*stencil)[d].identity(); }

}  // namespace

bool visits_elements(const nn::OperationProperties& p) {
  return !p.stencil && !p.range_rule && !p.convolution && !p.convolution_if_split && !p.reduces_space &&
         !p.splits_samples_only && !p.concatenates;
}

ReducedLayer reduce(const nn::NetworkDescription& network, const LayerFacts& facts, const LayerSplit& split, int ranks,
                    bool folds_space) {
  const nn::OperationProperties& p = facts.properties;
  const nn::LayerDescription& layer = network.layers[static_cast<std::size_t>(facts.layer)];
  ReducedLayer reduced{.split = split, .real_blocks = split.tensor_grid().blocks};
  Extents input = facts.input;
  std::array<int, num_dims> center{};  // coordinates of the rank, in the reduced and in the real grid
  std::array<int, num_dims> real_center{};

  // Samples: one block. Sums over all ranks need a second one to be in the plan.
  const auto* bn = std::get_if<nn::BatchNorm>(&layer.operation);
  const int copies = ranks / std::max(1, split.grid[Dim::channel]);
  const bool sums_over_all =
      bn && copies > 1 &&
      (bn->scope == nn::StatisticsScope::all || (bn->scope == nn::StatisticsScope::neighbours && bn->ranks > 1));
  reduced.split.grid[Dim::sample] = sums_over_all ? 2 : 1;
  reduced.samples = ceil_div(facts.input[Dim::sample], split.grid[Dim::sample]);

  const bool sums_over_space = p.reduces_space || std::holds_alternative<nn::GroupNorm>(layer.operation) ||
                               (bn && bn->scope == nn::StatisticsScope::spatial);
  for (const Dim d : views::spatial_dims) {
    const int blocks = split.grid[d];
    if (blocks == 1) continue;
    if (p.range_rule) {
      const auto* up = std::get_if<nn::Upsampling>(&layer.operation);
      const bool scales = up && up->output == std::array<Index, 3>{0, 0, 0};
      if (!scales || blocks <= 3) continue;  // extents of the output that are given stay as they are
      reduced.split.grid[d] = 3;
      input[d] = 3 * ceil_div(facts.input[d], blocks);
      continue;
    }
    int few = sums_over_space ? 2 : 1;
    if (has_ghosts(p.stencil, d)) {
      few = std::min(blocks, 3);
      if (few == blocks) continue;
      const halo::Stencil1D& w = (*p.stencil)[d];
      const Index out = few * ceil_div(facts.output[d], blocks);
      if (p.convolution && p.convolution->transposed) {
        // Much padding leaves few outputs: the input is so long that each block has one.
        const Index fixed = facts.output[d] - (facts.input[d] - 1) * w.stride;
        const Index least = 1 + std::max<Index>(0, ceil_div(few - fixed, w.stride));
        input[d] = std::max(few * ceil_div(facts.input[d], blocks), least);
      } else {
        input[d] = std::max<Index>(1, (out - 1) * w.stride + w.reach() - w.pad_low - w.pad_high);
      }
    } else {
      input[d] = few * ceil_div(facts.input[d], blocks);
    }
    reduced.split.grid[d] = few;
  }
  const bool channels_meet = p.convolution || p.convolution_if_split ||
                             std::holds_alternative<nn::GroupNorm>(layer.operation) ||
                             std::holds_alternative<nn::LayerNorm>(layer.operation);
  if (!channels_meet && split.grid[Dim::channel] > 1) {
    input[Dim::channel] = ceil_div(facts.input[Dim::channel], split.grid[Dim::channel]);
    reduced.split.grid[Dim::channel] = 1;
  }
  if (folds_space && visits_elements(p) && reduced.split.grid.spatial_size() == 1) {
    for (const Dim d : views::spatial_dims) reduced.samples *= std::exchange(input[d], 1);
  }
  reduced.samples *= reduced.split.grid[Dim::sample];

  input[Dim::sample] = 1;
  reduced.network = {
      .spatial_rank = network.spatial_rank, .input = input, .layers = {layer}, .loss = nn::Loss::mean_squared_error};
  for (std::string& name : reduced.network.layers[0].inputs) name = "input";

  // The middle of an even number of blocks has a border between nodes on its left, if there is one.
  const views::ProcessGrid few = reduced.split.tensor_grid(), all = split.tensor_grid();
  for (const Dim d : views::spatial_dims) {
    const auto i = static_cast<std::size_t>(position(d));
    center[i] = few[d] / 2;
    if (few[d] == 2) center[i] = 0;  // the larger block
    real_center[i] = few[d] == all[d] ? center[i] : std::max(1, all[d] / 2);
  }
  center[4] = real_center[4] = few[Dim::channel] / 2;
  reduced.rank = few.rank_of(center);
  for (int r = 0; r < few.size(); ++r) {
    auto coordinate = few.coordinate(r);
    for (std::size_t i = 0; i < num_dims; ++i) {
      const int moved = real_center[i] + coordinate[i] - center[i];
      coordinate[i] = std::clamp(moved, 0, all.blocks[i] - 1);
    }
    reduced.real_ranks.push_back(all.rank_of(coordinate));
  }
  return reduced;
}

}  // namespace aloni::model::detail
