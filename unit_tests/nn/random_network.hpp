#pragma once
// Random networks and random splits from a seed, for the tests that compare split with unsplit.
#include <aloni/core/random.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/strategy.hpp>
#include <aloni/views/process_grid.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
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

/// One to five layers in a row, and sums with any earlier tensor. With Kinds::exact only layers that map integers to
/// integers.
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
  const Index layers = dice(1, 5);
  Index convolutions = 0;
  std::string previous = "input";
  bool flat = false;
  for (Index l = 0; l < layers; ++l) {
    const Extents in = l == 0 ? net.input : infer_extents(net, 1).back();
    const std::string name = "layer" + std::to_string(l);
    Operation op = Relu{};
    std::vector<std::string> inputs{previous};
    // The last kinds of the range divide.
    switch (dice(0, kinds == Kinds::exact ? 8 : 16)) {
      case 0:
      case 1:
      case 2:
        if (convolutions == (many_channels ? 1 : 2)) break;  // more might exceed the integers that float holds exactly
        ++convolutions;
        if (flat) {
          op = Dense{dice(1, 9), dice(0, 1) == 1};
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
      case 9:
        if (!flat)
          op = Pooling{PoolingKind::average, random_window(dice, net.spatial_rank, in, 4, true), dice(0, 1) == 1};
        break;
      case 10:
        op = BatchNorm{StatisticsScope::all, 0.1, 1e-3};
        break;
      case 11:
        if (!flat) op = AdaptivePooling{PoolingKind::average, random_output(dice, net.spatial_rank, in)};
        break;
      case 12:
        if (!flat) op = Upsampling{UpsamplingMode::linear, {1, 1, 1}, random_output(dice, net.spatial_rank, in)};
        break;
      case 13:
        if (!flat) {
          op = GlobalAveragePooling{};
          flat = true;
        }
        break;
      case 14: {
        Index groups = dice(1, in[Dim::channel]);
        while (in[Dim::channel] % groups != 0) --groups;
        op = GroupNorm{groups, 1e-3};
        break;
      }
      case 15:
        op = LayerNorm{1e-3};
        break;
      default:
        break;
    }
    net.layers.push_back({name, op, inputs});
    previous = name;
  }
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

}  // namespace aloni::nn::test
