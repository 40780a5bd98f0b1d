// Plans that drop the activations of blocks and compute them again: they need less memory, and verify() refuses those
// with a fault.
#include "plan_faults.hpp"
#include "random_network.hpp"

#include <aloni/core/error.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/plan/choose_recomputation.hpp>
#include <aloni/nn/plan/cost.hpp>
#include <aloni/nn/plan/memory.hpp>
#include <aloni/nn/plan/memory_savings.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/plan/recomputation.hpp>
#include <aloni/nn/plan/verify.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace test_recomputation {

using namespace aloni;
using namespace aloni::nn;
using namespace aloni::nn::test;

NetworkDescription resnet() { return make_model("resnet18", {}); }

struct Planned {
  NetworkPlan layers;
  std::vector<StepPlan> plans;
};

Planned planned(const NetworkDescription& net, const std::string& split, int ranks, Index samples,
                const StepOptions& options) {
  Planned p;
  p.layers = plan_network(net, resolve(Strategy::uniform(LayerSplit::parse(split)), net, ranks), ranks, samples);
  for (int r = 0; r < ranks; ++r)
    p.plans.push_back(plan_step(net, p.layers, r, StepKind::training, machine_of_nodes(ranks, 0), options));
  return p;
}

TEST(Recomputation, PatternsSelectRunsOfLayers) {
  const NetworkDescription net = lenet5(views::make_extents(1, {28, 28}, 1), 10);
  const Recomputation blocks = recomputed_blocks(net, "conv1,*1");
  ASSERT_FALSE(blocks.empty());
  EXPECT_EQ(blocks[0].first, find_layer(net, "conv1"));
  EXPECT_EQ(blocks[0].last, blocks[0].first);
  for (std::size_t b = 1; b < blocks.size(); ++b) EXPECT_GT(blocks[b].first, blocks[b - 1].last);
  EXPECT_EQ(recomputed_blocks(net, "*"), (Recomputation{{0, static_cast<int>(net.layers.size()) - 1}}));
  try {
    recomputed_blocks(net, "conv9");
    FAIL();
  } catch (const InvalidArgument& e) {
    EXPECT_THAT(e.expectation(), testing::HasSubstr("did you mean conv1?"));
  }
  EXPECT_THROW(recomputed_blocks(net, "conv1,"), InvalidArgument);
  EXPECT_THROW(recomputed_blocks(net, "*,conv1"), InvalidArgument);
}

TEST(Recomputation, BlocksThatOverlapOrLieOutsideAreRefused) {
  const NetworkDescription net = lenet5(views::make_extents(1, {28, 28}, 1), 10);
  const int layers = static_cast<int>(net.layers.size());
  for (const Recomputation& wrong : {Recomputation{{0, layers}}, Recomputation{{0, 2}, {2, 3}}, Recomputation{{3, 2}},
                                     Recomputation{{-1, 2}}, Recomputation{{3, 4}, {0, 1}}})
    EXPECT_THROW(planned(net, "n1", 1, 4, {.recompute = wrong}), InvalidArgument);
}

Index bytes_at_loss(const StepPlan& plan) {
  const auto loss = std::ranges::find(plan.nodes, StepPhase::loss, &PlanNode::phase) - plan.nodes.begin();
  return memory_over_nodes(plan).at_nodes[static_cast<std::size_t>(loss)];
}

/// One block for each part of ResNet-18 with a common prefix of names: the stem, and the residual blocks.
TEST(Recomputation, SavesTheActivationsOfResidualBlocks) {
  const NetworkDescription net = resnet();
  Recomputation blocks;
  for (int i = 0; i < static_cast<int>(net.layers.size()); ++i) {
    const std::string& name = net.layers[static_cast<std::size_t>(i)].name;
    if (!name.starts_with("layer") && !name.starts_with("block") && name.find('.') == std::string::npos) continue;
    const std::string prefix = name.substr(0, name.rfind('.'));
    const bool same =
        !blocks.empty() && net.layers[static_cast<std::size_t>(blocks.back().last)].name.starts_with(prefix + ".");
    if (same)
      blocks.back().last = i;
    else
      blocks.push_back({i, i});
  }
  ASSERT_GE(blocks.size(), 8u);
  for (const auto& [split, ranks] :
       {std::pair("n1", 1), std::pair("h4", 4), std::pair("h2w2", 4), std::pair("c4", 4)}) {
    const Planned without = planned(net, split, ranks, 32, {});
    const Planned with = planned(net, split, ranks, 32, {.recompute = blocks});
    const auto fault = verify(with.layers, with.plans);
    ASSERT_FALSE(fault) << to_string(*fault);
    // At the loss all values are in use that the backward pass needs from the forward pass.
    EXPECT_LT(bytes_at_loss(with.plans[0]), bytes_at_loss(without.plans[0]) * 6 / 10) << split;
    // With split channels the peak is that of the backward pass of the stem, with copies of all its channels.
    if (split != std::string("c4")) {
      EXPECT_LT(memory_of(with.plans[0]).peak, memory_of(without.plans[0]).peak * 95 / 100) << split;
    }
    const double flops = cost(without.plans[0]).total().flops, more = cost(with.plans[0]).total().flops;
    EXPECT_GT(more, flops * 1.1) << split;
    EXPECT_LT(more, flops * 1.4) << split;  // at most one forward pass more
  }
}

TEST(Recomputation, LeavesInferenceAsItIs) {
  const NetworkDescription net = resnet();
  const NetworkPlan layers = plan_network(net, resolve(Strategy::uniform(LayerSplit::parse("n1")), net, 1), 1, 2);
  const int last = static_cast<int>(net.layers.size()) - 1;
  const StepPlan plan = plan_step(net, layers, 0, StepKind::inference, {}, {.recompute = {{0, last}}});
  EXPECT_TRUE(std::ranges::all_of(plan.nodes, [](const PlanNode& n) { return n.repeats < 0; }));
}

// --- choice ---

struct ChoiceCase {
  const char* model;
  const char* split;
  int ranks;
  Index samples;
};

TEST(Recomputation, ChosenBlocksMeetTheLimitWithFewFlops) {
  for (const auto& [model, split, ranks, samples] :
       {ChoiceCase{"resnet50", "n1", 1, 16}, ChoiceCase{"unet2d", "h4", 4, 2},
        ChoiceCase{"resnet18", "h6w8", 48, 256}}) {  // the last one: more ranks that differ than are tried first
    const NetworkDescription net = make_model(model);
    const MachineDescription machine = machine_of_nodes(ranks, 0);
    const NetworkPlan layers =
        plan_network(net, resolve(Strategy::uniform(LayerSplit::parse(split)), net, ranks), ranks, samples);
    const PricedRecomputation none = price_recomputation(net, layers, machine, {});
    const PricedRecomputation least = choose_recomputation(net, layers, machine, {}, {});
    const PricedRecomputation same = choose_recomputation(net, layers, machine, {}, none.peak_bytes);
    const Index middle = (none.peak_bytes + least.peak_bytes) / 2;
    const PricedRecomputation some = choose_recomputation(net, layers, machine, {}, middle);
    EXPECT_TRUE(same.blocks.empty()) << model;
    EXPECT_EQ(none.extra_flops, 0);
    EXPECT_LT(least.peak_bytes, none.peak_bytes * 8 / 10) << model;
    EXPECT_LE(some.peak_bytes, middle) << model;
    EXPECT_LT(some.extra_flops, least.extra_flops) << model;
    EXPECT_NEAR(some.flops - some.extra_flops, none.flops, 1e-6 * none.flops) << model;
    // The choice is a plan like any other.
    const PricedRecomputation again = price_recomputation(net, layers, machine, {.recompute = some.blocks});
    EXPECT_EQ(again.peak_bytes, some.peak_bytes) << model;
    Index largest = 0;
    for (int r = 0; r < ranks; ++r) {
      const StepPlan plan = plan_step(net, layers, r, StepKind::training, machine, {.recompute = some.blocks});
      largest = std::max(largest, memory_of(plan, machine).peak);
    }
    EXPECT_EQ(largest, some.peak_bytes) << model;
  }
}

TEST(Recomputation, LimitsThatNoChoiceMeetsAreRefusedWithTheLeastPeak) {
  const NetworkDescription net = make_model("resnet18", views::make_extents(1, {32, 32}, 3), 10);
  const NetworkPlan layers = plan_network(net, resolve(Strategy::uniform(LayerSplit::parse("n1")), net, 1), 1, 32);
  const PricedRecomputation least = choose_recomputation(net, layers, {}, {}, {});
  EXPECT_LE(choose_recomputation(net, layers, {}, {}, least.peak_bytes).peak_bytes, least.peak_bytes);
  const auto error_of = [&](const std::string& wish, Index limit) -> std::string {
    try {
      memory_savings_for(net, layers, {}, {}, {.recompute = wish, .limit = limit});
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "";
  };
  const std::string text = error_of("auto", least.peak_bytes / 2);
  EXPECT_NE(text.find("at least " + std::to_string(least.peak_bytes) + " bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("at layer " + least.peak_layer), std::string::npos) << text;
  EXPECT_NO_THROW(find_layer(net, least.peak_layer));
  EXPECT_NE(error_of("stem.*", least.peak_bytes).find("Recomputation \"auto\""), std::string::npos);
  EXPECT_NE(error_of("", least.peak_bytes).find("Recomputation \"auto\""), std::string::npos);
  EXPECT_EQ(error_of("", 1 << 30), "");
}

// --- faults ---

std::vector<int> repetitions(const StepPlan& plan, const std::function<bool(const PlanNode&)>& wanted) {
  std::vector<int> found;
  for (int n = 0; n < static_cast<int>(plan.nodes.size()); ++n)
    if (const PlanNode& node = plan.nodes[static_cast<std::size_t>(n)]; node.repeats >= 0 && wanted(node))
      found.push_back(n);
  return found;
}

Change change(const std::function<bool(const PlanNode&)>& wanted, const std::function<bool(PlanNode&)>& apply) {
  return [=](StepPlan& plan, Dice& dice) {
    const std::vector<int> found = repetitions(plan, wanted);
    if (found.empty()) return false;
    const int n = found[static_cast<std::size_t>(dice(0, static_cast<Index>(found.size()) - 1))];
    return apply(plan.nodes[static_cast<std::size_t>(n)]);
  };
}

PlanFaults faults() {
  const auto any = [](const PlanNode&) { return true; };
  const auto is_batch_norm = [](const PlanNode& n) {
    const auto* norm = std::get_if<NormalisationWork>(&n.work);
    return norm && norm->kind == NormalisationKind::batch;
  };
  const auto is_kernel = [](const PlanNode& n) { return n.kind() == NodeKind::kernel; };
  return {
      {"a repetition is that of another layer",
       {[](StepPlan& plan, Dice&) {
          for (const int n :
               repetitions(plan, [&](const PlanNode& node) { return node.layer != plan.nodes[0].layer; })) {
            plan.nodes[static_cast<std::size_t>(n)].repeats = 0;
            return true;
          }
          return false;
        },
        {"repeats another kind of node"}}},
      {"a repetition is that of a later node",
       {change(any,
               [](PlanNode& n) {
                 n.repeats = 1 << 20;
                 return true;
               }),
        {"repeats a later node"}}},
      {"running statistics change twice",
       {change(is_batch_norm,
               [](PlanNode& n) {
                 std::get<NormalisationWork>(n.work).updates_running = true;
                 return true;
               }),
        {"writes "}}},
      {"running statistics change twice, and the node says so",
       {change(is_batch_norm,
               [](PlanNode& n) {
                 auto& norm = std::get<NormalisationWork>(n.work);
                 if (norm.running == no_buffer) return false;
                 norm.updates_running = true;
                 const PlanRegion all{norm.running, {{0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}}};
                 n.reads.push_back(all);
                 n.writes.push_back(all);
                 return true;
               }),
        {"again, which outlives the step", "writes "}}},
      {"a repetition takes place before the forward pass is complete",
       {change(is_kernel,
               [](PlanNode& n) {
                 n.phase = StepPhase::forward;
                 return true;
               }),
        {"repeats another kind of node", "has made ready"}}},
      {"values are dropped before their last reader",
       {[](StepPlan& plan, Dice&) {
          for (PlanBuffer& b : plan.buffers) {
            if (b.unused.empty() || b.unused[0].first <= b.first + 1) continue;
            b.unused[0].first = b.first + 1;
            return true;
          }
          return false;
        },
        {"which was dropped after its writer"}}},
      {"values are dropped that no node computes again",
       {[](StepPlan& plan, Dice&) {
          for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
            PlanBuffer& buffer = plan.buffers[b];
            if (buffer.role != BufferRole::activation || buffer.alias != no_buffer || !buffer.unused.empty()) continue;
            int written = -1, read = -1;
            for (int n = 0; n < static_cast<int>(plan.nodes.size()); ++n) {
              for (const PlanRegion& r : plan.nodes[static_cast<std::size_t>(n)].writes)
                if (r.buffer == static_cast<BufferId>(b)) written = n;
              for (const PlanRegion& r : plan.nodes[static_cast<std::size_t>(n)].reads)
                if (r.buffer == static_cast<BufferId>(b)) read = n;
            }
            if (written < 0 || read < written + 2) continue;
            buffer.unused.push_back({written + 1, read - 1});
            return true;
          }
          return false;
        },
        {"which was dropped after its writer"}}},
      {"a repetition reads other values",
       {[](StepPlan& plan, Dice&) {
          // A kernel before the repetition overwrites one of its inputs, as if it belonged to the same layer.
          for (const int n : repetitions(plan, [](const PlanNode& node) {
                 return std::holds_alternative<PointwiseWork>(node.work) &&
                        node.reads[0].buffer != node.writes[0].buffer;
               })) {
            PlanNode copy = plan.nodes[static_cast<std::size_t>(n)];
            PlanNode& earlier = plan.nodes[static_cast<std::size_t>(n) - 1];
            if (plan.root(copy.reads[0].buffer) == plan.input || earlier.repeats >= 0) continue;
            if (earlier.kind() != NodeKind::kernel) continue;
            earlier.layer = copy.layer;
            earlier.writes.push_back(copy.reads[0]);
            return true;
          }
          return false;
        },
        {"reads other values of ", "nothing fills", "another layer has overwritten", "which no node has written"}}},
  };
}

TEST(Recomputation, EveryDeliberateFaultIsRefused) {
  expect_refused(faults(), 500, [](Dice& dice, int layers) -> StepOptions {
    return {.recompute = random_recomputation(dice, layers)};
  });
}

}  // namespace test_recomputation
