#include <aloni/model/candidates.hpp>

#include <aloni/nn/models.hpp>
#include <aloni/nn/network_plan.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <map>

namespace aloni::model {
namespace test_candidates {

using nn::LayerSplit;
using testing::Contains;
using testing::Each;
using testing::Not;
using views::Dim;

std::vector<std::string> texts(const std::vector<LayerSplit>& splits) {
  std::vector<std::string> all;
  for (const LayerSplit& s : splits) all.push_back(to_string(s));
  return all;
}

const LayerFacts& facts_named(const std::vector<LayerFacts>& facts, const nn::NetworkDescription& net,
                              const std::string& name) {
  return facts[static_cast<std::size_t>(find_layer(net, name))];
}

std::string reason_of(const Candidates& found, const std::string& split) {
  for (const Rejection& r : found.rejected)
    if (to_string(r.split) == split) return reason(r);
  return "";
}

TEST(Candidates, OfAConvolutionSplitAllItsDimensions) {
  const auto net = nn::make_model("resnet50");
  const auto facts = facts_of(net, 8);
  const Candidates found = candidates_of(facts_named(facts, net, "stage1.block1.conv2"), 4);
  EXPECT_THAT(texts(found.splits),
              testing::UnorderedElementsAre("n4", "h4", "w4", "c4", "f4", "n2h2", "n2w2", "n2c2", "n2f2", "h2w2",
                                            "h2c2", "h2f2", "w2c2", "w2f2", "c2f2"));
  EXPECT_EQ(to_string(found.splits.front()), "n4") << "samples need the least communication";
}

TEST(Candidates, OfALayerWithoutSpaceSplitSamplesChannelsAndFilters) {
  const auto net = nn::make_model("vgg16");
  const auto facts = facts_of(net, 8);
  const Candidates found = candidates_of(facts_named(facts, net, "fc1"), 4);
  EXPECT_THAT(texts(found.splits), testing::UnorderedElementsAre("n4", "c4", "f4", "n2c2", "n2f2", "c2f2"));
}

TEST(Candidates, KeepTheChannelsOfTheLastLayerTogether) {
  const auto net = nn::make_model("resnet18");
  const auto facts = facts_of(net, 8);
  const Candidates found = candidates_of(facts.back(), 4);
  EXPECT_THAT(texts(found.splits), testing::ElementsAre("n4"));
  EXPECT_THAT(reason_of(found, "c4"), testing::HasSubstr("acts as another one"));
}

TEST(Candidates, HaveReasonsForWhatIsRejected) {
  const auto net = nn::make_model("lenet5");  // 28² × 1, conv2 has 14² × 6 inputs and 16 filters
  const auto facts = facts_of(net, 4);
  const Candidates found = candidates_of(facts_named(facts, net, "conv2"), 16);
  EXPECT_EQ(reason_of(found, "n16"), "16 blocks of samples are more than 4 samples");
  EXPECT_THAT(reason_of(found, "h16"), testing::HasSubstr("thinner than one element"));
  EXPECT_THAT(reason_of(found, "c16"), testing::HasSubstr("channels"));
  EXPECT_THAT(reason_of(found, "n2h8"), testing::HasSubstr("the mean")) << "14 rows or fewer in 8 blocks";
  EXPECT_EQ(reason_of(found, "n2"), "8 ranks would compute the same block");
  EXPECT_THAT(texts(found.splits), Contains("n4")) << "computed by four ranks each, without communication";
  EXPECT_THAT(texts(found.splits), Contains("n4h2w2"));
}

TEST(Candidates, HaveNoFactorBesideABestOneThatMovesNothing) {
  const Rejection more{LayerSplit::parse("h4"), RejectionReason::more_communication, 1.5};
  EXPECT_EQ(reason(more), "moves 1.5 times the data of the best candidate");
  Rejection infinitely = more;
  infinitely.value = std::numeric_limits<double>::infinity();
  EXPECT_EQ(reason(infinitely), "moves data; the best candidate moves none");
}

TEST(Candidates, RejectThoseThatMoveMoreThanFortyOthers) {
  const auto net = nn::make_model("resnet50");
  const auto facts = facts_of(net, 256);
  const Candidates found = candidates_of(facts_named(facts, net, "stage1.block1.conv2"), 4096);
  EXPECT_EQ(found.splits.size(), 40U);
  EXPECT_TRUE(std::ranges::any_of(found.rejected, [](const Rejection& r) {
    return r.reason == RejectionReason::more_communication && r.value > 1;
  }));
}

TEST(Candidates, ShareBlocksWhereThereAreMoreRanksThanElements) {
  nn::NetworkDescription net{.spatial_rank = 1,
                             .input = views::make_extents(1, {3}, 1),
                             .layers = {{"relu", nn::Relu{}, {"input"}}},
                             .loss = nn::Loss::mean_squared_error};
  const Candidates found = candidates_of(facts_of(net, 1)[0], 6);
  EXPECT_THAT(texts(found.splits), Contains("w3"));
  EXPECT_THAT(texts(found.splits), Contains("1"));
}

// Properties of all candidates of all layers of models on several numbers of ranks.
class CandidatesOf : public testing::TestWithParam<std::string> {};

TEST_P(CandidatesOf, AreSupportedEvenAndWhatPlansUse) {
  const auto net = nn::make_model(GetParam());
  for (const auto& [ranks, samples] : {std::pair{1, 1}, std::pair{6, 12}, std::pair{16, 8}, std::pair{48, 96}}) {
    const auto facts = facts_of(net, samples);
    for (const LayerFacts& f : facts) {
      const Candidates found = candidates_of(f, ranks);
      ASSERT_FALSE(found.splits.empty());
      for (const LayerSplit& split : found.splits) {
        EXPECT_TRUE(supports(net, f.layer, split, ranks)) << to_string(split);
        EXPECT_EQ(effective_split(f, split), split);
        EXPECT_LE(imbalance(f, split), found.splits.size() == 1 ? 1e9 : 1.5) << to_string(split);
        EXPECT_EQ(std::ranges::count(found.splits, split), 1) << to_string(split);
        for (const Rejection& r : found.rejected) EXPECT_NE(r.split, split);
      }
    }
  }
}

TEST_P(CandidatesOf, FoldAsPlansDo) {
  const auto net = nn::make_model(GetParam());
  const auto facts = facts_of(net, 4);
  for (const char* text : {"h2w2", "n2c2", "c2f2", "h2f2", "h4"}) {
    const LayerSplit split = LayerSplit::parse(text);
    const auto plan = plan_network(net, std::vector<LayerSplit>(net.layers.size(), split), 4, 4);
    for (std::size_t i = 0; i < facts.size(); ++i) {
      const LayerSplit folded = effective_split(facts[i], split);
      EXPECT_EQ(plan.layers[i].input.grid(), folded.tensor_grid()) << net.layers[i].name << " " << text;
      EXPECT_EQ(plan.layers[i].output.grid(), folded.tensor_grid());
      if (plan.layers[i].convolution) {
        EXPECT_EQ(plan.layers[i].convolution->filter_blocks, folded.filters) << net.layers[i].name << " " << text;
        EXPECT_EQ(plan.layers[i].convolution->channel_blocks, folded.grid[Dim::channel]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CandidatesOf,
                         testing::Values("lenet5", "vgg16", "resnet18", "densenet121", "mesh1k", "unet3d"),
                         [](const auto& info) { return info.param; });

}  // namespace test_candidates
}  // namespace aloni::model
