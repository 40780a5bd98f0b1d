#include "random_network.hpp"

#include <aloni/core/error.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/isolated_node.hpp>
#include <aloni/nn/plan/plan_step.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <variant>

namespace aloni::nn::test {
namespace test_isolated_node {

struct Planned {
  StepPlan plan;
  MemoryLayout layout;

  IsolatedNode isolated(int n) const { return isolate(plan, n, layout); }
  /// The first node whose label ends so and that has work of this kind.
  template <class W>
  int find(const std::string& label) const {
    for (int n = 0; n < static_cast<int>(plan.nodes.size()); ++n) {
      const PlanNode& node = plan.nodes[static_cast<std::size_t>(n)];
      if (std::holds_alternative<W>(node.work) && node.label.find(label) != std::string::npos) return n;
    }
    ADD_FAILURE() << label;
    return 0;
  }
};

Planned planned(const NetworkDescription& net, const std::string& split = "n1", int ranks = 1,
                StepOptions options = {}) {
  const auto splits = resolve(Strategy::uniform(LayerSplit::parse(split)), net, ranks);
  Planned p{plan_step(net, plan_network(net, splits, ranks, 8), 0, StepKind::training, {}, options), {}};
  p.layout = lay_out_memory({&p.plan}, {});
  return p;
}

NetworkDescription lenet() { return lenet5(views::make_extents(1, {28, 28}, 1), 10); }

double distance_of(const IsolatedNode& alone, const std::string& buffer) {
  for (const Operand& o : alone.operands)
    if (alone.plan.buffers[static_cast<std::size_t>(o.region.buffer)].name == buffer) return o.distance;
  ADD_FAILURE() << buffer;
  return -1;
}

TEST(IsolatedNode, ThePredecessorsResultIsNear) {
  const Planned p = planned(lenet());
  const IsolatedNode alone = p.isolated(p.find<PoolingWork>("forward pool1"));
  EXPECT_EQ(distance_of(alone, "conv1_y"), 0);
  EXPECT_GT(distance_of(alone, "pool1_argmax"), 10000);
  EXPECT_TRUE(std::ranges::is_sorted(alone.operands, std::greater{}, &Operand::distance));
}

// Forward and backward passes have code of their own: the last kernel with the code of the first pooling is the second
// pooling in the step before, and not the gradient of the first one.
TEST(IsolatedNode, CodeIsAsFarAsTheLastNodeWithTheSamePass) {
  const Planned p = planned(lenet());
  const auto distance = [&](const std::string& label) { return p.isolated(p.find<PoolingWork>(label)).code_distance; };
  EXPECT_GT(distance("forward pool1"), 3 * distance("backward pool1"));
  EXPECT_GT(distance("forward pool1"), distance("forward pool2"));
}

// A distance counts each byte once, however often the nodes in between use it.
TEST(IsolatedNode, NoDistanceExceedsTheMemoryOfTheStep) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Dice dice(seed);
    const Planned p = planned(random_network(dice, Kinds::all));
    double all = static_cast<double>(p.layout.bytes());
    for (const PlanBuffer& b : p.plan.buffers)
      if (b.alias == no_buffer && !p.layout.places.contains(b.name)) all += static_cast<double>(b.bytes());
    for (const GradientMemory& segment : p.plan.gradient_memory) all += static_cast<double>(segment.bytes);
    for (int n = 0; n < static_cast<int>(p.plan.nodes.size()); ++n) {
      if (p.plan.nodes[static_cast<std::size_t>(n)].kind() != NodeKind::kernel) continue;
      for (const Operand& o : p.isolated(n).operands) {
        EXPECT_LE(o.distance, all * (1 + 1e-9)) << "seed " << seed;
        EXPECT_LE(o.distance, o.bytes * (1 + 1e-9)) << "seed " << seed;
        EXPECT_GE(o.distance, 0) << "seed " << seed;
      }
    }
  }
}

TEST(IsolatedNode, TheBackwardPassOfAMaximumNeedsItsForwardPass) {
  const Planned p = planned(lenet());
  const IsolatedNode alone = p.isolated(p.find<PoolingWork>("backward pool1"));
  ASSERT_EQ(alone.plan.nodes.size(), 2u);
  EXPECT_FALSE(std::get<PoolingWork>(alone.plan.nodes[0].work).backward);
}

TEST(IsolatedNode, TheFirstNodeOfAPassOrdersTheFilters) {
  // An interior and its borders: several nodes of one pass.
  const Planned p = planned(lenet(), "h2", 2, {.largest_overhead = 1000});
  int nodes = 0, ordering = 0;
  for (int n = 0; n < static_cast<int>(p.plan.nodes.size()); ++n) {
    const auto* const work = std::get_if<ConvolutionWork>(&p.plan.nodes[static_cast<std::size_t>(n)].work);
    if (!work || work->weights != 0 || work->backward) continue;
    ++nodes;
    ordering += orders_filters(p.plan, n) ? 1 : 0;
    EXPECT_EQ(p.isolated(n).weights >= 0, orders_filters(p.plan, n));
  }
  EXPECT_GT(nodes, 1);
  EXPECT_EQ(ordering, 1);
}

TEST(IsolatedNode, TheFirstNodeOfAPassReadsItsFilters) {
  const Planned p = planned(lenet(), "h2", 2, {.largest_overhead = 1000});
  const ConvolutionWeights& weights = p.plan.convolution_weights.at(1);
  int nodes = 0;
  for (int n = 0; n < static_cast<int>(p.plan.nodes.size()); ++n) {
    const auto* const work = std::get_if<ConvolutionWork>(&p.plan.nodes[static_cast<std::size_t>(n)].work);
    if (!work || work->weights != 1) continue;
    ++nodes;
    const auto operands = p.isolated(n).operands;
    const auto filters = std::ranges::find(operands, weights.w, [](const Operand& o) { return o.region.buffer; });
    ASSERT_EQ(filters != operands.end(), orders_filters(p.plan, n)) << p.plan.nodes[static_cast<std::size_t>(n)].label;
    if (filters != operands.end()) {
      EXPECT_EQ(filters->region.box, weights.parts.at(0).box);
    }
  }
  EXPECT_GT(nodes, 2);
}

TEST(IsolatedNode, AnUpdateHasANetworkWithItsTensors) {
  const Planned p = planned(lenet());
  const IsolatedNode alone = p.isolated(p.find<OptimiserWork>("update"));
  ASSERT_TRUE(alone.parameters);
  const ParameterLayout layout = lay_out_parameters(*alone.parameters);
  ASSERT_EQ(layout.lengths.size(), 1u);
  EXPECT_EQ(layout.lengths[0], 61706);
  EXPECT_EQ(layout.descriptions.size(), 10u);
}

TEST(IsolatedNode, RefusesCommunicationAndUnknownNodes) {
  const Planned p = planned(lenet(), "h2", 2);
  EXPECT_THROW(p.isolated(p.find<TransferWork>("")), InvalidArgument);
  EXPECT_THROW(p.isolated(p.find<ReductionWork>("")), InvalidArgument);
  EXPECT_THROW(p.isolated(-1), InvalidArgument);
  EXPECT_THROW(p.isolated(static_cast<int>(p.plan.nodes.size())), InvalidArgument);
}

}  // namespace test_isolated_node
}  // namespace aloni::nn::test
