#include <aloni/model/kernel.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/plan/cost.hpp>
#include <aloni/nn/plan/isolated_node.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/strategy.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace aloni::model {
namespace test_kernel {

nn::StepPlan plan_of(const nn::NetworkDescription& net, const std::string& split, int ranks, int rank, Index samples,
                     nn::StepKind kind = nn::StepKind::training, const nn::StepOptions& options = {}) {
  const auto splits = nn::resolve(nn::Strategy::uniform(nn::LayerSplit::parse(split)), net, ranks);
  return nn::plan_step(net, nn::plan_network(net, splits, ranks, samples), rank, kind, {}, options);
}

nn::NetworkDescription small(const std::string& model) {
  const bool is_volume = model == "unet3d" || model == "cosmoflow";
  const auto image = is_volume ? views::make_extents(1, {32, 32, 32}, 1) : views::make_extents(1, {64, 64}, 3);
  return nn::make_model(model, {.input = model == "lenet5" ? views::make_extents(1, {28, 28}, 1) : image});
}

bool is_kernel(const nn::PlanNode& node) { return node.kind() == nn::NodeKind::kernel; }

TEST(Kernel, EveryNodeOfTheZooHasAProblem) {
  for (const std::string& model : nn::model_names()) {
    const nn::StepPlan plan = plan_of(small(model), "h2", 2, 1, 2);
    for (const nn::PlanNode& node : plan.nodes) {
      if (!is_kernel(node)) continue;
      const KernelProblem problem = kernel_of(plan, node);
      EXPECT_EQ(problem.key.rfind(nn::kind(node.work), 0), 0u) << problem.key;
      EXPECT_EQ(problem.key.find('\n'), std::string::npos);
      for (const KernelCall& call : problem.calls) {
        EXPECT_EQ(call.features.size(), feature_names(call.kind).size()) << problem.key;
        for (const double feature : call.features) EXPECT_GE(feature, 0) << problem.key;
      }
    }
  }
}

TEST(Kernel, CallsHaveTheirSharesOfTheFarBytes) {
  const nn::StepPlan plan = plan_of(small("mesh1k"), "h2", 2, 0, 4, nn::StepKind::training, {.largest_overhead = 1000});
  std::size_t most_calls = 0;
  for (const nn::PlanNode& node : plan.nodes) {
    if (!is_kernel(node)) continue;
    const KernelProblem near = kernel_of(plan, node), far = kernel_of(plan, node, {{800, 400, 200, 100}, 50, 60});
    EXPECT_EQ(near.key, far.key);
    most_calls = std::max(most_calls, far.calls.size());
    std::vector<double> sums(nn::reuse_distances.size(), 0);
    for (std::size_t c = 0; c < far.calls.size(); ++c) {
      const std::size_t first = far.calls[c].features.size() - sums.size() - 2;
      EXPECT_EQ(far.calls[c].features[first + sums.size()], 50);  // of the node, in each call
      EXPECT_EQ(far.calls[c].features[first + sums.size() + 1], 60);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        sums[i] += far.calls[c].features[first + i];
        EXPECT_EQ(near.calls[c].features[first + i], 0);
      }
    }
    if (!far.calls.empty()) {
      EXPECT_NEAR(sums[0] + sums[1] + sums[2] + sums[3], 1500, 1e-6) << node.label;
    }
  }
  EXPECT_GT(most_calls, 1u);
}

TEST(Kernel, ConvolutionsKnowTheProductsOutsideOfTheirInput) {
  const auto names = feature_names(KernelKind::convolution_forward);
  const auto inside = static_cast<std::size_t>(std::ranges::find(names, "inside") - names.begin());
  // 3 × 3 taps with a padding of 1: of 3 · n products in a row, two have no input. A stride of 2 leaves one of them.
  const auto share_of = [&](Index width, Index stride) {
    nn::NetworkDescription net;
    net.input = views::make_extents(1, {width, width}, 16);
    net.loss = nn::Loss::mean_squared_error;
    net.layers = {{"conv", nn::Convolution{.filters = 16, .window = nn::square_window(2, 3, stride, 1)}, {"input"}}};
    const nn::StepPlan plan = plan_of(net, "1", 1, 0, 1);
    for (const nn::PlanNode& node : plan.nodes)
      if (std::holds_alternative<nn::ConvolutionWork>(node.work))
        return kernel_of(plan, node).calls.at(0).features[inside];
    return 0.0;
  };
  const auto square = [](double x) { return x * x; };
  EXPECT_DOUBLE_EQ(share_of(1, 1), square(1.0 / 3));
  EXPECT_DOUBLE_EQ(share_of(4, 1), square(10.0 / 12));
  EXPECT_DOUBLE_EQ(share_of(4, 2), square(5.0 / 6));
}

TEST(Kernel, FlopsAreThoseOfTheCost) {
  for (const char* const model : {"lenet5", "resnet18", "unet2d"}) {
    const nn::StepPlan plan = plan_of(small(model), "w2", 2, 0, 4);
    for (const nn::PlanNode& node : plan.nodes)
      if (is_kernel(node)) {
        EXPECT_DOUBLE_EQ(kernel_of(plan, node).flops(), nn::cost(plan, node).flops) << node.label;
      }
  }
}

// Ranks 1 and 2 of four slabs have ghosts on both sides, so each of their kernels has an equal one.
TEST(Kernel, PositionsDoNotMatter) {
  const auto net = small("unet2d");
  const nn::StepPlan one = plan_of(net, "h4", 4, 1, 2), two = plan_of(net, "h4", 4, 2, 2);
  ASSERT_EQ(one.nodes.size(), two.nodes.size());
  for (std::size_t n = 0; n < one.nodes.size(); ++n) {
    if (!is_kernel(one.nodes[n])) continue;
    const KernelProblem a = kernel_of(one, one.nodes[n]), b = kernel_of(two, two.nodes[n]);
    EXPECT_EQ(a.key, b.key) << one.nodes[n].label;
    EXPECT_EQ(a.calls, b.calls) << one.nodes[n].label;
  }
}

// A table of times that took different kernels for one would give the time of the first for both.
TEST(Kernel, EqualKeysMeanEqualCalls) {
  std::map<std::string, KernelProblem> problems;
  int repeated = 0;
  for (const std::string& model : nn::model_names()) {
    for (const char* const split : {"n2", "h2", "w2", "c2"}) {
      const nn::StepPlan plan = plan_of(small(model), split, 2, 0, 4);
      for (const nn::PlanNode& node : plan.nodes) {
        if (!is_kernel(node)) continue;
        const KernelProblem problem = kernel_of(plan, node);
        const auto [place, is_new] = problems.try_emplace(problem.key, problem);
        EXPECT_EQ(place->second.calls, problem.calls) << problem.key;
        repeated += is_new ? 0 : 1;
      }
    }
  }
  EXPECT_GT(repeated, 100);
  EXPECT_GT(problems.size(), 500u);
}

TEST(Kernel, OneCallPerPartOrdersItsFilters) {
  const nn::NetworkDescription net = nn::make_model("mesh1k", {.input = views::make_extents(1, {64, 64}, 18)});
  const auto& names = feature_names(KernelKind::convolution_forward);
  const auto orders = static_cast<std::size_t>(std::ranges::find(names, "orders_filters") - names.begin());
  const nn::StepPlan plan = plan_of(net, "h2", 2, 0, 4, nn::StepKind::training, {.largest_overhead = 1});
  int ordering = 0, ordered = 0, of_several_calls = 0;
  for (std::size_t n = 0; n < plan.nodes.size(); ++n) {
    if (!std::holds_alternative<nn::ConvolutionWork>(plan.nodes[n].work)) continue;
    const bool first = nn::orders_filters(plan, static_cast<int>(n));
    ++(first ? ordering : ordered);
    const std::vector<KernelCall> calls = kernel_of(plan, plan.nodes[n]).calls;
    of_several_calls += first && calls.size() > 1 ? 1 : 0;
    for (std::size_t c = 0; c < calls.size(); ++c) {
      EXPECT_EQ(calls[c].features.at(orders), first && c == 0 ? 1 : 0) << plan.nodes[n].label << ", call " << c;
      EXPECT_EQ(calls[c].bytes > calls.back().bytes, first && c + 1 < calls.size() && c == 0);
    }
  }
  EXPECT_GT(ordering, 0);
  EXPECT_GT(ordered, 0);
  EXPECT_GT(of_several_calls, 0);
}

// The gradient of a ReLU of three of six channels visits runs of three elements.
TEST(Kernel, RunsEndWhereTheMemoryHasAGap) {
  const auto place_of = [](KernelKind kind, std::string_view feature) {
    return static_cast<std::size_t>(std::ranges::find(feature_names(kind), feature) - feature_names(kind).begin());
  };
  const auto run_of = [&](const char* split, int ranks, const std::string& label) {
    const nn::StepPlan plan =
        plan_of(small("lenet5"), split, ranks, 0, 2, nn::StepKind::training, {.fuse_pooling = false});
    const auto node = std::ranges::find(plan.nodes, label, &nn::PlanNode::label);
    if (node == plan.nodes.end()) return -1.0;
    const KernelCall call = kernel_of(plan, *node).calls.at(0);
    return call.features.at(place_of(call.kind, "run"));
  };
  EXPECT_EQ(run_of("1", 1, "forward relu1"), 2 * 28 * 28 * 6);
  EXPECT_EQ(run_of("c2", 2, "backward relu1"), 3);
  EXPECT_EQ(run_of("1", 1, "backward pool1"), 2 * 14 * 14 * 6);
  EXPECT_EQ(run_of("h2", 2, "forward pool1"), 7 * 14 * 6);
}

TEST(Kernel, StridesBelongToTheKey) {
  const auto net = small("resnet18");
  const nn::StepPlan dense = plan_of(net, "1", 1, 0, 2), ghosts = plan_of(net, "w2", 2, 0, 2);
  std::set<std::string> keys;
  for (const nn::PlanNode& node : dense.nodes)
    if (is_kernel(node)) keys.insert(kernel_of(dense, node).key);
  int with_ghosts = 0;
  for (const nn::PlanNode& node : ghosts.nodes) {
    if (!is_kernel(node)) continue;
    const std::string key = kernel_of(ghosts, node).key;
    if (key.find(" of ") == std::string::npos) continue;
    ++with_ghosts;
    EXPECT_FALSE(keys.contains(key)) << key;
  }
  EXPECT_GT(with_ghosts, 5);
}

TEST(Kernel, Tf32BelongsToTheKey) {
  MachineDescription machine{.on_host = false};
  machine.cudnn = true;
  const nn::NetworkDescription net = small("lenet5");
  const nn::NetworkPlan layers = nn::plan_network(net, nn::resolve(nn::Strategy::uniform({}), net, 1), 1, 2);
  const auto key_of_first = [&](bool tf32) {
    const nn::StepPlan plan = nn::plan_step(net, layers, 0, nn::StepKind::training, machine, {.tf32 = tf32});
    for (const nn::PlanNode& node : plan.nodes)
      if (std::holds_alternative<nn::ConvolutionWork>(node.work)) return kernel_of(plan, node).key;
    return std::string("no convolution");
  };
  EXPECT_NE(key_of_first(true), key_of_first(false));
  EXPECT_NE(key_of_first(true).find("cudnn tf32"), std::string::npos) << key_of_first(true);
}

TEST(Kernel, KindsHaveNamesThatAreFoundAgain) {
  std::set<std::string_view> names;
  for (int k = 0; k < kernel_kinds; ++k) {
    const auto kind = static_cast<KernelKind>(k);
    names.insert(name(kind));
    EXPECT_EQ(kernel_kind_named(name(kind)), kind);
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kernel_kinds));
  EXPECT_FALSE(kernel_kind_named("convolution"));
}

}  // namespace test_kernel
}  // namespace aloni::model
