// The work and the memory of K-FAC by arithmetic. Its memory is compared with that of a Kfac in test_kfac.cpp.
#include <aloni/core/error.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/plan/kfac_cost.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/strategy.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn {
namespace test_kfac_cost {

constexpr Index batch = 6;

struct Costs {
  KfacPlan plan;
  std::vector<KfacCost> ranks;
};

Costs costs_of(const NetworkDescription& net, const std::string& split, int ranks,
               const MachineDescription& machine = {}, ElementType type = ElementType::float32) {
  const std::vector<LayerSplit> splits = resolve(Strategy::uniform(LayerSplit::parse(split)), net, ranks);
  const NetworkPlan layers = plan_network(net, splits, ranks, batch);
  Costs all{.plan = plan_kfac(net, splits, ranks), .ranks = {}};
  for (int rank = 0; rank < ranks; ++rank) {
    const StepPlan step = plan_step(net, layers, rank, StepKind::training, machine, {.activations = type});
    all.ranks.push_back(cost_of_kfac(step, all.plan, rank, machine));
  }
  return all;
}

/// A convolution with a bias and one without, and a dense layer: their factors have 10, 3, 27, 4, 65 and 5 rows.
NetworkDescription small_net() {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {8, 8}, 1);
  net.layers = {{"conv1", Convolution{3, square_window(2, 3, 1, 1)}, {"input"}},
                {"norm", BatchNorm{}, {"conv1"}},
                {"conv2", Convolution{4, square_window(2, 3, 2, 1), false}, {"norm"}},
                {"flatten", Flatten{}, {"conv2"}},
                {"fc", Dense{5}, {"flatten"}}};
  return net;
}

TEST(KfacCost, CountsTheProductsOfOneRank) {
  const KfacCost cost = costs_of(small_net(), "1", 1).ranks[0];
  const double conv1 = 64 * (10 * 10 + 3 * 3), conv2 = 16 * (27 * 27 + 4 * 4), fc = 65 * 65 + 5 * 5;
  EXPECT_EQ(cost.product_flops, 2 * batch * (conv1 + conv2 + fc));
  const Index triangles = 55 + 6 + 378 + 10 + 2145 + 15, squares = 100 + 9 + 729 + 16 + 4225 + 25;
  EXPECT_EQ(cost.average_flops, 4. * triangles);
  EXPECT_EQ(cost.inversion_flops, 1000. + 27 + 19683 + 64 + 274625 + 125);
  EXPECT_EQ(cost.direction_flops, 2. * (30 * 14 + 108 * 32 + 325 * 71) + 30 + 108 + 325);
  EXPECT_EQ(cost.factor_sum, NodeCost{});
  EXPECT_EQ(cost.product_sum, NodeCost{});
  EXPECT_EQ(cost.directions_received, 0);
  const Index floats = squares + factor_patch_elements + (30 + 108 + 325) + 2 * 325 + squares;
  EXPECT_EQ(cost.memory, 4 * floats + 8 * (triangles + squares));
}

/// Each output is counted on one rank, and each inversion.
TEST(KfacCost, DividesTheWorkAmongTheRanks) {
  for (const NetworkDescription& net : {small_net(), lenet5(views::make_extents(1, {28, 28}, 1), 10)}) {
    const KfacCost whole = costs_of(net, "1", 1).ranks[0];
    for (const auto& [split, ranks] : std::vector<std::pair<std::string, int>>{
             {"n2", 2}, {"h2", 2}, {"w2", 2}, {"n2h2", 4}, {"h2w2", 4}, {"n4", 4}, {"h3", 3}, {"1", 3}, {"n8", 8}}) {
      SCOPED_TRACE(split + " on " + std::to_string(ranks));
      const Costs parts = costs_of(net, split, ranks);
      double products = 0, inversions = 0, averages = 0, written = 0;
      Index all_values = 0;
      for (const KfacLayer& layer : parts.plan.layers) all_values += layer.rows * layer.columns;
      for (int rank = 0; rank < ranks; ++rank) {
        const KfacCost& part = parts.ranks[static_cast<std::size_t>(rank)];
        products += part.product_flops;
        inversions += part.inversion_flops;
        averages += part.average_flops;
        written += part.direction_flops;
        Index own = 0;
        for (const KfacLayer& layer : parts.plan.layers) own += layer.owner == rank ? layer.rows * layer.columns : 0;
        EXPECT_EQ(part.directions_received, 4 * (all_values - own));
      }
      EXPECT_EQ(products, whole.product_flops);
      EXPECT_EQ(inversions, whole.inversion_flops);
      EXPECT_EQ(averages, whole.average_flops);
      EXPECT_EQ(written, whole.direction_flops + (ranks - 1) * static_cast<double>(all_values));
    }
  }
}

TEST(KfacCost, SumsTheLowerTrianglesInDouble) {
  const Index triangles = 55 + 6 + 378 + 10 + 2145 + 15;
  const Costs two = costs_of(small_net(), "n2", 2);
  Index sent = 0, received = 0;
  for (const KfacCost& cost : two.ranks) {
    EXPECT_GE(cost.factor_sum.bytes_sent, 8 * triangles - 8) << "two ranks exchange all, or a half twice";
    EXPECT_GT(cost.product_sum.bytes_sent, 0);
    sent += cost.factor_sum.bytes_sent;
    received += cost.factor_sum.bytes_received;
  }
  EXPECT_EQ(sent, received);
}

TEST(KfacCost, CountsCopiesOnTheHostOfADevice) {
  MachineDescription device;
  device.on_host = false;
  const Index squares = 100 + 9 + 729 + 16 + 4225 + 25, values = 30 + 108 + 325;
  EXPECT_EQ(costs_of(small_net(), "1", 1, device).ranks[0].memory - costs_of(small_net(), "1", 1).ranks[0].memory,
            4 * (squares + values));
  // Parameters are float.
  EXPECT_EQ(costs_of(small_net(), "1", 1, {}, ElementType::bfloat16).ranks[0].memory,
            costs_of(small_net(), "1", 1).ranks[0].memory);
}

TEST(KfacCost, RefusesInferenceAndWrongRanks) {
  const NetworkDescription net = small_net();
  const std::vector<LayerSplit> splits = resolve(Strategy::uniform({}), net, 1);
  const NetworkPlan layers = plan_network(net, splits, 1, batch);
  const KfacPlan kfac = plan_kfac(net, splits, 1);
  EXPECT_THROW(cost_of_kfac(plan_step(net, layers, 0, StepKind::inference, {}), kfac, 0), InvalidArgument);
  EXPECT_THROW(cost_of_kfac(plan_step(net, layers, 0, StepKind::training, {}), kfac, 1), InvalidArgument);
}

TEST(KfacCost, TakesTheLargestOfRanks) {
  const Costs two = costs_of(small_net(), "n2", 2);
  const KfacCost most = largest_cost(two.ranks[0], two.ranks[1]);
  for (const KfacCost& cost : two.ranks) {
    EXPECT_GE(most.memory, cost.memory);
    EXPECT_GE(most.inversion_flops, cost.inversion_flops);
    EXPECT_GE(most.directions_received, cost.directions_received);
  }
  EXPECT_EQ(most.memory, std::max(two.ranks[0].memory, two.ranks[1].memory));
}

}  // namespace test_kfac_cost
}  // namespace aloni::nn
