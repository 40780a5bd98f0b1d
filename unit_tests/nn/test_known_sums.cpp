// Batch normalisations behind concatenations take the sums of their first channels from another normalisation.
#include <aloni/nn/models.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/plan/recomputation.hpp>
#include <aloni/nn/plan/verify.hpp>
#include <aloni/nn/strategy.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::nn {
namespace test_known_sums {

using views::Dim;

struct Plans {
  NetworkPlan layers;
  std::vector<StepPlan> of_ranks;

  Plans(const NetworkDescription& net, const Strategy& strategy, int ranks, StepKind kind = StepKind::training,
        const StepOptions& options = {})
      : layers(plan_network(net, resolve(strategy, net, ranks), ranks, 4)) {
    for (int r = 0; r < ranks; ++r)
      of_ranks.push_back(plan_step(net, layers, r, kind, machine_of_nodes(ranks, 1), options));
    const auto fault = verify(layers, of_ranks);
    EXPECT_FALSE(fault) << fault->what;
  }
  Plans(const NetworkDescription& net, const std::string& split, int ranks)
      : Plans(net, Strategy::uniform(LayerSplit::parse(split)), ranks) {}
};

/// The channels that the normalisation of each layer sums, by the plan of rank 0.
std::map<std::string, halo::Range> summed_channels(const NetworkDescription& net, const Plans& plans) {
  std::map<std::string, halo::Range> channels;
  for (const PlanNode& n : plans.of_ranks[0].nodes) {
    const auto* norm = std::get_if<NormalisationWork>(&n.work);
    if (!norm || norm->stage != NormalisationStage::statistics) continue;
    channels[net.layers[static_cast<std::size_t>(n.layer)].name] = {norm->region.lower(Dim::channel),
                                                                    norm->region.upper(Dim::channel)};
  }
  return channels;
}

NetworkDescription net_of(std::vector<LayerDescription> layers) {
  return {.spatial_rank = 2,
          .input = views::make_extents(1, {8, 8}, 3),
          .layers = std::move(layers),
          .loss = Loss::mean_squared_error};
}
LayerDescription conv(const char* name, const char* input, Index filters) {
  return {name, Convolution{filters, square_window(2, 3, 1, 1)}, {input}};
}
/// A dense block of two layers with 4, 3 and 2 channels.
NetworkDescription block(const Operation& first = BatchNorm{}, const Operation& second = BatchNorm{}) {
  return net_of({conv("a", "input", 4),
                 {"norm1", first, {"a"}},
                 conv("b", "norm1", 3),
                 {"join1", Concatenate{}, {"a", "b"}},
                 {"norm2", second, {"join1"}},
                 conv("c", "norm2", 2),
                 {"join2", Concatenate{}, {"join1", "c"}},
                 {"norm3", BatchNorm{}, {"join2"}}});
}

TEST(KnownSums, OfADenseBlockAreComputedOnce) {
  for (const auto& [split, ranks] : {std::pair{"n1", 1}, {"n2", 2}, {"h2w2", 4}, {"n2h2", 4}}) {
    const auto net = block();
    const auto channels = summed_channels(net, Plans(net, split, ranks));
    EXPECT_EQ(channels.at("norm1"), (halo::Range{0, 4})) << split;
    EXPECT_EQ(channels.at("norm2"), (halo::Range{4, 7})) << split;
    EXPECT_EQ(channels.at("norm3"), (halo::Range{7, 9})) << split;
  }
}

// Each of the four blocks sums its input and 32 channels per layer, the normalisations within the layers 128 channels,
// and the stem 64.
TEST(KnownSums, OfDenseNetAreComputedOnce) {
  const NetworkDescription net = make_model("densenet121", {.input = views::make_extents(1, {32, 32}, 3)});
  Index sum = 0;
  for (const auto& [name, channels] : summed_channels(net, Plans(net, "n2", 2))) sum += channels.hi - channels.lo;
  EXPECT_EQ(sum, 64 + (64 + 128 + 256 + 512) + (6 + 12 + 24 + 16) * (32 + 128));
}

TEST(KnownSums, AreThoseOfTheSameElements) {
  const auto all_are_summed = [](const NetworkDescription& net, const Plans& plans) {
    return summed_channels(net, plans).at("norm2").lo == 0;
  };
  const Operation local = BatchNorm{.scope = StatisticsScope::local};
  // Other statistics; another kind of normalisation.
  const auto other_scope = block(local);
  EXPECT_TRUE(all_are_summed(other_scope, Plans(other_scope, "n2", 2)));
  const auto same_scope = block(local, local);
  EXPECT_FALSE(all_are_summed(same_scope, Plans(same_scope, "n2", 2)));
  const auto group = block(GroupNorm{.groups = 2});
  EXPECT_TRUE(all_are_summed(group, Plans(group, "n2", 2)));
  // Split channels: the first channels of a rank are not those of its part of "a".
  EXPECT_TRUE(all_are_summed(block(), Plans(block(), "c2", 2)));
  // Another distribution of the first normalisation.
  Strategy mixed = Strategy::uniform(LayerSplit::parse("h2"));
  mixed.rules.insert(mixed.rules.begin(), {.pattern = "norm1", .split = LayerSplit::parse("n2")});
  EXPECT_TRUE(all_are_summed(block(), Plans(block(), mixed, 2)));
  // The known channels come last.
  NetworkDescription last = block();
  last.layers[3].inputs = {"b", "a"};
  EXPECT_TRUE(all_are_summed(last, Plans(last, "n2", 2)));
}

TEST(KnownSums, AreForBatchStatisticsAlone) {
  const Plans inference(block(), Strategy::uniform(LayerSplit::parse("n2")), 2, StepKind::inference);
  EXPECT_TRUE(summed_channels(block(), inference).empty());
}

// A repeated normalisation finds them again. The block has the layers from "norm1" to "c".
TEST(KnownSums, OutliveRecomputation) {
  const Plans plans(block(), Strategy::uniform(LayerSplit::parse("n2")), 2, StepKind::training,
                    {.recompute = {{.first = 1, .last = 5}}});
  const auto& nodes = plans.of_ranks[0].nodes;
  EXPECT_TRUE(std::ranges::any_of(nodes, [](const PlanNode& n) {
    const auto* norm = std::get_if<NormalisationWork>(&n.work);
    return n.repeats >= 0 && norm && norm->known_sums != no_buffer;
  }));
}

TEST(KnownSums, WrongOnesAreRefused) {
  const NetworkDescription net = block();
  /// The words of the refusal of plans whose nodes of "norm3" in this stage are changed.
  const auto refusal = [&](NormalisationStage stage, const auto& change) {
    Plans plans(net, "n2", 2);
    for (StepPlan& plan : plans.of_ranks)
      for (PlanNode& n : plan.nodes)
        if (auto* norm = std::get_if<NormalisationWork>(&n.work);
            norm && norm->stage == stage && net.layers[static_cast<std::size_t>(n.layer)].name == "norm3")
          change(plan, n, *norm);
    const auto fault = verify(plans.layers, plans.of_ranks);
    return fault ? fault->what : std::string("none");
  };
  const auto replace = [](PlanNode& n, BufferId from, const PlanRegion& to) {
    for (auto* regions : {&n.reads, &n.writes})
      for (PlanRegion& r : *regions)
        if (r.buffer == from) r = to;
  };
  EXPECT_THAT(refusal(NormalisationStage::statistics,
                      [](StepPlan&, PlanNode&, NormalisationWork& w) { w.region = shift_channels(w.region, -1); }),
              testing::HasSubstr("normalises "));
  for (const char* other : {"norm1_sums", "norm2_new_sums"}) {
    EXPECT_THAT(refusal(NormalisationStage::forward,
                        [&](StepPlan& plan, PlanNode& n, NormalisationWork& w) {
                          const BufferId b = plan.find(other);
                          replace(n, w.known_sums, {b, plan.buffers[static_cast<std::size_t>(b)].box});
                          w.known_sums = b;
                        }),
                testing::HasSubstr("which is not the sum of the right values"))
        << other;
  }
  EXPECT_THAT(refusal(NormalisationStage::forward,
                      [](StepPlan&, PlanNode& n, NormalisationWork& w) {
                        std::erase_if(n.reads, [&](const PlanRegion& r) { return r.buffer == w.known_sums; });
                      }),
              testing::HasSubstr("reads norm2_sums"));
  EXPECT_THAT(refusal(NormalisationStage::forward,
                      [](StepPlan&, PlanNode& n, NormalisationWork& w) {
                        std::erase_if(n.writes, [&](const PlanRegion& r) { return r.buffer == w.all_sums; });
                      }),
              testing::HasSubstr("writes norm3_sums"));
}

}  // namespace test_known_sums
}  // namespace aloni::nn
