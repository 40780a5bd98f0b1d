#include "svg_text.hpp"

#include <aloni/tools/comparison_drawing.hpp>

#include <gmock/gmock.h>

#include <string>

namespace aloni::tools {
namespace test_comparison_drawing {

using svg_text::count;
using svg_text::xml_fault;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(ComparisonDrawing, HasTwoBarsForEachRowThatTakesTime) {
  const StepComparison c{.machine = "x86_server",
                         .ranks = 2,
                         .steps = 7,
                         .step = {"step", 4e-3, 5e-3},
                         .input = 1e-4,
                         .phases = {{"forward", 1e-3, 2e-3}, {"backward", 3e-3, 3e-3}},
                         .kinds = {{"convolution_forward", 1e-3, 2e-3}, {"normalisation", 0, 0}},
                         .layers = {{"conv_1", 2e-3, 4e-3}, {"<fc>", 1e-3, 0}, {"relu", 0, 0}, {"no layer", 0, 1e-3}}};
  const std::string svg = to_svg("lenet5 & more", c);
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_EQ(count(svg, "<g><title>"), 7u);  // without normalisation and relu
  for (const char* tooltip :
       {"step: predicted 4 ms, measured 5 ms", "forward: predicted 1 ms, measured 2 ms",
        "convolution forward: predicted 1 ms, measured 2 ms", "conv_1: predicted 2 ms, measured 4 ms",
        "&lt;fc&gt;: predicted 1 ms, measured 0", "no layer: predicted 0, measured 1 ms"})
    EXPECT_EQ(count(svg, "<title>" + std::string(tooltip) + "</title>"), 1u) << tooltip;
  EXPECT_EQ(count(svg, "class=\"c0\""), 3u + 6);  // the legends, and no bar for 0
  EXPECT_EQ(count(svg, "class=\"c1\""), 3u + 6);
  EXPECT_THAT(svg, AllOf(HasSubstr("lenet5 &amp; more"), HasSubstr(">2 ms, measured 4 ms (-50.0 %)</text>"),
                         HasSubstr(">Layers</text>"), HasSubstr(">time per step</text>"), HasSubstr("x86_server"),
                         HasSubstr("7 timed steps on 2 ranks"), Not(HasSubstr("normalisation"))));
}

TEST(ComparisonDrawing, IsWellFormedWithoutTimes) { EXPECT_EQ(xml_fault(to_svg("", StepComparison{})), ""); }

}  // namespace test_comparison_drawing
}  // namespace aloni::tools
