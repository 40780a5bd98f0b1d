#pragma once
// Random networks and random splits from a seed, for the tests that compare split with unsplit.
#include <aloni/core/random.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/plan/offloading.hpp>
#include <aloni/nn/plan/recomputation.hpp>
#include <aloni/nn/strategy.hpp>
#include <aloni/views/distribution.hpp>
#include <aloni/views/process_grid.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn::test {

using views::Dim;
using views::Extents;
using views::ProcessGrid;

/// Deterministic stream of random integers.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  /// In [low, high].
  Index operator()(Index low, Index high) {
    return low + static_cast<Index>(random::integer(seed_, 77, count_++) % static_cast<std::uint64_t>(high - low + 1));
  }

 private:
  std::uint64_t seed_, count_ = 0;
};

inline Window random_window(Dice& dice, int spatial_rank, const Extents& in, Index largest_kernel, bool pooling) {
  Window w;
  // Chance alone rarely gives these in all dimensions at once: a kernel as large as the input, and a kernel of one
  // element.
  enum class Size { whole_input, single_element, any };
  const Size size = pooling ? Size::any : static_cast<Size>(std::min<Index>(dice(0, 9), 2));
  for (int i = 3 - spatial_rank; i < 3; ++i) {
    const Index extent = in.values[1 + i];
    w.stride[i] = dice(1, pooling ? 3 : 4);
    if (size != Size::any) {
      w.kernel[i] = size == Size::whole_input ? extent : 1;
      w.pad_low[i] = dice(0, 1);
      w.pad_high[i] = dice(0, 1);
      continue;
    }
    w.dilation[i] = pooling ? 1 : dice(1, 2);
    w.kernel[i] = dice(1, largest_kernel);
    // Padding of a pooling window is smaller than the window, so that no window lies outside entirely.
    const Index most = pooling ? (w.kernel[i] - 1) / 2 : 4;
    w.pad_low[i] = dice(0, most);
    w.pad_high[i] = dice(0, most);
    while ((w.kernel[i] - 1) * w.dilation[i] + 1 > extent + w.pad_low[i] + w.pad_high[i]) {
      w.dilation[i] = 1;
      --w.kernel[i];
      if (pooling) w.pad_low[i] = w.pad_high[i] = 0;
    }
  }
  return w;
}

/// Output extents between 1 and twice the input's plus 2, at most 12. Any remainder may occur.
inline std::array<Index, 3> random_output(Dice& dice, int spatial_rank, const Extents& in) {
  std::array<Index, 3> output{1, 1, 1};
  for (int i = 3 - spatial_rank; i < 3; ++i) output[i] = dice(1, std::min<Index>(12, 2 * in.values[1 + i] + 2));
  return output;
}

/// A divisor of both numbers of channels, often 1, often the largest.
inline Index random_groups(Dice& dice, Index channels, Index filters) {
  const Index largest = std::gcd(channels, filters);
  switch (dice(0, 3)) {
    case 0:
      return largest;
    case 1: {
      Index groups = dice(1, largest);
      while (largest % groups != 0) --groups;
      return groups;
    }
    default:
      return 1;
  }
}

/// Few channels, or so many that kernels of libraries reorder the filters.
inline Index random_channels(Dice& dice, bool many) { return many ? 8 * dice(2, 5) : dice(1, 6); }

/// Any kernel, stride, dilation, padding and output padding with an output of 1 to 14 elements.
inline TransposedConvolution random_transposed(Dice& dice, int spatial_rank, const Extents& in, Index filters) {
  TransposedConvolution op;
  for (int i = 3 - spatial_rank; i < 3; ++i) {
    const Index most = spatial_rank == 3 ? 9 : 14;
    Window& w = op.window;
    const auto full = [&] { return (in.values[1 + i] - 1) * w.stride[i] + (w.kernel[i] - 1) * w.dilation[i] + 1; };
    w.kernel[i] = dice(1, spatial_rank == 3 ? 3 : 5);
    w.stride[i] = dice(1, 3);
    w.dilation[i] = dice(1, 2);
    if (full() > most + 4) w.stride[i] = w.dilation[i] = 1;
    op.output_padding[i] = dice(0, std::max(w.stride[i], w.dilation[i]) - 1);
    w.pad_low[i] = dice(0, std::min<Index>(3, full() - 1));
    w.pad_high[i] = dice(0, std::min<Index>(3, full() - 1 - w.pad_low[i]));
  }
  op.filters = filters;
  op.bias = dice(0, 1) == 1;
  op.groups = random_groups(dice, in[Dim::channel], op.filters);
  return op;
}

enum class Kinds { exact, all };

/// "input" and the layers whose output has these extents.
inline std::vector<std::string> tensors_of(const NetworkDescription& net, const Extents& extents) {
  std::vector<std::string> names;
  if (net.input == extents) names.push_back("input");
  const std::vector<Extents> all = net.layers.empty() ? std::vector<Extents>{} : infer_extents(net, 1);
  for (std::size_t l = 0; l < all.size(); ++l)
    if (all[l] == extents) names.push_back(net.layers[l].name);
  return names;
}

/// "input" and the layers whose output has these spatial extents.
inline std::vector<std::string> tensors_beside(const NetworkDescription& net, const Extents& extents) {
  const auto fits = [&](Extents e) {
    e[Dim::channel] = extents[Dim::channel];
    return e == extents;
  };
  std::vector<std::string> names;
  if (fits(net.input)) names.push_back("input");
  const std::vector<Extents> all = net.layers.empty() ? std::vector<Extents>{} : infer_extents(net, 1);
  for (std::size_t l = 0; l < all.size(); ++l)
    if (fits(all[l])) names.push_back(net.layers[l].name);
  return names;
}

/// Any pointwise layer, or dropout.
inline Operation random_pointwise(Dice& dice) {
  switch (dice(0, 6)) {
    case 0:
      return Sigmoid{};
    case 1:
      return Tanh{};
    case 2:
      return Silu{};
    case 3:
      return Gelu{};
    case 4:
      return LeakyRelu{static_cast<double>(dice(0, 3)) * 0.3};
    case 5:
      return Dropout{static_cast<double>(dice(0, 9)) * 0.1};
    default:
      return Relu{};
  }
}

/// One to five layers in a row, and sums and concatenations with any earlier tensor. With Kinds::exact only layers
/// that map integers to integers.
inline NetworkDescription random_network(Dice& dice, Kinds kinds) {
  NetworkDescription net;
  net.spatial_rank = static_cast<int>(dice(1, 3));
  net.loss = Loss::binary_cross_entropy;
  // Small enough for blocks that are empty or thinner than a halo. Sometimes so large that computing the interior
  // first pays.
  const bool large = dice(0, 7) == 0;
  const Index smallest = !large ? 1 : net.spatial_rank == 3 ? 12 : net.spatial_rank == 2 ? 40 : 1500;
  const Index largest = large ? smallest * 5 / 4 : net.spatial_rank == 3 ? 6 : net.spatial_rank == 2 ? 11 : 24;
  const bool many_channels = !large && dice(0, 11) == 0;
  net.input = Extents{{1, 1, 1, 1, large ? dice(1, 2) : random_channels(dice, many_channels)}};
  for (int i = 3 - net.spatial_rank; i < 3; ++i) net.input.values[1 + i] = dice(smallest, largest);
  bool flat = dice(0, 7) == 0;
  if (flat) net.input = Extents{{1, 1, 1, 1, dice(1, 16)}};
  const Index layers = dice(1, 5);
  Index convolutions = 0;
  std::string previous = "input";
  for (Index l = 0; l < layers; ++l) {
    const Extents in = l == 0 ? net.input : infer_extents(net, 1).back();
    const std::string name = "layer" + std::to_string(l);
    Operation op = Relu{};
    std::vector<std::string> inputs{previous};
    // The last kinds of the range divide.
    switch (dice(0, kinds == Kinds::exact ? 11 : 21)) {
      case 0:
      case 1:
      case 2:
        if (convolutions == (many_channels ? 1 : 2)) break;  // more might exceed the integers that float holds exactly
        ++convolutions;
        if (flat) {
          op = Dense{dice(1, 16), dice(0, 1) == 1};
        } else if (dice(0, 2) == 0) {
          op = random_transposed(dice, net.spatial_rank, in, random_channels(dice, many_channels));
        } else {
          Convolution conv{random_channels(dice, many_channels),
                           random_window(dice, net.spatial_rank, in, net.spatial_rank == 3 ? 4 : 7, false),
                           dice(0, 1) == 1};
          conv.groups = random_groups(dice, in[Dim::channel], conv.filters);
          op = conv;
        }
        break;
      case 3:
      case 4:
        if (!flat) op = Pooling{PoolingKind::max, random_window(dice, net.spatial_rank, in, 4, true), true};
        break;
      case 5:
        if (!flat && l > 0) {
          op = Flatten{};
          flat = true;
        }
        break;
      case 6: {
        const std::vector<std::string> others = tensors_of(net, in);
        op = Add{};
        inputs.push_back(others[dice(0, static_cast<Index>(others.size()) - 1)]);
        break;
      }
      case 7:
        if (!flat) op = AdaptivePooling{PoolingKind::max, random_output(dice, net.spatial_rank, in)};
        break;
      case 8:
        if (!flat) op = Upsampling{UpsamplingMode::nearest, {1, 1, 1}, random_output(dice, net.spatial_rank, in)};
        break;
      case 9: {
        const std::vector<std::string> others = tensors_beside(net, in);
        op = Concatenate{};
        const auto any = [&] { return others[dice(0, static_cast<Index>(others.size()) - 1)]; };
        inputs.push_back(any());
        if (dice(0, 2) == 0) inputs.push_back(any());
        if (dice(0, 1) == 0) std::swap(inputs.front(), inputs.back());
        break;
      }
      case 10:
        op = Dropout{0.5};  // multiplies by 0 or 2
        break;
      case 11:
        op = LeakyRelu{2};
        break;
      case 12:
        if (!flat)
          op = Pooling{PoolingKind::average, random_window(dice, net.spatial_rank, in, 4, true), dice(0, 1) == 1};
        break;
      case 13:
        op = BatchNorm{StatisticsScope::all, 0.1, 1e-3};
        break;
      case 14:
        if (!flat) op = AdaptivePooling{PoolingKind::average, random_output(dice, net.spatial_rank, in)};
        break;
      case 15:
        if (!flat) op = Upsampling{UpsamplingMode::linear, {1, 1, 1}, random_output(dice, net.spatial_rank, in)};
        break;
      case 16:
        if (!flat) {
          op = GlobalAveragePooling{};
          flat = true;
        }
        break;
      case 17: {
        Index groups = dice(1, in[Dim::channel]);
        while (in[Dim::channel] % groups != 0) --groups;
        op = GroupNorm{groups, 1e-3};
        break;
      }
      case 18:
        op = LayerNorm{1e-3};
        break;
      case 19:
      case 20:
        op = random_pointwise(dice);
        break;
      default:
        break;
    }
    net.layers.push_back({name, op, inputs});
    previous = name;
  }
  std::vector<Loss> losses{Loss::binary_cross_entropy, Loss::mean_squared_error, Loss::dice};
  if (infer_extents(net, 1).back()[Dim::channel] > 1) losses.push_back(Loss::pixel_cross_entropy);
  if (flat) losses.push_back(Loss::softmax_cross_entropy);
  net.loss = losses[static_cast<std::size_t>(dice(0, std::ssize(losses) - 1))];
  return net;
}

/// Splits into up to `ranks` blocks, including channels and filters, with every overlap.
inline std::vector<LayerSplit> splits_for(int ranks, int spatial_rank) {
  std::vector<Dim> dims{Dim::sample, Dim::width, Dim::channel};
  if (spatial_rank >= 2) dims.push_back(Dim::height);
  if (spatial_rank >= 3) dims.push_back(Dim::depth);
  std::vector<LayerSplit> splits;
  for (int size = 1; size <= ranks; ++size) {
    if (ranks % size != 0) continue;
    for (int filters = 1; filters <= size; ++filters) {
      if (size % filters != 0) continue;
      for (const ProcessGrid& g : views::all_grids(size / filters, dims)) {
        for (const Overlap overlap : {Overlap::interior_first, Overlap::blocking, Overlap::recompute_halo})
          splits.emplace_back(g, filters, overlap);
      }
    }
  }
  return splits;
}

/// Splits with up to `ranks` blocks, drawn and not listed: for many ranks a list would be long.
inline LayerSplit random_split(Dice& dice, int ranks, int spatial_rank) {
  LayerSplit split;
  int rest = ranks;
  const auto take = [&] {
    std::vector<int> divisors;
    for (int d = 1; d <= rest; ++d)
      if (rest % d == 0) divisors.push_back(d);
    const int factor = divisors[static_cast<std::size_t>(dice(0, static_cast<Index>(divisors.size()) - 1))];
    rest /= factor;
    return factor;
  };
  std::vector<Dim> dims{Dim::width, Dim::sample, Dim::channel};
  if (spatial_rank >= 2) dims.push_back(Dim::height);
  if (spatial_rank >= 3) dims.push_back(Dim::depth);
  for (std::size_t i = dims.size(); i > 0; --i) {
    const auto k = static_cast<std::size_t>(dice(0, static_cast<Index>(i) - 1));
    split.grid[dims[k]] = take();
    dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(k));
  }
  split.filters = take();
  split.overlap = static_cast<Overlap>(dice(0, 2));
  return split;
}

/// The splits by layer, with interior_first where a layer cannot use recompute_halo.
inline Strategy strategy_of(const NetworkDescription& net, const std::vector<LayerSplit>& splits) {
  Strategy strategy;
  for (std::size_t l = 0; l < net.layers.size(); ++l) {
    LayerSplit split = splits[l];
    if (!supports(net, static_cast<int>(l), split, split.size())) split.overlap = Overlap::interior_first;
    strategy.rules.push_back({net.layers[l].name, split, 0});
  }
  return strategy;
}

/// One of `splits` for all layers.
inline Strategy random_uniform_strategy(Dice& dice, const NetworkDescription& net,
                                        const std::vector<LayerSplit>& splits) {
  const LayerSplit& split = splits[dice(0, static_cast<Index>(splits.size()) - 1)];
  return strategy_of(net, std::vector(net.layers.size(), split));
}

/// For each layer one of `splits`, or the split of the layer before.
inline Strategy random_strategy(Dice& dice, const NetworkDescription& net, const std::vector<LayerSplit>& splits) {
  std::vector<LayerSplit> drawn;
  for (std::size_t l = 0; l < net.layers.size(); ++l) {
    const bool as_before = l > 0 && dice(0, 2) == 0;
    drawn.push_back(as_before ? drawn.back() : splits[dice(0, static_cast<Index>(splits.size()) - 1)]);
  }
  return strategy_of(net, drawn);
}

/// Any grid over the ranks, blocks of any sizes, sometimes a replicated dimension.
inline views::Distribution random_distribution(Dice& dice, const Extents& extents, int spatial_rank, int ranks) {
  std::vector<Dim> dims{Dim::sample, Dim::channel, Dim::width};
  if (spatial_rank >= 2) dims.push_back(Dim::height);
  if (spatial_rank >= 3) dims.push_back(Dim::depth);
  int size = static_cast<int>(dice(1, ranks));
  while (ranks % size != 0) --size;
  const std::vector<ProcessGrid> grids = views::all_grids(dice(0, 3) == 0 ? size : ranks, dims);
  const ProcessGrid grid = grids[static_cast<std::size_t>(dice(0, static_cast<Index>(grids.size()) - 1))];
  views::Distribution d = views::Distribution::block(extents, grid, ranks);
  for (const Dim dim : dims) {
    if (dice(0, 1) == 0) continue;
    std::vector<Index> borders{0, extents[dim]}, sizes;
    for (int b = 1; b < grid[dim]; ++b) borders.push_back(dice(0, extents[dim]));
    std::sort(borders.begin(), borders.end());
    for (std::size_t b = 1; b < borders.size(); ++b) sizes.push_back(borders[b] - borders[b - 1]);
    d = d.with_blocks(dim, sizes);
  }
  const Dim whole = dims[static_cast<std::size_t>(dice(0, spatial_rank + 1))];
  return dice(0, 4) == 0 ? d.with_replicated(whole) : d;
}

/// Blocks of a random length at random places; sometimes one block with all layers.
inline Recomputation random_recomputation(Dice& dice, int layers) {
  if (dice(0, 4) == 0) return {{0, layers - 1}};
  Recomputation blocks;
  for (int first = static_cast<int>(dice(0, 2)); first < layers;) {
    const int last = std::min(layers - 1, first + static_cast<int>(dice(0, 4)));
    blocks.push_back({first, last});
    first = last + 1 + static_cast<int>(dice(0, 2));
  }
  return blocks;
}

/// All layers in half of the cases, else a random half of them.
inline Offloading random_offloading(Dice& dice, int layers) {
  const bool all = dice(0, 1) == 0;
  Offloading chosen;
  for (int i = 0; i < layers; ++i)
    if (all || dice(0, 1) == 0) chosen.push_back(i);
  return chosen;
}

}  // namespace aloni::nn::test
