// The plan of a representative has the cost and the memory of the plan of every rank that it stands for.
#include "random_network.hpp"

#include <aloni/nn/models.hpp>
#include <aloni/nn/plan/memory.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/plan/representatives.hpp>

#include <support/random_cases.hpp>

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <variant>
#include <vector>

namespace test_representatives {

using namespace aloni;
using namespace aloni::nn;
using namespace aloni::nn::test;

/// What plans are made from.
struct Case {
  NetworkDescription network;
  NetworkPlan layers;
  MachineDescription machine;
  StepKind kind = StepKind::training;
  StepOptions options;
  int ranks = 1;
};

Case random_case(std::uint64_t seed) {
  Dice dice(seed);
  Case c;
  c.network = random_network(dice, Kinds::all);
  for (LayerDescription& layer : c.network.layers) {
    auto* bn = std::get_if<BatchNorm>(&layer.operation);
    if (bn == nullptr) continue;
    bn->scope = static_cast<StatisticsScope>(dice(0, 3));
    bn->ranks = static_cast<int>(dice(1, 4));
  }
  c.ranks = static_cast<int>(dice(0, 2) == 0 ? dice(1, 64) : dice(1, 8));
  const bool uniform = dice(0, 1) == 0;
  std::vector<LayerSplit> splits;
  for (std::size_t l = 0; l < c.network.layers.size(); ++l)
    splits.push_back(uniform && l > 0 ? splits[0] : random_split(dice, c.ranks, c.network.spatial_rank));
  const auto resolved = resolve(strategy_of(c.network, splits), c.network, c.ranks);
  c.layers = plan_network(c.network, resolved, c.ranks, dice(0, 2) == 0 ? dice(1, 70) : dice(1, 5));
  c.machine = machine_of_nodes(c.ranks, static_cast<int>(dice(0, 1) == 0 ? dice(0, 3) : dice(0, 8)));
  if (!c.machine.nodes.empty() && dice(0, 3) == 0)
    for (int& node : c.machine.nodes) node = static_cast<int>(dice(0, 3));
  c.machine.shared_memory = dice(0, 7) > 0;
  c.machine.on_host = dice(0, 3) > 0;
  c.machine.progress_thread = dice(0, 1) == 0;
  c.machine.chunk_bytes = dice(0, 1) == 0 ? 200 : 1 << 20;  // small tensors in chunks
  c.machine.bucket_bytes = dice(0, 1) == 0 ? 64 : 1 << 20;
  c.machine.multiplications_per_slab = dice(0, 1) == 0 ? 1000 : 100e6;
  c.options = {.activations = dice(0, 3) == 0 ? ElementType::bfloat16 : ElementType::float32,
               .split_parameters = dice(0, 1) == 0,
               .input_gradient = dice(0, 1) == 0,
               .sums = dice(0, 3) != 0 ? GradientSums::beside_backward : GradientSums::after_backward};
  if (c.options.sums == GradientSums::after_backward && !c.options.split_parameters)
    c.options.sums = GradientSums::partial;
  if (dice(0, 1) == 0) c.options.largest_overhead = 1;
  c.kind = static_cast<StepKind>(std::min<Index>(dice(0, 3), 2));
  return c;
}

std::string text_of(const Case& c) {
  std::string text;
  for (std::size_t l = 0; l < c.network.layers.size(); ++l)
    text += to_string(c.network.layers[l]) + ", " + to_string(c.layers.layers[l].output) + '\n';
  return text + std::to_string(c.ranks) + " ranks";
}

/// The nodes that cost something, by label, without sums over ranks.
std::vector<std::pair<std::string, NodeCost>> local_costs(const StepPlan& plan, const MachineDescription& machine) {
  std::vector<std::pair<std::string, NodeCost>> costs;
  for (const PlanNode& node : plan.nodes)
    if (!std::holds_alternative<ReductionWork>(node.work)) costs.emplace_back(node.label, cost(plan, node, machine));
  return costs;
}

std::vector<Index> bytes_of_buffers(const StepPlan& plan) {
  std::vector<Index> bytes;
  for (const PlanBuffer& b : plan.buffers) bytes.push_back(b.bytes());
  return bytes;
}

/// Compares each rank with its representative. Returns the number of representatives.
std::size_t expect_equal(const Case& c, const std::string& text) {
  const Representatives few = find_representatives(c.network, c.layers, c.machine);
  ReductionCosts reductions(c.network, c.layers, c.machine);
  std::set<int> seen;
  for (std::size_t i = 0; i < few.ranks.size(); ++i) {
    const StepPlan plan = plan_step(c.network, c.layers, few.ranks[i], c.kind, c.machine, c.options);
    const auto expected = local_costs(plan, c.machine);
    const NodeCost local = cost_without_reductions(plan, c.machine).total();
    const PlanMemoryUse memory = memory_of(plan, c.machine);
    const std::vector<Index> buffers = bytes_of_buffers(plan);
    const std::vector<ReductionCost> sums = reductions.of(plan, few.members[i]);
    EXPECT_EQ(few.members[i].front(), few.ranks[i]);
    for (std::size_t m = 0; m < few.members[i].size(); ++m) {
      const int rank = few.members[i][m];
      EXPECT_TRUE(seen.insert(rank).second) << rank;
      const StepPlan own = plan_step(c.network, c.layers, rank, c.kind, c.machine, c.options);
      const std::string place = text + ": rank " + std::to_string(rank) + " as " + std::to_string(few.ranks[i]);
      EXPECT_EQ(local_costs(own, c.machine), expected) << place;
      EXPECT_EQ(bytes_of_buffers(own), buffers) << place;
      const PlanMemoryUse use = memory_of(own, c.machine);
      EXPECT_EQ(use.by_role, memory.by_role) << place;
      EXPECT_EQ(use.peak, memory.peak) << place;
      EXPECT_EQ(use.peak_node, memory.peak_node) << place;
      const StepCost all = cost(own, c.machine);
      NodeCost total = local;
      total += sums[m].all;
      EXPECT_EQ(total, all.total()) << place;
      EXPECT_EQ(sums[m].gradients, all.gradient_sums) << place;
      for (const LayerPlan& layer : c.layers.layers)
        EXPECT_EQ(extents_of(layer.input_needed(rank)), extents_of(layer.input_needed(few.ranks[i]))) << place;
      if (testing::Test::HasFailure()) return few.ranks.size();
    }
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(c.ranks)) << text;
  return few.ranks.size();
}

TEST(Representatives, HaveTheCostAndTheMemoryOfTheirMembers) {
  std::size_t ranks = 0, representatives = 0;
  for (int i = 0; i < aloni::test::random_cases(1500); ++i) {
    const Case c = random_case(static_cast<std::uint64_t>(i));
    representatives += expect_equal(c, "case " + std::to_string(i) + '\n' + text_of(c));
    ranks += static_cast<std::size_t>(c.ranks);
    ASSERT_FALSE(HasFailure());
  }
  RecordProperty("ranks", static_cast<int>(ranks));
  RecordProperty("representatives", static_cast<int>(representatives));
  EXPECT_LT(representatives, ranks);
}

Case model(const std::string& name, const std::string& split, int ranks, Index samples, int ranks_per_node) {
  Case c;
  c.network = make_model(name, {});
  c.ranks = ranks;
  const Strategy strategy = Strategy::uniform(LayerSplit::parse(split));
  c.layers = plan_network(c.network, resolve(strategy, c.network, ranks), ranks, samples);
  c.machine = machine_of_nodes(ranks, ranks_per_node);
  return c;
}

TEST(Representatives, AreFewInRegularSplits) {
  const auto number = [](const Case& c) { return find_representatives(c.network, c.layers, c.machine).ranks.size(); };
  EXPECT_EQ(number(model("lenet5", "n16", 16, 64, 0)), 1u);
  EXPECT_EQ(number(model("resnet50", "n1024h2w2", 4096, 4096, 0)), 4u);  // the four corners
  EXPECT_EQ(number(model("resnet50", "n1024h2w2", 4096, 4096, 4)), 4u);
  EXPECT_LE(number(model("resnet50", "n1024h2w2", 4096, 5000, 4)), 100u);  // the dense layer has another grid
  EXPECT_LE(number(model("resnet50", "n256h4w4", 4096, 4096, 8)), 32u);
  EXPECT_LE(number(model("densenet121", "n1024h2w2", 4096, 4096, 8)), 8u);
}

TEST(Representatives, OfModelsHaveTheCostOfTheirMembers) {
  for (const auto& [name, split] : {std::pair{"lenet5", "n4h4w2"}, {"resnet18", "n2h4w2"}, {"unet2d", "n2h2w2c2"}})
    expect_equal(model(name, split, LayerSplit::parse(split).size(), 6, 6), std::string(name) + ' ' + split);
}

}  // namespace test_representatives
