#include <aloni/core/error.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/strategy.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace aloni::nn {
namespace test_network_plan {

using views::Box;
using views::Dim;
using views::Distribution;
using views::ProcessGrid;

NetworkDescription digits() { return lenet5(views::make_extents(1, {28, 28}, 1), 10); }

NetworkPlan plan_of(const NetworkDescription& net, const std::string& grid, int ranks, Index samples) {
  return plan_network(net, resolve(Strategy::uniform(ProcessGrid::parse(grid)), net, ranks), ranks, samples);
}

int layer(const NetworkDescription& net, const std::string& name) { return find_layer(net, name); }

TEST(NetworkPlan, SplitsSpatialLayersByTheGridAndOtherLayersBySamples) {
  const auto net = digits();
  const auto plan = plan_of(net, "h2w2", 4, 64);
  EXPECT_EQ(plan.input.grid(), ProcessGrid::parse("h2w2"));
  EXPECT_EQ(plan.layers[layer(net, "conv2")].output.grid(), ProcessGrid::parse("h2w2"));
  for (std::size_t i = 0; i < net.layers.size(); ++i) {
    const std::string k = kind(net.layers[i].operation);
    if (k != "dense" && k != "flatten") continue;
    EXPECT_EQ(plan.layers[i].input.grid(), ProcessGrid::parse("n4")) << net.layers[i].name;
  }
}

TEST(NetworkPlan, SplitsDenseLayersByInputsAndFeatures) {
  const auto net = digits();
  const Strategy strategy = Strategy::uniform(LayerSplit::parse("h2c3f2"));
  const auto plan = plan_network(net, resolve(strategy, net, 12), 12, 8);
  EXPECT_EQ(plan.layers[layer(net, "flatten")].output.grid(), ProcessGrid::parse("n12"));
  const LayerPlan& fc1 = plan.layers[layer(net, "fc1")];
  EXPECT_EQ(fc1.output.grid(), ProcessGrid::parse("n2c6"));
  ASSERT_TRUE(fc1.convolution);
  EXPECT_EQ(fc1.convolution->channel_blocks, 3);
  EXPECT_EQ(fc1.convolution->filter_blocks, 2);
  // The ranks that share samples keep each weight once, and each of them reads one block of the inputs.
  Index kept = 0;
  for (int r = 0; r < 6; ++r) {
    kept += fc1.weights_needed(r).size();
    EXPECT_EQ(fc1.input_needed(r).extent(Dim::channel), fc1.weights_needed(r).extent(Dim::channel));
    EXPECT_EQ(fc1.output_work(r).extent(Dim::channel), fc1.weights_needed(r).extent(Dim::sample));
  }
  EXPECT_EQ(kept, fc1.weights().size());
  // Layers between dense layers keep the blocks, and nothing is sent. A softmax needs all classes.
  const LayerPlan& relu = plan.layers[static_cast<std::size_t>(plan.readers[layer(net, "fc1")][0])];
  EXPECT_EQ(relu.inputs[0].mode, InputMode::shared);
  EXPECT_EQ(plan.layers.back().output.grid(), ProcessGrid::parse("n12"));
  EXPECT_FALSE(plan.layers.back().convolution);
}

TEST(NetworkPlan, KeepsBlocksOfChannelsThroughAFlattenOfOnePixel) {
  NetworkDescription net = digits();
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"one", AdaptivePooling{PoolingKind::average, {1, 1, 1}}, {"input"}},
                {"flatten", Flatten{}, {"one"}},
                {"fc", Dense{6}, {"flatten"}}};
  net.input[Dim::channel] = 4;
  const auto plan = plan_of(net, "c2", 2, 3);
  for (const LayerPlan& l : plan.layers) EXPECT_EQ(l.inputs[0].mode, InputMode::shared);
  EXPECT_EQ(plan.layers[2].output.grid(), ProcessGrid::parse("c2"));
}

TEST(NetworkPlan, NeedsNoExchangeWhenSamplesAreSplit) {
  const auto plan = plan_of(digits(), "n4", 4, 64);
  for (const auto& l : plan.layers) EXPECT_EQ(l.inputs[0].mode, InputMode::shared);
  EXPECT_FALSE(plan.input_has_ghosts);
}

TEST(NetworkPlan, LetsProducersWriteIntoTheBufferOfTheHaloExchange) {
  const auto net = digits();
  const auto plan = plan_of(net, "h2", 2, 64);
  EXPECT_TRUE(plan.input_has_ghosts);
  EXPECT_EQ(plan.layers[layer(net, "conv1")].inputs[0].mode, InputMode::in_place);
  EXPECT_EQ(plan.layers[layer(net, "conv2")].inputs[0].mode,
            InputMode::in_place);  // the output of the pooling before it has ghosts
  const LayerPlan& conv1 = plan.layers[layer(net, "conv1")];
  EXPECT_EQ(conv1.input.owned(0).upper(Dim::height), 14);
  EXPECT_EQ(conv1.input_needed(0).lower(Dim::height), 0);
  EXPECT_EQ(conv1.input_needed(0).upper(Dim::height), 16);
  EXPECT_EQ(conv1.input_needed(1).lower(Dim::height), 12);
  EXPECT_EQ(conv1.input_needed(1).upper(Dim::height), 28);
}

TEST(NetworkPlan, GivesEveryRankAllInputsOfItsWindows) {
  // By brute force: all pairs of an output and an input in its window.
  NetworkDescription net;
  net.spatial_rank = 1;
  net.loss = Loss::binary_cross_entropy;
  int pairs = 0;
  for (Index extent : {1, 2, 5, 9, 17}) {
    for (Index kernel = 1; kernel <= 7; ++kernel) {
      for (Index stride = 1; stride <= 4; ++stride) {
        for (Index dilation = 1; dilation <= 2; ++dilation) {
          for (Index low = 0; low <= 3; ++low) {
            Window w;
            w.kernel[2] = kernel;
            w.stride[2] = stride;
            w.dilation[2] = dilation;
            w.pad_low[2] = low;
            w.pad_high[2] = (low * 2 + kernel) % 4;
            if ((kernel - 1) * dilation + 1 > extent + w.pad_low[2] + w.pad_high[2]) continue;
            net.input = views::make_extents(1, std::array<Index, 1>{extent}, 2);
            net.layers = {{"conv", Convolution{3, w, true}, {"input"}}};
            for (int ranks : {1, 2, 3, 5, 8}) {
              const auto plan = plan_of(net, "w" + std::to_string(ranks), ranks, 1);
              const LayerPlan& l = plan.layers[0];
              for (int r = 0; r < ranks; ++r) {
                const Box y = l.output.owned(r), x = l.input.owned(r);
                const Box need_x = l.input_needed(r), need_y = l.output_gradient_needed(r);
                for (Index o = 0; o < l.output.extents()[Dim::width]; ++o) {
                  for (Index k = 0; k < kernel; ++k) {
                    const Index i = o * stride + k * dilation - low;
                    if (i < 0 || i >= extent) continue;
                    ++pairs;
                    if (!y.empty() && o >= y.lower(Dim::width) && o < y.upper(Dim::width)) {
                      EXPECT_TRUE(i >= need_x.lower(Dim::width) && i < need_x.upper(Dim::width));
                    }
                    if (!x.empty() && i >= x.lower(Dim::width) && i < x.upper(Dim::width)) {
                      EXPECT_TRUE(o >= need_y.lower(Dim::width) && o < need_y.upper(Dim::width));
                    }
                  }
                }
                if (HasFailure())
                  FAIL() << "extent " << extent << " kernel " << kernel << " stride " << stride << " rank " << r;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(pairs, 10000);
}

TEST(NetworkPlan, GivesEveryRankAllInputsOfItsRanges) {
  // By brute force: all pairs of an output and an input that it reads. The needed box contains no unread input at its
  // ends.
  NetworkDescription net;
  net.spatial_rank = 1;
  net.loss = Loss::binary_cross_entropy;
  int pairs = 0;
  for (Index inputs = 1; inputs <= 12; ++inputs) {
    for (Index outputs = 1; outputs <= 12; ++outputs) {
      for (int rule = 0; rule < 3; ++rule) {
        net.input = views::make_extents(1, std::array<Index, 1>{inputs}, 2);
        const Operation op =
            rule == 0 ? Operation(AdaptivePooling{PoolingKind::max, {1, 1, outputs}})
                      : Operation(Upsampling{
                            rule == 1 ? UpsamplingMode::nearest : UpsamplingMode::linear, {1, 1, 1}, {0, 0, outputs}});
        net.layers = {{"layer", op, {"input"}}};
        const auto reads = [&](Index o, Index i) {
          if (rule == 0) return i >= o * inputs / outputs && i * outputs < (o + 1) * inputs;
          if (rule == 1) return i == o * inputs / outputs;
          const double place =
              (static_cast<double>(o) + 0.5) * static_cast<double>(inputs) / static_cast<double>(outputs) - 0.5;
          const double clipped = std::min(std::max(place, 0.0), static_cast<double>(inputs - 1));
          return std::abs(static_cast<double>(i) - clipped) < 1 - 1e-9;
        };
        for (int ranks : {1, 2, 3, 5, 8}) {
          const auto plan = plan_of(net, "w" + std::to_string(ranks), ranks, 1);
          const LayerPlan& l = plan.layers[0];
          for (int r = 0; r < ranks; ++r) {
            const Box y = l.output.owned(r), x = l.input.owned(r);
            const auto in = [](const Box& b, Index i) {
              return !b.empty() && i >= b.lower(Dim::width) && i < b.upper(Dim::width);
            };
            Box need_x, need_y;  // according to the pairs
            for (Index o = 0; o < outputs; ++o) {
              for (Index i = 0; i < inputs; ++i) {
                if (!reads(o, i)) continue;
                ++pairs;
                if (in(y, o)) need_x = hull(need_x, Box{{0, 0, 0, i, 0}, {1, 1, 1, i + 1, 2}});
                if (in(x, i)) need_y = hull(need_y, Box{{0, 0, 0, o, 0}, {1, 1, 1, o + 1, 2}});
              }
            }
            const auto equal = [](const Box& a, const Box& b) { return a == b || (a.empty() && b.empty()); };
            ASSERT_TRUE(equal(l.input_needed(r), need_x) && equal(l.output_gradient_needed(r), need_y))
                << "rule " << rule << ": " << inputs << " -> " << outputs << ", rank " << r << " of " << ranks;
          }
        }
      }
    }
  }
  EXPECT_GT(pairs, 10000);
}

TEST(NetworkPlan, SplitsTheOutputOfUpsamplingASinglePixel) {
  NetworkDescription net;
  net.input = views::make_extents(1, {1, 1}, 2);
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"up", Upsampling{UpsamplingMode::nearest, square_extents(2, 4)}, {"input"}}};
  const auto plan = plan_of(net, "h2", 2, 1);
  EXPECT_EQ(plan.layers[0].output.owned(1), (Box{{0, 0, 2, 0, 0}, {1, 1, 4, 4, 2}}));
  EXPECT_EQ(plan.layers[0].input_needed(1), (Box{{0, 0, 0, 0, 0}, {1, 1, 1, 1, 2}}));
}

TEST(NetworkPlan, StaysInsideTheTensorForUpTo64Ranks) {
  const auto net = digits();
  for (int ranks = 1; ranks <= 64; ++ranks) {
    for (const ProcessGrid& grid : views::all_grids(ranks, {Dim::sample, Dim::height, Dim::width})) {
      const auto plan = plan_network(net, std::vector<LayerSplit>(net.layers.size(), grid), ranks, 16);
      for (const LayerPlan& l : plan.layers) {
        Index outputs = 0;
        for (int r = 0; r < ranks; ++r) {
          ASSERT_TRUE(contains(whole(l.input.extents()), l.input_needed(r)));
          ASSERT_TRUE(contains(whole(l.output.extents()), l.output_gradient_needed(r)));
          outputs += l.output.owned(r).size();
        }
        ASSERT_EQ(outputs, l.output.extents().size());
      }
    }
  }
}

TEST(NetworkPlan, GivesEachWeightToOneBlockOfRanks) {
  for (const bool transposed : {false, true}) {
    for (const Index groups : {1, 2, 3, 7}) {
      for (const Index group_channels : {1, 2, 5}) {
        const Index channels = group_channels * groups, filters = 3 * groups;
        for (int c = 1; c <= 4; ++c) {
          for (int f = 1; f <= 4; ++f) {
            const ConvolutionPlan plan{.transposed = transposed,
                                       .channels = channels,
                                       .filters = filters,
                                       .groups = groups,
                                       .channel_blocks = c,
                                       .filter_blocks = f};
            const views::Extents weights{
                {transposed ? channels : filters, 1, 2, 3, (transposed ? filters : channels) / groups}};
            std::vector<int> owners(static_cast<std::size_t>(weights.size()), 0);
            for (int r = 0; r < plan.blocks(); ++r) {
              ASSERT_EQ(plan.parts(r), plan.parts(r + plan.blocks()));
              for (const ConvolutionPart& part : plan.parts(r)) {
                const Box box = plan.weights_of(part, weights);
                ASSERT_TRUE(contains(views::whole(weights), box));
                for (Index o = box.lo[0]; o < box.hi[0]; ++o)
                  for (Index k = 0; k < 6; ++k)
                    for (Index i = box.lo[4]; i < box.hi[4]; ++i)
                      ++owners[static_cast<std::size_t>((o * 6 + k) * weights[Dim::channel] + i)];
              }
            }
            for (const int n : owners) ASSERT_EQ(n, 1) << "groups " << groups << ", c" << c << "f" << f;
          }
        }
      }
    }
  }
}

TEST(NetworkPlan, GivesEachOfSeveralReadersItsOwnBuffer) {
  NetworkDescription net;
  net.input = views::make_extents(1, {8, 8}, 2);
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"relu", Relu{}, {"input"}},
                {"a", Convolution{2, square_window(2, 3, 1, 1)}, {"relu"}},
                {"b", Convolution{2, square_window(2, 5, 1, 2)}, {"relu"}},
                {"sum", Add{}, {"a", "b"}}};
  const auto plan = plan_of(net, "h2", 2, 1);
  EXPECT_EQ(plan.readers[0], (std::vector<int>{1, 2}));
  EXPECT_EQ(plan.layers[1].inputs[0].mode, InputMode::separate);
  EXPECT_EQ(plan.layers[2].inputs[0].mode, InputMode::separate);
  EXPECT_FALSE(plan.layers[0].output_has_ghosts);
}

TEST(NetworkPlan, FetchesTheGhostsOfAChainBeforeItsFirstLayer) {
  NetworkDescription net;
  net.input = views::make_extents(1, {40, 6}, 2);
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"a", Convolution{2, square_window(2, 3, 1, 1)}, {"input"}},
                {"b", Convolution{2, square_window(2, 5, 1, 2)}, {"a"}},
                {"relu", Relu{}, {"b"}},
                {"c", Convolution{2, square_window(2, 3, 1, 1)}, {"relu"}},
                {"d", Convolution{2, square_window(2, 3, 1, 1)}, {"c"}}};
  Strategy strategy = Strategy::parse("d h2\n* h2 recompute_halo", "test");
  const auto plan = plan_network(net, resolve(strategy, net, 2), 2, 1);
  const auto rows = [](const Box& b) { return std::array{b.lower(Dim::height), b.upper(Dim::height)}; };
  EXPECT_EQ(rows(plan.layers[0].input_needed(0)), (std::array<Index, 2>{0, 24}));
  EXPECT_EQ(rows(plan.layers[0].forward_work(0)), (std::array<Index, 2>{0, 23}));
  EXPECT_EQ(rows(plan.layers[1].forward_work(1)), (std::array<Index, 2>{19, 40}));
  EXPECT_EQ(rows(plan.layers[2].forward_work(1)), (std::array<Index, 2>{19, 40}));
  EXPECT_EQ(rows(plan.layers[3].forward_work(1)), (std::array<Index, 2>{20, 40}));
  EXPECT_TRUE(plan.layers[3].recomputed.empty());
  // Gradients cover only the owned box.
  EXPECT_EQ(rows(plan.layers[0].output_gradient_needed(0)), (std::array<Index, 2>{0, 21}));
  EXPECT_EQ(rows(plan.layers[0].input_needed_by_owned(0)), (std::array<Index, 2>{0, 21}));
  EXPECT_EQ(plan.layers[0].inputs[0].mode, InputMode::in_place);
  for (int l : {1, 2, 3}) EXPECT_EQ(plan.layers[l].inputs[0].mode, InputMode::shared);
  EXPECT_EQ(plan.layers[4].inputs[0].mode, InputMode::separate);
}

TEST(NetworkPlan, ReadsAnAdoptedInputWhereItLiesIfItIsDenseAndNeedsNoGhosts) {
  NetworkDescription net;
  net.input = views::make_extents(1, {8, 6}, 2);
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"conv", Convolution{2, square_window(2, 3, 1, 1)}, {"input"}}};
  const views::Extents input = views::make_extents(4, {8, 6}, 2);
  const auto mode = [&](const char* layer, const char* grid, bool dense) {
    const auto splits = resolve(Strategy::uniform(ProcessGrid::parse(layer)), net, 2);
    const AdoptedInputPlan adopted{Distribution::block(input, ProcessGrid::parse(grid), 2), dense};
    const auto plan = plan_network(net, splits, 2, 4, adopted);
    EXPECT_EQ(plan.input, adopted.distribution);
    EXPECT_FALSE(plan.input_has_ghosts);
    return plan.layers[0].inputs[0].mode;
  };
  EXPECT_EQ(mode("n2", "n2", true), InputMode::shared);
  EXPECT_EQ(mode("n2", "n2", false), InputMode::separate);
  EXPECT_EQ(mode("h2", "h2", true), InputMode::separate);  // the ghosts are not the network's
  EXPECT_EQ(mode("h2", "w2", true), InputMode::separate);

  const auto splits = resolve(Strategy::uniform(ProcessGrid::parse("n2")), net, 2);
  const auto rows = Distribution::block(input, ProcessGrid::parse("h2"), 2).with_blocks(Dim::height, {7, 1});
  EXPECT_EQ(plan_network(net, splits, 2, 4, AdoptedInputPlan{rows, true}).input.owned(1).extent(Dim::height), 1);
  EXPECT_THROW(plan_network(net, splits, 2, 3, AdoptedInputPlan{rows, true}), InvalidArgument);
  const auto alone = Distribution::block(input, ProcessGrid{}, 1);
  EXPECT_THROW(plan_network(net, splits, 2, 4, AdoptedInputPlan{alone, true}), InvalidArgument);
}

/// Three tensors of 3, 4 and 3 channels, side by side.
NetworkDescription concatenation() {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {8, 6}, 3);
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"conv", Convolution{4, square_window(2, 3, 1, 1)}, {"input"}},
                {"all", Concatenate{}, {"input", "conv", "input"}},
                {"last", Convolution{2, square_window(2, 3, 1, 1)}, {"all"}}};
  return net;
}

TEST(NetworkPlan, ReadsTheChannelsOfAConcatenationFromTheInputsThatHaveThem) {
  const auto net = concatenation();
  int channels_seen = 0;
  for (const char* grid : {"1", "c2", "c3", "c4", "h2c4", "n2", "c6", "h2w2c3"}) {
    for (const int copies : {1, 2}) {
      const int ranks = ProcessGrid::parse(grid).size() * copies;
      const auto plan = plan_of(net, grid, ranks, 2);
      const LayerPlan& all = plan.layers[1];
      EXPECT_EQ(all.input, all.output);
      const std::array<Index, 3> offsets{0, 3, 7}, channels{3, 4, 3};
      for (int r = 0; r < ranks; ++r) {
        const Box output = all.output.owned(r);
        Index covered = 0;
        for (std::size_t k = 0; k < 3; ++k) {
          const LayerInput& input = all.inputs[k];
          EXPECT_EQ(input.mode, InputMode::separate);
          EXPECT_EQ(input.channel_offset, offsets[k]);
          EXPECT_EQ(input.distribution.extents()[Dim::channel], channels[k]);
          EXPECT_EQ(input.distribution.grid(), all.output.grid());
          const Box part = all.needed_of(input, r);
          covered += part.size();
          for (Index c = 0; c < channels[k]; ++c) {
            const bool here =
                c + offsets[k] >= output.lower(Dim::channel) && c + offsets[k] < output.upper(Dim::channel);
            EXPECT_EQ(!part.empty() && c >= part.lower(Dim::channel) && c < part.upper(Dim::channel), here)
                << grid << ", rank " << r << ", input " << k << ", channel " << c;
            if (here) ++channels_seen;
          }
          if (part.empty()) continue;
          EXPECT_EQ(part, input.distribution.owned(r));
          EXPECT_EQ(part.lower(Dim::height), output.lower(Dim::height));
          EXPECT_EQ(part.upper(Dim::width), output.upper(Dim::width));
        }
        EXPECT_EQ(covered, output.size()) << grid << ", rank " << r;
      }
    }
  }
  EXPECT_GT(channels_seen, 100);
}

TEST(NetworkPlan, PlansTheNetworkInputInEvenBlocksBeforeAConcatenation) {
  auto net = concatenation();
  std::swap(net.layers[0], net.layers[1]);
  net.layers[0].inputs = {"input", "input"};
  net.layers[1].inputs = {"all"};
  net.layers[2].inputs = {"conv"};
  const auto plan = plan_of(net, "c2", 2, 2);
  EXPECT_EQ(plan.input, Distribution::block({{2, 1, 8, 6, 3}}, ProcessGrid::parse("c2"), 2));
}

TEST(NetworkPlan, RecomputesGhostsThroughAConcatenation) {
  // A chain of one exchange: the inputs of the concatenation compute the rows that the last layer reads.
  auto net = concatenation();
  net.layers.insert(net.layers.begin(), {"first", Convolution{3, square_window(2, 3, 1, 1)}, {"input"}});
  net.layers[1].inputs = {"first"};
  net.layers[2].inputs = {"first", "conv", "first"};
  const LayerSplit recomputing(ProcessGrid::parse("h2"), 1, Overlap::recompute_halo);
  const auto plan = plan_network(net, resolve(Strategy::uniform(recomputing), net, 2), 2, 2);
  const LayerPlan& all = plan.layers[2];
  EXPECT_EQ(all.forward_work(0).upper(Dim::height), 5);
  EXPECT_EQ(all.forward_work(1).lower(Dim::height), 3);
  EXPECT_EQ(all.needed_of(all.inputs[1], 1).lower(Dim::height), 3);
  EXPECT_EQ(all.needed_of(all.inputs[1], 1).upper(Dim::channel), 4);
  EXPECT_EQ(plan.layers[1].forward_work(0).upper(Dim::height), 5);
  EXPECT_EQ(plan.layers[0].forward_work(0).upper(Dim::height), 6);
  // With channels that are split differently the chain ends.
  Strategy mixed = Strategy::uniform(recomputing);
  const LayerSplit by_channel(ProcessGrid::parse("h2c2"), 1, Overlap::recompute_halo);
  mixed.rules.insert(mixed.rules.begin(), {"all", by_channel, 0});
  const auto ended = plan_network(net, resolve(mixed, net, 4), 4, 2);
  EXPECT_TRUE(ended.layers[1].recomputed.empty());
}

TEST(NetworkPlan, RefusesArgumentsThatDoNotFit) {
  const auto net = digits();
  EXPECT_THROW(plan_network(net, std::vector<LayerSplit>(net.layers.size()), 1, 0), InvalidArgument);
  EXPECT_THROW(plan_network(net, {}, 1, 4), InvalidArgument);
  EXPECT_THROW(plan_network(net, std::vector<LayerSplit>(net.layers.size(), ProcessGrid::parse("n2")), 3, 4),
               InvalidArgument);
}

}  // namespace test_network_plan
}  // namespace aloni::nn
