// Plans of sums: their gradients and those of tensors with two readers without copies, sums that a batch normalisation
// computes, and concatenations in one memory.
#include <aloni/nn/models.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/operation.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/plan/verify.hpp>
#include <aloni/nn/strategy.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

namespace aloni::nn {
namespace test_summed_gradients {

using views::Dim;

/// The plan of rank 0 of a training step. Those of all ranks are right.
StepPlan plan_of(const NetworkDescription& net, const std::string& split, int ranks) {
  const auto splits = resolve(Strategy::uniform(LayerSplit::parse(split)), net, ranks);
  const NetworkPlan layers = plan_network(net, splits, ranks, 4);
  std::vector<StepPlan> plans;
  for (int r = 0; r < ranks; ++r)
    plans.push_back(plan_step(net, layers, r, StepKind::training, machine_of_nodes(ranks, 1), {}));
  const auto fault = verify(layers, plans);
  EXPECT_FALSE(fault) << fault->what;
  return plans[0];
}

/// The nodes of the backward pass with this function, by label.
std::vector<std::string> backward(const StepPlan& plan, PointwiseFunction function) {
  std::vector<std::string> labels;
  for (const PlanNode& n : plan.nodes) {
    const auto* work = std::get_if<PointwiseWork>(&n.work);
    if (work && work->function == function && n.phase == StepPhase::backward) labels.push_back(n.label);
  }
  return labels;
}

NetworkDescription net_of(std::vector<LayerDescription> layers) {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {8, 8}, 3);
  net.layers = std::move(layers);
  net.layers.push_back({"flatten", Flatten{}, {net.layers.back().name}});
  net.layers.push_back({"dense", Dense{5}, {"flatten"}});
  return net;
}
LayerDescription conv(const std::string& name, const std::string& input) {
  return {name, Convolution{4, square_window(2, 3, 1, 1)}, {input}};
}

TEST(SummedGradients, ResNetsCopyNone) {
  for (const char* model : {"resnet18", "resnet50"}) {
    NetworkDescription net = make_model(model);
    net.input = views::make_extents(1, {64, 64}, 3);
    const auto blocks = static_cast<std::size_t>(std::ranges::count_if(
        net.layers, [](const LayerDescription& l) { return std::holds_alternative<Add>(l.operation); }));
    for (const auto& [split, ranks] : {std::pair{"n1", 1}, {"n2", 2}, {"h2w2", 4}}) {
      const StepPlan plan = plan_of(net, split, ranks);
      EXPECT_TRUE(backward(plan, PointwiseFunction::copy).empty()) << model << " " << split;
      // Two readers: the input of each block.
      EXPECT_EQ(backward(plan, PointwiseFunction::add).size(), blocks) << model << " " << split;
    }
  }
}

/// The labels of the nodes of the forward pass that belong to layers of this kind.
template <class Layer>
std::vector<std::string> forward(const NetworkDescription& net, const StepPlan& plan) {
  std::vector<std::string> labels;
  for (const PlanNode& n : plan.nodes)
    if (n.layer >= 0 && n.phase == StepPhase::forward &&
        std::holds_alternative<Layer>(net.layers[static_cast<std::size_t>(n.layer)].operation))
      labels.push_back(n.label);
  return labels;
}

TEST(SummedActivations, AreComputedByTheNormalisationBefore) {
  NetworkDescription net = make_model("resnet50");
  net.input = views::make_extents(1, {64, 64}, 3);
  for (const auto& [split, ranks] : {std::pair{"n1", 1}, {"n2", 2}, {"h2w2", 4}}) {
    const StepPlan plan = plan_of(net, split, ranks);
    EXPECT_TRUE(forward<Add>(net, plan).empty()) << split;
    EXPECT_TRUE(forward<Relu>(net, plan).empty()) << split;
    const auto with_summand = [](const PlanNode& n) {
      const auto* norm = std::get_if<NormalisationWork>(&n.work);
      return norm && norm->summand != no_buffer && norm->sum_relu;
    };
    EXPECT_EQ(std::ranges::count_if(plan.nodes, with_summand), 16) << split;  // of blocks
  }
}

TEST(SummedActivations, AReluThatIsForgottenBehindASumIsRefused) {
  const NetworkDescription net = net_of({conv("a", "input"),
                                         conv("b", "a"),
                                         {"norm", BatchNorm{}, {"b"}},
                                         {"sum", Add{}, {"norm", "a"}},
                                         {"relu", Relu{}, {"sum"}}});
  const auto splits = resolve(Strategy::uniform(LayerSplit{}), net, 1);
  const NetworkPlan layers = plan_network(net, splits, 1, 4);
  std::vector<StepPlan> plans{plan_step(net, layers, 0, StepKind::training, machine_of_nodes(1, 1), {})};
  ASSERT_FALSE(verify(layers, plans));
  for (PlanNode& n : plans[0].nodes)
    if (auto* norm = std::get_if<NormalisationWork>(&n.work)) norm->sum_relu = false;
  const auto fault = verify(layers, plans);
  ASSERT_TRUE(fault);
  EXPECT_NE(fault->what.find("which another layer has overwritten"), std::string::npos) << fault->what;
}

TEST(SummedActivations, AreSumsOfTheirOwnWhereTheOtherSummandIsNotThere) {
  const auto sums = [](std::vector<LayerDescription> layers) {
    const NetworkDescription net = net_of(std::move(layers));
    return forward<Add>(net, plan_of(net, "n1", 1)).size();
  };
  const LayerDescription norm{"norm", BatchNorm{}, {"b"}};
  // The normalisation comes first; it has a second reader; there are three summands.
  EXPECT_EQ(sums({conv("a", "input"), conv("b", "a"), norm, {"sum", Add{}, {"norm", "a"}}}), 0);
  EXPECT_EQ(sums({conv("a", "input"), conv("b", "a"), norm, conv("c", "a"), {"sum", Add{}, {"norm", "c"}}}), 1);
  EXPECT_EQ(sums({conv("a", "input"),
                  conv("b", "a"),
                  norm,
                  {"sum", Add{}, {"a", "norm"}},
                  conv("c", "norm"),
                  {"all", Add{}, {"sum", "c"}}}),
            2);
  EXPECT_EQ(sums({conv("a", "input"), conv("b", "a"), norm, {"sum", Add{}, {"a", "b", "norm"}}}), 1);
}

TEST(SummedGradients, ReachTheInputsOfASumInOneMemory) {
  const StepPlan plan = plan_of(net_of({conv("a", "input"),
                                        {"norm", BatchNorm{}, {"a"}},
                                        conv("b", "norm"),
                                        {"norm_b", BatchNorm{}, {"b"}},
                                        conv("c", "a"),
                                        {"sum", Add{}, {"norm_b", "c"}},
                                        {"relu", Relu{}, {"sum"}}}),
                                "n1", 1);
  const BufferId dy = plan.gradients[5];
  EXPECT_EQ(plan.gradients[3], dy);
  EXPECT_EQ(plan.gradients[4], dy);
  EXPECT_EQ(plan.gradients[6], dy);  // the ReLU computes in place
  EXPECT_NE(plan.gradients[2], dy);
  EXPECT_EQ(backward(plan, PointwiseFunction::copy), std::vector<std::string>{"backward flatten"});
}

// The ReLU writes its dx where its dy was, and the convolution still reads the gradient of the sum.
TEST(SummedGradients, ALayerThatReplacesItsGradientGetsACopy) {
  const StepPlan plan = plan_of(
      net_of(
          {conv("a", "input"), conv("b", "a"), {"relu", Relu{}, {"b"}}, conv("c", "a"), {"sum", Add{}, {"relu", "c"}}}),
      "n1", 1);
  EXPECT_NE(plan.gradients[2], plan.gradients[4]);
  EXPECT_EQ(plan.gradients[3], plan.gradients[4]);
  EXPECT_EQ(backward(plan, PointwiseFunction::copy), (std::vector<std::string>{"backward flatten", "backward sum"}));
}

// c writes the gradient of a, and that of the sum is added. The first summand of three is copied.
TEST(SummedGradients, TheFirstOfTwoSummandsWaits) {
  using Labels = std::vector<std::string>;
  const StepPlan two =
      plan_of(net_of({conv("a", "input"), conv("c", "a"), conv("d", "c"), {"sum", Add{}, {"a", "d"}}}), "n1", 1);
  EXPECT_EQ(backward(two, PointwiseFunction::copy), Labels{"backward flatten"});
  EXPECT_EQ(backward(two, PointwiseFunction::add), Labels{"backward c: summand"});
  const StepPlan three =
      plan_of(net_of({conv("a", "input"), conv("c", "a"), conv("d", "a"), {"sum", Add{}, {"a", "c", "d"}}}), "n1", 1);
  EXPECT_EQ(backward(three, PointwiseFunction::copy), (Labels{"backward flatten", "backward sum: first summand"}));
  EXPECT_EQ(backward(three, PointwiseFunction::add), (Labels{"backward d: summand", "backward c: summand"}));
}

/// A batch normalisation adds the gradient by the other reader of its input in the kernel that computes dx. For a
/// concatenation it reads that part of its gradient.
TEST(SummedGradients, OfDenseBlocksAreAddedByNormalisations) {
  const NetworkDescription net = make_model("densenet121", {.input = views::make_extents(1, {32, 32}, 3)});
  for (const auto& [split, ranks] : {std::pair{"n1", 1}, {"n2", 2}, {"h2w2", 4}}) {
    const StepPlan plan = plan_of(net, split, ranks);
    const auto adds = [](const PlanNode& n) {
      const auto* norm = std::get_if<NormalisationWork>(&n.work);
      return norm && norm->stage == NormalisationStage::backward && norm->summand != no_buffer;
    };
    EXPECT_EQ(std::ranges::count_if(plan.nodes, adds), 6 + 12 + 24 + 16) << split;
    EXPECT_TRUE(backward(plan, PointwiseFunction::copy).empty()) << split;
    EXPECT_TRUE(backward(plan, PointwiseFunction::add).empty()) << split;
  }
}

// Where the other reader has another distribution, its gradient arrives in a buffer of its own.
TEST(SummedGradients, OfAnotherDistributionAreAddedByNormalisations) {
  const NetworkDescription net = net_of({conv("a", "input"),
                                         {"norm", BatchNorm{}, {"a"}},
                                         conv("b", "norm"),
                                         {"relu", LeakyRelu{}, {"a"}},
                                         {"join", Concatenate{}, {"b", "relu"}}});
  Strategy strategy = Strategy::uniform(LayerSplit::parse("h2"));
  strategy.rules.insert(strategy.rules.begin(), {.pattern = "relu", .split = LayerSplit::parse("n2")});
  const NetworkPlan layers = plan_network(net, resolve(strategy, net, 2), 2, 4);
  std::vector<StepPlan> plans;
  for (int r = 0; r < 2; ++r)
    plans.push_back(plan_step(net, layers, r, StepKind::training, machine_of_nodes(2, 1), {}));
  const auto fault = verify(layers, plans);
  EXPECT_FALSE(fault) << fault->what;
  for (const PlanNode& n : plans[0].nodes) {
    const auto* norm = std::get_if<NormalisationWork>(&n.work);
    if (!norm || norm->stage != NormalisationStage::backward) continue;
    ASSERT_NE(norm->summand, no_buffer);
    EXPECT_EQ(plans[0].buffers[static_cast<std::size_t>(norm->summand)].name, "relu_contribution");
    EXPECT_EQ(norm->summand_region, norm->region);
  }
}

TEST(SummedGradients, WrongSumsOfNormalisationsAreRefused) {
  const NetworkDescription net = net_of(
      {conv("a", "input"), {"norm", BatchNorm{}, {"a"}}, conv("b", "norm"), {"join", Concatenate{}, {"b", "a"}}});
  const NetworkPlan layers = plan_network(net, resolve(Strategy::uniform({}), net, 1), 1, 4);
  /// The words of the refusal of a changed plan.
  const auto refusal = [&](const auto& change) {
    std::vector<StepPlan> plans{plan_step(net, layers, 0, StepKind::training, machine_of_nodes(1, 1), {})};
    EXPECT_FALSE(verify(layers, plans));
    int changed = 0;
    for (PlanNode& n : plans[0].nodes) {
      auto* const norm = std::get_if<NormalisationWork>(&n.work);
      if (!norm || norm->stage != NormalisationStage::backward) continue;
      EXPECT_EQ(norm->summand_region.lower(Dim::channel), 4) << "behind the channels of b";
      change(n, *norm);
      ++changed;
    }
    EXPECT_EQ(changed, 1);
    const auto fault = verify(layers, plans);
    return fault ? fault->what : std::string("none");
  };
  const auto is_summand = [](const NormalisationWork& norm) {
    return [b = norm.summand](const PlanRegion& r) { return r.buffer == b; };
  };
  EXPECT_THAT(refusal([](PlanNode&, NormalisationWork& w) { w.summand = no_buffer; }),
              testing::HasSubstr("does not add the gradient that it reads"));
  EXPECT_THAT(refusal([&](PlanNode& n, NormalisationWork& w) {
                std::erase_if(n.reads, is_summand(w));
                w.summand = no_buffer;
              }),
              testing::HasSubstr("no node reads"));
  EXPECT_THAT(refusal([&](PlanNode& n, NormalisationWork& w) {
                w.summand_region = shift_channels(w.summand_region, -4);
                std::ranges::find_if(n.reads, is_summand(w))->box = w.summand_region;
              }),
              testing::HasSubstr(" of a gradient instead of "));
}

/// The layers whose outputs have the memory of the output of this layer, in their order; without those in place.
std::vector<std::string> joins_in(const NetworkDescription& net, const StepPlan& plan, const std::string& layer) {
  std::vector<std::string> joins;
  for (const PlanNode& n : plan.nodes) {
    if (n.layer < 0 || n.phase != StepPhase::forward || !std::holds_alternative<TransferWork>(n.work)) continue;
    const std::string& name = net.layers[static_cast<std::size_t>(n.layer)].name;
    const BufferId target = std::get<TransferWork>(n.work).items[0].destination;
    if (plan.buffers[static_cast<std::size_t>(target)].name == layer + "_y") joins.push_back(name);
  }
  return joins;
}

/// Each concatenation of a dense block begins with the one before: they share one memory, and copy what is new.
TEST(JoinedMemory, OfADenseBlockIsOneTensor) {
  using Names = std::vector<std::string>;
  const Operation norm = BatchNorm{};
  const NetworkDescription net = net_of({conv("a", "input"),
                                         conv("b", "a"),
                                         {"join1", Concatenate{}, {"a", "b"}},
                                         {"norm1", norm, {"join1"}},
                                         conv("c", "norm1"),
                                         {"join2", Concatenate{}, {"join1", "c"}},
                                         {"norm2", norm, {"join2"}},
                                         conv("d", "norm2"),
                                         {"join3", Concatenate{}, {"join2", "d"}},
                                         {"norm3", norm, {"join3"}}});
  for (const auto& [split, ranks] : {std::pair{"n1", 1}, {"n2", 2}, {"h2w2", 4}})
    EXPECT_EQ(joins_in(net, plan_of(net, split, ranks), "join3"), (Names{"join1", "join1", "join2", "join3"})) << split;
  // Split channels of an input are not the first channels of each rank.
  EXPECT_EQ(joins_in(net, plan_of(net, "c2", 2), "join3"), (Names{"join3", "join3"}));
}

TEST(JoinedMemory, IsForLayersThatTakeAPartOfABuffer) {
  using Names = std::vector<std::string>;
  const auto joins = [](const Operation& reader, std::vector<std::string> inputs) {
    const NetworkDescription net = net_of({conv("a", "input"),
                                           {"join1", Concatenate{}, {"a", "a"}},
                                           {"reader", reader, {"join1"}},
                                           conv("b", "reader"),
                                           {"join2", Concatenate{}, std::move(inputs)},
                                           {"norm", BatchNorm{}, {"join2"}}});
    return joins_in(net, plan_of(net, "n1", 1), "join2");
  };
  EXPECT_EQ(joins(BatchNorm{}, {"join1", "b"}), (Names{"join1", "join1", "join2"}));
  EXPECT_EQ(joins(Convolution{4, square_window(2, 3, 1, 1)}, {"join1", "b"}), (Names{"join2", "join2"}));
  EXPECT_EQ(joins(BatchNorm{}, {"b", "join1"}), (Names{"join2", "join2"}));
  EXPECT_EQ(joins(BatchNorm{}, {"join1", "join1", "b"}), (Names{"join2", "join2", "join2"}));
}

}  // namespace test_summed_gradients
}  // namespace aloni::nn
