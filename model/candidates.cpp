#include <aloni/model/candidates.hpp>

#include <aloni/model/quantity_text.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace aloni::model {

namespace {

using nn::LayerSplit;
using views::Dim;
using views::Extents;

bool is_flat(const Extents& e) { return e[Dim::depth] == 1 && e[Dim::height] == 1 && e[Dim::width] == 1; }

bool multiplies(const LayerFacts& facts) {
  return facts.properties.convolution || facts.properties.convolution_if_split;
}

/// The extents that the blocks of a split divide: samples, depth, height, width, channels, filters.
constexpr std::size_t split_dims = 6;
std::array<Index, split_dims> divided_extents(const LayerFacts& facts) {
  std::array<Index, split_dims> extents{};
  extents[0] = facts.output[Dim::sample];
  for (const Dim d : views::spatial_dims) {
    const Index in = facts.input[d], out = facts.output[d];
    extents[static_cast<std::size_t>(views::position(d))] = facts.properties.reduces_space ? in : std::min(in, out);
  }
  const bool has_filters = multiplies(facts);
  extents[4] = has_filters ? facts.input[Dim::channel] : facts.output[Dim::channel];
  extents[5] = has_filters ? facts.output[Dim::channel] : 1;
  return extents;
}

std::array<int, split_dims> blocks_of(const LayerSplit& split) {
  const auto& g = split.grid.blocks;
  return {g[0], g[1], g[2], g[3], g[4], split.filters};
}

LayerSplit split_of(const std::array<int, split_dims>& blocks) {
  LayerSplit split;
  std::copy_n(blocks.begin(), views::num_dims, split.grid.blocks.begin());
  split.filters = blocks[5];
  return split;
}

double real_number(Index n) { return static_cast<double>(n); }

/// Elements that a rank moves in a step for this layer: an estimate that orders candidates.
double moved_elements(const LayerFacts& facts, const LayerSplit& split, int ranks, bool training) {
  const auto blocks = blocks_of(split);
  const double passes = training ? 2 : 1;
  double in = 1, out = 1;
  for (const Dim d : views::all_dims) {
    const double b = split.grid[d] * (d == Dim::channel ? split.filters : 1);
    in *= std::ceil(real_number(facts.input[d]) / b);
    out *= std::ceil(real_number(facts.output[d]) / b);
  }
  double moved = 0;
  if (facts.properties.stencil) {
    for (const Dim d : views::spatial_dims) {
      if (split.grid[d] == 1) continue;
      const halo::Stencil1D& window = (*facts.properties.stencil)[d];
      const double ghosts = real_number(std::max<Index>(0, window.reach() - window.stride));
      const double rows = std::ceil(real_number(facts.input[d]) / split.grid[d]);
      moved += passes * in / rows * ghosts;
    }
  }
  if (multiplies(facts)) {
    // Rank q·c + p gathers the inputs of f ranks, and c ranks add their partial sums (nn/layer_split.hpp).
    moved += passes * (in * (blocks[5] - 1) + out * (blocks[4] - 1));
  } else if (facts.properties.reduces_space || facts.properties.has_statistics) {
    if (split.size() > 1) moved += passes * out / std::max(1.0, real_number(facts.output[Dim::sample]));
  }
  const double copies = static_cast<double>(ranks) / (blocks[4] * blocks[5]);
  if (training && copies > 1) moved += 2 * real_number(facts.weights) / (blocks[4] * blocks[5]);
  return moved;
}

/// All splits into exactly `size` blocks, over the dimensions that the layer has.
void add_splits(const std::array<Index, split_dims>& extents, std::size_t dimension, int size,
                std::array<int, split_dims>& blocks, std::vector<LayerSplit>& found) {
  if (dimension == split_dims) {
    if (size == 1) found.push_back(split_of(blocks));
    return;
  }
  for (int b = 1; b <= size; ++b) {
    if (size % b != 0) continue;
    // Dimensions of extent 1 have no candidates: their rejection would say nothing that a user wants to know.
    if (b > 1 && extents[dimension] == 1 && dimension > 0) break;
    blocks[dimension] = b;
    add_splits(extents, dimension + 1, size / b, blocks, found);
  }
  blocks[dimension] = 1;
}

struct ScoredSplit {
  LayerSplit split;
  double imbalance = 1, moved = 0;
};

/// The splits into `size` blocks without an empty one. The others are rejected.
std::vector<ScoredSplit> splits_without_empty_blocks(const LayerFacts& facts, int size, int ranks,
                                                     const CandidateOptions& options,
                                                     std::vector<Rejection>& rejected) {
  const auto extents = divided_extents(facts);
  std::vector<LayerSplit> all;
  std::array<int, split_dims> one{1, 1, 1, 1, 1, 1};
  add_splits(extents, 0, size, one, all);
  std::vector<ScoredSplit> good;
  for (const LayerSplit& split : all) {
    const auto blocks = blocks_of(split);
    if (effective_split(facts, split) != split) {
      rejected.push_back({split, RejectionReason::unsupported});
      continue;
    }
    constexpr std::array<RejectionReason, split_dims> reasons{
        RejectionReason::few_samples, RejectionReason::few_rows,     RejectionReason::few_rows,
        RejectionReason::few_rows,    RejectionReason::few_channels, RejectionReason::few_channels};
    std::size_t d = 0;
    while (d < split_dims && blocks[d] <= extents[d]) ++d;
    if (d < split_dims) {
      rejected.push_back({split, reasons[d], real_number(extents[d])});
    } else if (blocks[4] * blocks[5] > options.most_channel_blocks) {
      rejected.push_back({split, RejectionReason::many_channel_blocks, real_number(options.most_channel_blocks)});
    } else {
      good.push_back({split, imbalance(facts, split), moved_elements(facts, split, ranks, options.training)});
    }
  }
  return good;
}

}  // namespace

std::vector<LayerFacts> facts_of(const nn::NetworkDescription& network, Index samples) {
  const std::vector<Extents> extents = infer_extents(network, samples);
  Extents first = network.input;
  first[Dim::sample] = samples;
  std::vector<LayerFacts> facts;
  for (std::size_t i = 0; i < network.layers.size(); ++i) {
    LayerFacts f{.properties = nn::properties_of(network.layers[i].operation),
                 .layer = static_cast<int>(i),
                 .spatial_rank = network.spatial_rank,
                 .output = extents[i]};
    for (const std::string& name : network.layers[i].inputs) {
      const int source = find_layer(network, name);
      f.inputs.push_back(source < 0 ? first : extents[static_cast<std::size_t>(source)]);
    }
    f.input = f.properties.concatenates ? f.output : f.inputs[0];
    if (f.properties.parameters)
      for (const nn::ParameterShape& p : f.properties.parameters(f.input)) f.weights += p.extents.size();
    f.last_before_softmax = i + 1 == network.layers.size() && targets_of(network.loss) != nn::LossTargets::elements;
    facts.push_back(std::move(f));
  }
  return facts;
}

LayerSplit effective_split(const LayerFacts& facts, const LayerSplit& split) {
  LayerSplit folded = split;
  views::ProcessGrid& grid = folded.grid;
  const auto fold = [&](Dim d) { grid[Dim::sample] *= std::exchange(grid[d], 1); };
  const bool flat = is_flat(facts.input) && is_flat(facts.output);
  const bool samples_only = facts.properties.splits_samples_only && !flat;
  if (samples_only || facts.last_before_softmax) {
    fold(Dim::channel);
    grid[Dim::sample] *= std::exchange(folded.filters, 1);
  }
  if (samples_only || flat)
    for (const Dim d : views::spatial_dims) fold(d);
  if (!multiplies(facts)) grid[Dim::channel] *= std::exchange(folded.filters, 1);
  return folded;
}

std::string reason(const Rejection& rejection) {
  const auto blocks = blocks_of(rejection.split);
  const std::string value = three_digits_text(rejection.value);
  switch (rejection.reason) {
    case RejectionReason::unsupported:
      return "the layer does not have this split; it acts as another one";
    case RejectionReason::few_samples:
      return std::to_string(blocks[0]) + " blocks of samples are more than " + value + " samples";
    case RejectionReason::few_rows:
      return "blocks would be thinner than one element: a dimension has only " + value;
    case RejectionReason::few_channels:
      return "more blocks than " + value + " channels or filters";
    case RejectionReason::many_channel_blocks:
      return "more than " + value + " blocks of channels and filters, each with messages to all others";
    case RejectionReason::idle_ranks:
      return value + " ranks would compute the same block";
    case RejectionReason::uneven:
      return "the largest block has " + value + " times the mean";
    case RejectionReason::more_communication:
      return std::isinf(rejection.value) ? "moves data; the best candidate moves none"
                                         : "moves " + value + " times the data of the best candidate";
  }
  return {};
}

bool has_empty_blocks(const LayerFacts& facts, const LayerSplit& split) {
  const auto extents = divided_extents(facts);
  const auto blocks = blocks_of(split);
  for (std::size_t d = 0; d < split_dims; ++d)
    if (blocks[d] > extents[d]) return true;
  return false;
}

double imbalance(const LayerFacts& facts, const LayerSplit& split) {
  const auto extents = divided_extents(facts);
  const auto blocks = blocks_of(split);
  double factor = 1;
  for (std::size_t d = 0; d < split_dims; ++d)
    factor *= std::ceil(real_number(extents[d]) / blocks[d]) * blocks[d] / real_number(extents[d]);
  return factor;
}

Candidates candidates_of(const LayerFacts& facts, int ranks, const CandidateOptions& options) {
  Candidates found;
  const auto splits_into = [&](int size) {
    return splits_without_empty_blocks(facts, size, ranks, options, found.rejected);
  };
  const auto is_uneven = [&](const ScoredSplit& s) { return s.imbalance > options.largest_imbalance; };
  std::vector<ScoredSplit> kept = splits_into(ranks);
  if (!kept.empty() && std::ranges::all_of(kept, is_uneven)) {  // the most even one is better than none
    std::iter_swap(kept.begin(), std::ranges::min_element(kept, {}, &ScoredSplit::imbalance));
    for (auto s = kept.begin() + 1; s != kept.end(); ++s)
      found.rejected.push_back({s->split, RejectionReason::uneven, s->imbalance});
    kept.resize(1);
  } else {
    std::erase_if(kept, [&](const ScoredSplit& s) {
      if (is_uneven(s)) found.rejected.push_back({s.split, RejectionReason::uneven, s.imbalance});
      return is_uneven(s);
    });
  }
  // Several ranks that compute the same samples exchange nothing. Small layers may be fastest so.
  const Index samples = facts.output[Dim::sample];
  for (int size = ranks - 1, copies = 0; ranks > samples && size >= 1; --size) {
    if (ranks % size != 0) continue;
    LayerSplit split;
    split.grid[Dim::sample] = size;
    if (size <= samples && copies++ == 0) {
      kept.push_back({split, imbalance(facts, split), moved_elements(facts, split, ranks, options.training)});
    } else if (size <= samples) {
      found.rejected.push_back({split, RejectionReason::idle_ranks, static_cast<double>(ranks) / size});
    }
  }
  // No split has a block for each rank: those with the most blocks.
  for (int size = ranks - 1; kept.size() <= 1 && size > samples; --size)
    if (ranks % size == 0)
      for (const ScoredSplit& s : splits_into(size))
        if (!is_uneven(s)) kept.push_back(s);

  std::ranges::stable_sort(kept, {}, [](const ScoredSplit& s) { return std::pair(s.moved, s.imbalance); });
  for (const ScoredSplit& s : kept) {
    if (static_cast<int>(found.splits.size()) < options.most) {
      found.splits.push_back(s.split);
    } else {
      const double best = kept.front().moved;
      const double factor = best > 0 ? s.moved / best : std::numeric_limits<double>::infinity();
      found.rejected.push_back({s.split, RejectionReason::more_communication, factor});
    }
  }
  return found;
}

}  // namespace aloni::model
