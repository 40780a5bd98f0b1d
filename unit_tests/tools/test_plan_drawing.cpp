#include "svg_text.hpp"

#include <aloni/core/error.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/tools/plan_drawing.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <string>

namespace aloni::tools {
namespace test_plan_drawing {

using svg_text::count;
using svg_text::xml_fault;
using testing::HasSubstr;
using testing::Not;
using views::Dim;

PlanRequest request(const std::string& model, const std::string& split, Index batch = 8, int ranks_per_node = 0) {
  const nn::LayerSplit parsed = nn::LayerSplit::parse(split);
  return {.model = model,
          .network = nn::make_model(model, {}),
          .strategy = nn::Strategy::uniform(parsed),
          .batch = batch,
          .ranks = parsed.size(),
          .ranks_per_node = ranks_per_node};
}

PlanDrawing drawing(const PlanRequest& r) { return drawing_of(r, summarise(r)); }

TEST(PlanDrawing, ShowsTheBlocksOfOneSample) {
  const PlanDrawing d = drawing(request("lenet5", "n2h2w2"));
  ASSERT_EQ(d.layers.size(), 12u);
  const PlanDrawing::Layer& conv1 = d.layers[0];
  EXPECT_EQ(conv1.extents, views::make_extents(8, {28, 28}, 1));
  EXPECT_EQ(conv1.down, Dim::height);
  EXPECT_EQ(conv1.across, Dim::width);
  EXPECT_EQ(conv1.sample_blocks, 2);
  EXPECT_TRUE(conv1.complete);
  ASSERT_EQ(conv1.blocks.size(), 4u);
  EXPECT_EQ(conv1.blocks[1].owned.lower(Dim::width), 14);
  EXPECT_EQ(conv1.blocks[1].reads.lower(Dim::width), 12);
  for (const PlanDrawing::Block& block : conv1.blocks) {
    EXPECT_EQ(block.owned.lower(Dim::sample), 0);
    EXPECT_EQ(block.owned.extent(Dim::sample), 4);
    EXPECT_EQ(block.reads.extent(Dim::height), 16);
  }
}

TEST(PlanDrawing, ShowsTheSplitDimensionsOfVolumes) {
  PlanDrawing d = drawing(request("cosmoflow", "d2h2", 1));
  EXPECT_EQ(d.layers[0].down, Dim::depth);
  EXPECT_EQ(d.layers[0].across, Dim::height);
  EXPECT_EQ(d.layers[0].blocks.size(), 4u);
  d = drawing(request("cosmoflow", "w2", 1));
  EXPECT_EQ(d.layers[0].down, Dim::height);
  EXPECT_EQ(d.layers[0].across, Dim::width);
  EXPECT_EQ(d.layers[0].blocks.size(), 2u);
}

TEST(PlanDrawing, SaysWhenItLeavesOutBlocks) {
  PlanRequest r = request("mesh1k", "h64", 1);
  PlanDrawing d = drawing(r);
  EXPECT_EQ(d.layers[0].blocks.size(), 32u);
  EXPECT_FALSE(d.layers[0].complete);
  EXPECT_THAT(to_svg(d), HasSubstr("the first 32 blocks are drawn"));
  EXPECT_THAT(to_svg(drawing(request("mesh1k", "h32", 1))), Not(HasSubstr("blocks are drawn")));
}

TEST(PlanDrawing, HasTheMemoryOfTheRankThatTakesMost) {
  for (const int ranks_per_node : {0, 1}) {
    const PlanRequest r = request("lenet5", "h4", 8, ranks_per_node);
    const PlanSummary s = summarise(r);
    const PlanDrawing d = drawing_of(r, s);
    EXPECT_EQ(d.taken, s.peak_bytes);
    EXPECT_EQ(d.memory_rank, s.peak_rank);
    ASSERT_EQ(d.memory.at_nodes.size(), d.nodes.size());
    const Index most = *std::ranges::max_element(d.memory.at_nodes);
    EXPECT_LE(d.memory.always + most, d.taken);
    EXPECT_GT(d.memory.always + most, d.taken / 2);
    EXPECT_EQ(d.memory.at_nodes[static_cast<std::size_t>(d.peak_node)], most);
    EXPECT_THAT(to_svg(d), HasSubstr(" in use at " + s.peak_node));
  }
}

TEST(PlanDrawing, MarksNodesThatCommunicate) {
  const auto with = [](const PlanDrawing& d, PlanDrawing::Traffic traffic) {
    return std::ranges::count(d.nodes, traffic, &PlanDrawing::Node::traffic);
  };
  const PlanDrawing alone = drawing(request("lenet5", "1")), split = drawing(request("lenet5", "h2"));
  EXPECT_EQ(with(alone, PlanDrawing::Traffic::transfer), 0);
  EXPECT_EQ(with(alone, PlanDrawing::Traffic::sum), 0);
  EXPECT_GE(with(split, PlanDrawing::Traffic::transfer), 6);
  EXPECT_GE(with(split, PlanDrawing::Traffic::sum), 1);
  EXPECT_EQ(count(to_svg(alone), "class=\"sent\""), 1u);  // the legend
  EXPECT_GT(count(to_svg(split), "class=\"sent\""), 6u);
}

TEST(PlanDrawing, IsWellFormedForEveryModelAndSplit) {
  for (const std::string& model : nn::model_names()) {
    for (const char* split : {"1", "h2", "n2h2w2", "h2f2", "n2c2"}) {
      const PlanDrawing d = drawing(request(model, split, 4));
      const std::string svg = to_svg(d);
      EXPECT_EQ(xml_fault(svg), "") << model << ", " << split;
      EXPECT_EQ(count(svg, "<g><title>"), d.layers.size()) << model << ", " << split;
      EXPECT_THAT(svg, Not(HasSubstr("width=\"-")));
      EXPECT_THAT(svg, Not(HasSubstr("height=\"-")));
    }
  }
}

TEST(PlanDrawing, EscapesNames) {
  PlanDrawing d = drawing(request("lenet5", "h2"));
  d.title = "<script>&\"'";
  d.subtitle = "strategy a\x01\xff\nb\xef\xbf\xbf";
  d.layers[0].summary.name = "</g><&>";
  d.layers[1].summary.name = "ééééééééééééééééééééééééééééééé";
  d.peak_label = "<peak>";
  const std::string svg = to_svg(d);
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_THAT(svg, HasSubstr("&lt;script&gt;&amp;&quot;'"));
  EXPECT_THAT(svg, HasSubstr("a\\x01\\xff\\nb\xef\xbf\xbd<"));
  EXPECT_THAT(svg, HasSubstr("&lt;/g&gt;&lt;&amp;&gt;"));
  EXPECT_THAT(svg, HasSubstr("éé…<"));
  EXPECT_THAT(svg, HasSubstr("&lt;peak&gt;"));
}

TEST(PlanDrawing, HasColoursForDarkBackgrounds) {
  EXPECT_THAT(to_svg(drawing(request("lenet5", "1"))), HasSubstr("@media (prefers-color-scheme: dark)"));
}

TEST(PlanDrawing, DrawsNetworksWithoutLayers) {
  PlanDrawing d;
  EXPECT_EQ(xml_fault(to_svg(d)), "");
  d.layers.emplace_back();
  EXPECT_EQ(xml_fault(to_svg(d)), "");
}

}  // namespace test_plan_drawing
}  // namespace aloni::tools
