// The gradient of filters is computed while the sums of the normalisation before the convolution are in flight.
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/operation.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/plan/verify.hpp>
#include <aloni/nn/step_graph.hpp>
#include <aloni/nn/strategy.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace aloni::nn {
namespace test_late_filters {

/// Two convolutions with a normalisation behind each, and one of one pixel. Layers 0 to 7 in this order.
NetworkDescription small_net(const Operation& norm) {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {8, 8}, 3);
  net.layers = {{"a", Convolution{4, square_window(2, 3, 1, 1)}, {"input"}},
                {"a_norm", norm, {"a"}},
                {"a_relu", Relu{}, {"a_norm"}},
                {"b", Convolution{4, square_window(2, 3, 1, 1)}, {"a_relu"}},
                {"b_norm", norm, {"b"}},
                {"c", Convolution{4, square_window(2, 1, 1, 0)}, {"b_norm"}},
                {"flatten", Flatten{}, {"c"}},
                {"dense", Dense{5}, {"flatten"}}};
  return net;
}

struct Planned {
  Planned(const NetworkDescription& net, const std::string& split, int ranks, const StepOptions& options = {}) {
    const auto splits = resolve(Strategy::uniform(LayerSplit::parse(split)), net, ranks);
    layers = plan_network(net, splits, ranks, 4);
    MachineDescription machine = machine_of_nodes(ranks, 1);
    machine.bucket_bytes = 1;  // a sum of gradients for each layer
    for (int r = 0; r < ranks; ++r) plans.push_back(plan_step(net, layers, r, StepKind::training, machine, options));
    graph = graph_of(plans[0]);
    actions = schedule(graph);
  }

  /// Position of an action among all of rank 0; of a sum of gradients that of the layer.
  std::ptrdiff_t position(StepActionKind kind, const std::string& label, std::optional<int> layer = {}) const {
    const auto found = std::ranges::find_if(actions, [&](const StepAction& a) {
      const auto node = static_cast<std::size_t>(a.node);
      return a.kind == kind && graph.nodes[node].label == label && (!layer || plans[0].nodes[node].layer == *layer);
    });
    EXPECT_NE(found, actions.end()) << label;
    return found - actions.begin();
  }
  std::ptrdiff_t run(const std::string& label) const { return position(StepActionKind::run, label); }
  std::ptrdiff_t start(const std::string& label) const { return position(StepActionKind::start, label); }
  std::ptrdiff_t finish(const std::string& label) const { return position(StepActionKind::finish, label); }

  /// In the list of nodes, from which lifetimes follow: behind the gradient of x.
  bool are_late(const std::string& layer) const {
    const auto is_data = [&](const PlanNode& n) {
      return std::holds_alternative<ConvolutionWork>(n.work) && n.label.starts_with("backward " + layer);
    };
    const auto& nodes = plans[0].nodes;
    return std::ranges::find(nodes, "backward " + layer + ": filters", &PlanNode::label) >
           std::ranges::find_if(nodes, is_data);
  }

  NetworkPlan layers;
  std::vector<StepPlan> plans;
  StepGraph graph;
  std::vector<StepAction> actions;
};

TEST(LateFilters, AreComputedWhileSumsAreInFlight) {
  const auto check = [](const Planned& p, const std::string& convolution, const std::string& norm) {
    const std::string sums = "backward " + norm + ": sums over ranks";
    const auto filters = p.run("backward " + convolution + ": filters");
    EXPECT_LT(p.run("backward " + convolution), p.start(sums)) << norm;
    EXPECT_LT(p.start(sums), filters) << norm;
    EXPECT_LT(filters, p.finish(sums)) << norm;
    EXPECT_FALSE(verify(p.layers, p.plans));
  };
  const Planned samples(small_net(BatchNorm{}), "n2", 2);
  check(samples, "c", "b_norm");
  check(samples, "b", "a_norm");
  check(Planned(small_net(GroupNorm{2}), "h2", 2), "c", "b_norm");
}

TEST(LateFilters, AreNotLateWhereTheyHideGhostsOrNothing) {
  const Planned pixels(small_net(BatchNorm{}), "h2", 2);
  EXPECT_LT(pixels.run("backward b: filters"), pixels.finish("backward b: ghosts of dy"));
  EXPECT_FALSE(pixels.are_late("b"));
  EXPECT_TRUE(pixels.are_late("c"));
  EXPECT_FALSE(Planned(small_net(BatchNorm{}), "n1", 1).are_late("c"));
  EXPECT_FALSE(Planned(small_net(BatchNorm{StatisticsScope::local}), "n2", 2).are_late("c"));
  EXPECT_FALSE(Planned(small_net(Relu{}), "n2", 2).are_late("c"));
}

// The sum of a layer's gradients starts behind the sums of the normalisation, which a kernel waits for.
TEST(LateFilters, AreSummedAsSoonAsTheyAreComputed) {
  const Planned p(small_net(BatchNorm{}), "n2", 2);
  const auto sum = [&](int layer) { return p.position(StepActionKind::start, "sums of gradients", layer); };
  EXPECT_LT(p.start("backward b_norm: sums over ranks"), sum(5));
  EXPECT_LT(p.run("backward c: filters"), sum(5));
  EXPECT_LT(sum(5), p.finish("backward b_norm: sums over ranks"));
  EXPECT_LT(sum(5), sum(4));
  EXPECT_LT(sum(4), sum(3));
}

TEST(LateFilters, ComeBeforeTheRepetitionOfABlock) {
  const Planned p(small_net(BatchNorm{}), "n2", 2, {.recompute = {{0, 2}}});
  EXPECT_FALSE(verify(p.layers, p.plans));
  const auto& nodes = p.plans[0].nodes;
  const auto place = [&](const auto& holds) { return std::ranges::find_if(nodes, holds) - nodes.begin(); };
  const auto repeated = place([](const PlanNode& n) { return n.repeats >= 0; });
  const auto filters = place([](const PlanNode& n) { return n.label == "backward b: filters"; });
  const auto sum = place([](const PlanNode& n) { return n.label == "sums of gradients" && n.layer == 3; });
  EXPECT_LT(filters, sum);
  EXPECT_LT(sum, repeated);
  EXPECT_LT(repeated, std::ssize(nodes));
}

}  // namespace test_late_filters
}  // namespace aloni::nn
