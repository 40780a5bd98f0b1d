#include <aloni/model/layer_costs.hpp>

#include "round_times.hpp"

#include <aloni/halo/transfer_plan.hpp>
#include <aloni/model/detail/node_map.hpp>
#include <aloni/model/simulate.hpp>
#include <aloni/nn/models.hpp>

#include <gmock/gmock.h>
#include <support/random_cases.hpp>

#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>

namespace aloni::model {
namespace test_layer_costs {

using nn::LayerSplit;
using views::Dim;
using views::Distribution;

/// Two layouts of one tensor, and the same as distributions.
struct Pair {
  BlockLayout layout;
  Distribution distribution;
};

Pair random_pair(const views::Extents& extents, int ranks, bool may_be_special, std::mt19937& random) {
  int size = ranks;
  while (ranks % size != 0 || random() % 4 == 0) size = std::max(1, size - 1);
  const std::vector<Dim> dims(views::all_dims.begin(), views::all_dims.end());
  const auto grids = views::all_grids(size, dims);
  Pair pair{{extents, grids[random() % grids.size()]}, {}};
  pair.distribution = Distribution::block(extents, pair.layout.grid, ranks);
  if (may_be_special && random() % 3 == 0) {
    pair.layout.replicates_space = true;
    for (const Dim d : views::spatial_dims) pair.distribution = pair.distribution.with_replicated(d);
  }
  if (may_be_special && random() % 3 == 0) {  // as parts of a concatenation
    std::vector<Index> sizes(static_cast<std::size_t>(pair.layout.grid[Dim::channel]), 0);
    for (Index c = 0; c < extents[Dim::channel]; ++c) ++sizes[random() % sizes.size()];
    pair.distribution = pair.distribution.with_blocks(Dim::channel, sizes);
    pair.layout.channel_borders = pair.distribution.borders(Dim::channel);
  }
  return pair;
}

TEST(LayerCosts, CountTheTrafficOfARedistributionAsItsPlanDoes) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  for (int i = 0; i < aloni::test::random_cases(300); ++i) {
    const int ranks = 1 + static_cast<int>(random() % 16), per_node = 1 + static_cast<int>(random() % 5);
    views::Extents extents;
    for (const Dim d : views::all_dims) extents[d] = 1 + static_cast<Index>(random() % 9);
    const Pair from = random_pair(extents, ranks, true, random), to = random_pair(extents, ranks, true, random);
    MachineDescription machine = machine_of_nodes(ranks, per_node);
    if (random() % 2 == 0)  // as a job may have them
      for (int& node : machine.nodes) node = static_cast<int>(random() % 4);
    const detail::NodeMap nodes(machine, ranks, 0);
    const auto node_of = [&](int r) { return machine.nodes[static_cast<std::size_t>(r)]; };
    std::string places;
    for (const int node : machine.nodes) places += " " + std::to_string(node);
    for (int rank = 0; rank < ranks; ++rank) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", case " + std::to_string(i) + ": " +
                   to_string(from.distribution) + " to " + to_string(to.distribution) + ", rank " +
                   std::to_string(rank) + ", nodes of the ranks" + places);
      const halo::TransferPlan plan = halo::plan_redistribution(from.distribution, to.distribution, rank);
      RedistributionTraffic expected;
      expected.self = static_cast<double>(halo::count(plan).local_elements);
      for (const halo::Message& m : plan.receives) {
        const bool near = node_of(m.peer) == node_of(rank);
        (near ? expected.node : expected.far) += static_cast<double>(m.elements);
        (near ? expected.node_messages : expected.far_messages) += 1;
      }
      const RedistributionTraffic found = received_traffic(from.layout, to.layout, rank, nodes.company(rank));
      ASSERT_DOUBLE_EQ(found.self, expected.self);
      ASSERT_DOUBLE_EQ(found.node, expected.node);
      ASSERT_DOUBLE_EQ(found.far, expected.far);
      // Empty blocks lie behind all others, so a closed form does not see them.
      ASSERT_DOUBLE_EQ(found.node_messages, expected.node_messages);
      ASSERT_DOUBLE_EQ(found.far_messages, expected.far_messages);
    }
  }
}

struct Sums {
  double layers = 0, simulated = 0;
};

Sums sums_of(const std::string& model, int ranks, Index samples, const std::string& split_text) {
  const auto net = nn::make_model(model);
  Machine machine = generic_machine();
  machine.ranks_per_node = 4;
  const MachineKernels kernels(machine, 4, 1);
  const LayerSplit split = LayerSplit::parse(split_text);
  LayerCosts costs(net, machine, kernels, ranks, {.samples = samples});
  Sums sums;
  double flight = 0, backward = 0;
  for (const LayerFacts& f : costs.facts()) {
    const LayerSplit mine = effective_split(f, split);
    const LayerPrice price = costs.of(f, mine);
    sums.layers += price.seconds;
    flight += price.gradient_flight;
    backward += price.backward;
    const auto& inputs = net.layers[static_cast<std::size_t>(f.layer)].inputs;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      const int source = find_layer(net, inputs[k]);
      if (source < 0) continue;
      const LayerSplit theirs = effective_split(costs.facts()[static_cast<std::size_t>(source)], split);
      sums.layers += costs.between(source, {theirs}, f.layer, static_cast<int>(k), {mine})[0];
    }
  }
  sums.layers += std::max(flight - backward, std::min(flight, costs.bucket_flight()));
  const auto plan = plan_network(net, std::vector<LayerSplit>(net.layers.size(), split), ranks, samples);
  sums.simulated = simulate(net, plan, machine, kernels, {}).seconds;
  return sums;
}

TEST(LayerCosts, AddUpToTheTimeOfTheWholeStep) {
  for (const auto& [model, ranks, samples, split, tolerance] :
       {std::tuple{"resnet18", 16, 64, "n16", 0.05}, std::tuple{"resnet18", 16, 64, "n4h2w2", 0.05},
        std::tuple{"resnet18", 16, 64, "n4c2f2", 0.05}, std::tuple{"resnet18", 16, 64, "h16", 0.15},
        std::tuple{"unet2d", 16, 16, "n4h2w2", 0.05}, std::tuple{"vgg16", 16, 64, "n8f2", 0.05},
        std::tuple{"lenet5", 4, 64, "h2w2", 0.1}, std::tuple{"lenet5", 8, 64, "n8", 0.2}}) {
    const Sums sums = sums_of(model, ranks, samples, split);
    EXPECT_NEAR(sums.layers / sums.simulated, 1, tolerance) << model << " " << split;
  }
}

class LayerCostsOfAConvolution : public testing::Test {
 protected:
  LayerPrice price(int ranks, Index samples, const char* split, Index rows = 64) {
    nn::NetworkDescription net{
        .spatial_rank = 2,
        .input = views::make_extents(1, {rows, 64}, 16),
        .layers = {{"first", nn::Convolution{16, nn::square_window(2, 3, 1, 1)}, {"input"}},
                   {"second", nn::Convolution{16, nn::square_window(2, 3, 1, 1), false}, {"first"}}},
        .loss = nn::Loss::mean_squared_error};
    LayerCosts costs(net, machine_, kernels_, ranks, {.samples = samples});
    return costs.of(costs.facts()[1], LayerSplit::parse(split));
  }

  Machine machine_ = generic_machine();
  MachineKernels kernels_{machine_, 2, 1};
};

TEST_F(LayerCostsOfAConvolution, DependOnTheBlockOfARankAndNotOnTheNumberOfRanks) {
  const LayerPrice few = price(4, 8, "n4"), many = price(4096, 8192, "n4096");
  // The update and the kernels are equal; only the sums of gradients differ.
  EXPECT_NEAR(few.bytes, many.bytes, 1);
  EXPECT_NEAR(few.seconds, many.seconds, 0.02 * few.seconds);
  EXPECT_GT(many.gradient_flight, few.gradient_flight);
  const LayerPrice rows = price(16, 8, "h16", 256), more_rows = price(1024, 8, "h1024", 16384);
  EXPECT_NEAR(rows.seconds, more_rows.seconds, 0.02 * rows.seconds);
}

TEST_F(LayerCostsOfAConvolution, CountGhosts) {
  EXPECT_GT(price(4, 4, "h4").seconds, price(4, 4, "n4").seconds);
  const LayerPrice alone = price(1, 4, "1"), together = price(4, 16, "n4");
  EXPECT_EQ(alone.gradient_flight, 0);
  EXPECT_GT(together.gradient_flight, 0);
}

// Layers with weights and without, split by samples, filters and height.
TEST(LayerCosts, OfMicroBatchesHaveOneUpdateAndOneSumOfGradients) {
  Machine machine = free_machine();
  machine.combine_seconds_per_byte = 1e-9;
  const nn::NetworkDescription net = nn::make_model("lenet5");
  const RoundTimes kernels(1e-3);
  std::array<std::unique_ptr<LayerCosts>, 3> costs, without_update;
  const std::array<int, 3> numbers{1, 2, 5};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    LayerCostOptions options{.samples = 8, .micro_batches = numbers[i]};
    costs[i] = std::make_unique<LayerCosts>(net, machine, kernels, 2, options);
    options.step.update = false;
    without_update[i] = std::make_unique<LayerCosts>(net, machine, kernels, 2, options);
  }
  int priced = 0;
  for (const LayerFacts& facts : costs[0]->facts()) {
    for (const char* text : {"n2", "f2", "h2"}) {
      const LayerSplit split = LayerSplit::parse(text);
      if (effective_split(facts, split) != split) continue;
      SCOPED_TRACE(net.layers[static_cast<std::size_t>(facts.layer)].name + " " + text);
      std::array<LayerPrice, 3> price, without;
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        price[i] = costs[i]->of(facts, split);
        without[i] = without_update[i]->of(facts, split);
      }
      const auto& [one, two, five] = price;
      const double pass = (five.seconds - two.seconds) / 3;
      const bool pooled =
          std::holds_alternative<nn::Relu>(net.layers[static_cast<std::size_t>(facts.layer)].operation) &&
          std::holds_alternative<nn::Pooling>(net.layers[static_cast<std::size_t>(facts.layer) + 1].operation);
      if (pooled) {
        EXPECT_EQ(price[0].seconds, 0);  // kernels of the pooling compute it
      } else {
        EXPECT_GE(pass, (facts.weights > 0 ? 3 : 2) * 1e-3);  // forward, backward, and the addition of gradients
      }
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        EXPECT_NEAR(price[i].seconds - without[i].seconds, one.seconds - without[0].seconds, 1e-12);
        EXPECT_EQ(price[i].gradient_flight, one.gradient_flight);
      }
      EXPECT_GE(five.bytes, one.bytes + 4.0 * static_cast<double>(text == std::string("n2") ? facts.weights : 0));
      ++priced;
    }
  }
  EXPECT_GE(priced, 12);
  const std::vector<LayerSplit> samples{LayerSplit::parse("n2")}, rows{LayerSplit::parse("h2")};
  machine.exchange_seconds = 1e-3;
  EXPECT_DOUBLE_EQ(costs[2]->between(0, samples, 1, 0, rows)[0], 5 * costs[0]->between(0, samples, 1, 0, rows)[0]);
  EXPECT_GT(costs[0]->between(0, samples, 1, 0, rows)[0], 0);
}

TEST(LayerCosts, OfEqualSplitsHaveNoRedistribution) {
  const auto net = nn::make_model("densenet121", {.input = views::Extents{{1, 1, 32, 32, 3}}});
  const Machine machine = generic_machine();
  const MachineKernels kernels(machine, 2, 1);
  LayerCosts costs(net, machine, kernels, 8, {.samples = 64});
  const int conv = find_layer(net, "block1.layer1.conv3"), join = find_layer(net, "block1.layer1.join");
  const LayerSplit n8 = LayerSplit::parse("n8"), n4h2 = LayerSplit::parse("n4h2"), n4c2 = LayerSplit::parse("n4c2");
  EXPECT_EQ(costs.between(conv, {n8}, join, 1, {n8})[0], 0);
  EXPECT_GT(costs.between(conv, {n8}, join, 1, {n4h2})[0], 0);
  EXPECT_GT(costs.between(conv, {n4c2}, join, 1, {n4c2})[0], 0) << "blocks of a concatenation are other channels";
  // A pair costs the same alone and among others; the reader's splits vary fastest.
  const std::vector<double> all = costs.between(conv, {n8, n4h2}, join, 1, {n8, n4h2, n4c2});
  ASSERT_EQ(all.size(), 6U);
  EXPECT_DOUBLE_EQ(all[3], costs.between(conv, {n4h2}, join, 1, {n8})[0]);
  EXPECT_DOUBLE_EQ(all[2], costs.between(conv, {n8}, join, 1, {n4c2})[0]);
}

// A fit whose factors are the same for all sizes is a machine with other links.
TEST(LayerCosts, PriceRedistributionsByTheFitsOfTransfers) {
  const auto net = nn::make_model("densenet121", {.input = views::Extents{{1, 1, 32, 32, 3}}});
  Machine links = generic_machine(), fitted = links;
  links.ranks_per_node = fitted.ranks_per_node = 2;
  for (const LinkKind kind : {LinkKind::shared_memory, LinkKind::between_nodes}) {
    LinkCosts& link = links.links[static_cast<std::size_t>(kind)];
    link.latency *= 3;
    link.seconds_per_message *= 3;
    link.seconds_per_byte *= 2;
    fitted.transfers.push_back({.method = TransferMethod::messages,
                                .link = kind,
                                .seconds_per_call = 1e-3,
                                .message_factor = 3,
                                .rates = {{1024, 2}}});
  }
  fitted.transfers.push_back({.method = TransferMethod::copies,
                              .link = LinkKind::shared_memory,
                              .seconds_per_call = 1e-3,
                              .message_factor = 3,
                              .rates = {{1024, 2}}});
  const auto price = [&](const Machine& machine, int ranks) {
    const MachineKernels kernels(machine, 2, 1);
    LayerCosts costs(net, machine, kernels, ranks, {.samples = 64});
    const LayerSplit n = LayerSplit::parse("n" + std::to_string(ranks)),
                     h = LayerSplit::parse("h" + std::to_string(ranks));
    return costs.between(find_layer(net, "block1.layer1.conv3"), {n}, find_layer(net, "block1.layer1.join"), 1, {h})[0];
  };
  EXPECT_NEAR(price(fitted, 2), price(links, 2) + 2e-3, 1e-12) << "both passes have a call";
  // Between nodes the values are packed, too, and a fit has its factor for that.
  EXPECT_GT(price(fitted, 4), price(links, 4) + 2e-3);
}

TEST(LayerCosts, KnowWhereTheChannelsOfAnInputLieInAConcatenation) {
  const nn::Window window = nn::square_window(2, 1);
  const nn::NetworkDescription net{.spatial_rank = 2,
                                   .input = views::make_extents(1, {128, 128}, 4),
                                   .layers = {{"a", nn::Convolution{12, window}, {"input"}},
                                              {"b", nn::Convolution{8, window}, {"input"}},
                                              {"ab", nn::Concatenate{}, {"a", "b"}},
                                              {"ba", nn::Concatenate{}, {"b", "a"}},
                                              {"sum", nn::Add{}, {"ab", "ba"}}},
                                   .loss = nn::Loss::mean_squared_error};
  Machine machine = generic_machine();
  machine.ranks_per_node = 3;  // rank 3 is alone on its node
  const MachineKernels kernels(machine, 3, 1);
  LayerCosts costs(net, machine, kernels, 4, {.samples = 4});
  const LayerSplit c4 = LayerSplit::parse("c4");
  // Behind "a", rank 3 needs 5 of the 8 channels and has 2 of them. Before "a" it only gives 2 away.
  EXPECT_GT(costs.between(1, {c4}, 2, 1, {c4})[0], 1.2 * costs.between(1, {c4}, 3, 0, {c4})[0]);
}

}  // namespace test_layer_costs
}  // namespace aloni::model
