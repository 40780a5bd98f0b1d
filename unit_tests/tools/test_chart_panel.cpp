#include "svg_text.hpp"

#include <aloni/tools/chart_panel.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace aloni::tools {
namespace test_chart_panel {

using svg_text::count;
using svg_text::xml_fault;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr Place place{SvgPage::margin, 40, 900, 200};

template <class Panel, class Where>
std::string svg_of(const Panel& panel, const Where& where) {
  SvgPage page;
  const double end = draw(page, panel, where);
  return page.document("charts", end);
}

/// The attribute of the circle of the dot with this tooltip.
double circle_attribute(const std::string& svg, const std::string& tooltip, const std::string& attribute) {
  const std::size_t dot = svg.find("<title>" + tooltip + "</title>");
  if (dot == std::string::npos) return std::nan("");
  const std::size_t at = svg.find(attribute + "=\"", dot) + attribute.size() + 2;
  return std::stod(svg.substr(at));
}

LinePanel panel_of(const std::vector<ChartDot>& dots) {
  return {.title = "Step",
          .x_title = "ranks",
          .y_title = "time",
          .y_text = time_text,
          .lines = {{.name = "step", .dots = dots}}};
}

TEST(ChartPanel, PutsEqualRatiosAtEqualDistancesOfLogarithmicAxes) {
  const std::string svg = svg_of(panel_of({{1, 1e-3}, {4, 1e-2}, {16, 1e-1}}), place);
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_EQ(count(svg, "(logarithmic)"), 2u);
  const std::vector<std::string> dots{"step, 1: 1 ms", "step, 4: 10 ms", "step, 16: 100 ms"};
  for (const char* attribute : {"cx", "cy"}) {
    const double a = circle_attribute(svg, dots[0], attribute), b = circle_attribute(svg, dots[1], attribute),
                 c = circle_attribute(svg, dots[2], attribute);
    EXPECT_NEAR(b - a, c - b, 0.02) << attribute;
    EXPECT_NE(a, c);
  }
  EXPECT_GT(circle_attribute(svg, dots[0], "cy"), circle_attribute(svg, dots[2], "cy"));  // 1 ms is below 100 ms
}

TEST(ChartPanel, KeepsValuesThatDifferLittleOnLinearAxesFromZero) {
  const std::string svg = svg_of(panel_of({{1, 4e-3}, {2, 2e-3}, {3, 1e-3}}), place);
  EXPECT_THAT(svg, Not(HasSubstr("logarithmic")));
  EXPECT_THAT(svg, AllOf(HasSubstr(">0</text>"), HasSubstr(">2 ms</text>"), HasSubstr(">4 ms</text>")));
  const double bottom = place.y + 30 + place.height;
  EXPECT_NEAR(circle_attribute(svg, "step, 1: 4 ms", "cy"), place.y + 30, 0.01);
  EXPECT_NEAR(circle_attribute(svg, "step, 3: 1 ms", "cy"), bottom - place.height / 4, 0.01);
}

TEST(ChartPanel, LeavesOutZerosOfALogarithmicAxisAndSaysSo) {
  const std::string svg = svg_of(panel_of({{1, 0}, {2, 1e-3}, {4, 1}}), place);
  EXPECT_EQ(count(svg, "<title>step, "), 2u);
  EXPECT_THAT(svg, HasSubstr("0 is not on a logarithmic axis"));
  EXPECT_THAT(svg_of(panel_of({{1, 0.5}, {2, 1e-3}, {4, 1}}), place), Not(HasSubstr("0 is not")));
}

TEST(ChartPanel, LeavesOutValuesThatAreNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinite = std::numeric_limits<double>::infinity();
  const std::string svg = svg_of(panel_of({{1, nan}, {2, 1}, {3, 2}, {4, infinite}, {5, 3}, {6, 2}}), place);
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_EQ(count(svg, "<title>step, "), 4u);
  const std::size_t path = svg.find("d=\"M", svg.find("class=\"l0\"") - 120);  // two parts, with a gap at 4
  EXPECT_EQ(count(svg.substr(path, svg.find('/', path) - path), "M"), 2u);
  for (const std::vector<ChartDot>& none : {std::vector<ChartDot>{}, {{1, nan}}})
    EXPECT_THAT(svg_of(panel_of(none), place), HasSubstr("No values."));
  for (const double value : {0.0, 1e-3, 7.0}) EXPECT_EQ(xml_fault(svg_of(panel_of({{2, value}}), place)), "") << value;
}

TEST(ChartPanel, HasOneEntryInTheLegendForALineAndTheOneThatBelongsToIt) {
  LinePanel panel = panel_of({{1, 1}, {2, 2}});
  panel.lines[0].marks = ChartMarks::dots;
  panel.lines.push_back({.name = "", .dots = {{1, 1}, {2, 3}}, .marks = ChartMarks::line});
  panel.lines.push_back({.name = "<other>", .dots = {{1, 2, true}, {2, 2}}, .colour = 1});
  const std::string svg = svg_of(panel, place);
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_EQ(count(svg, ">step</text>"), 1u);
  EXPECT_EQ(count(svg, ">&lt;other&gt;</text>"), 1u);
  EXPECT_EQ(count(svg, "c1 hollow"), 1u);
  EXPECT_EQ(count(svg, "<title>"), 5u);  // of the document, and one for each dot
}

TEST(ChartPanel, DrawsBarsAsLongAsTheirValues) {
  BarPanel panel{.title = "Layers",
                 .axis_title = "time",
                 .parts = {{"kernels", 0}, {"waits", 1}},
                 .rows = {{.name = "conv1", .note = "h2", .values = {3e-3, 1e-3}, .text = "4 ms"},
                          {.name = "<fc>", .values = {0, 2e-3}, .text = "2 ms"}}};
  const auto widths = [](const std::string& svg) {
    std::vector<double> all;
    for (std::size_t at = svg.find("<g>"); (at = svg.find("<rect ", at)) != std::string::npos; ++at)
      all.push_back(std::stod(svg.substr(svg.find("width=\"", at) + 7)));
    return all;
  };
  std::string svg = svg_of(panel, 40);
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_THAT(svg, AllOf(HasSubstr("<title>conv1: kernels 3 ms, waits 1 ms</title>"), HasSubstr("&lt;fc&gt;"),
                         HasSubstr(">h2</text>"), HasSubstr(">kernels</text>")));
  std::vector<double> found = widths(svg);
  ASSERT_EQ(found.size(), 3u);  // no bar for 0
  EXPECT_NEAR(found[0], 3 * found[1], 0.05);
  EXPECT_NEAR(found[2], 2 * found[1], 0.05);
  const double longest = found[0] + found[1];
  panel.layout = BarPanel::Layout::beside;
  found = widths(svg_of(panel, 40));
  ASSERT_EQ(found.size(), 3u);
  EXPECT_NEAR(found[0], longest, 0.05);
  panel.rows.clear();
  EXPECT_EQ(xml_fault(svg_of(panel, 40)), "");
}

TEST(SvgPage, BreaksLongTextsAtSpaces) {
  SvgPage page;
  const double end = page.lines_of_text(0, 100, "", "one two three four", 9);
  const std::string svg = page.document("text", end);
  EXPECT_THAT(svg, AllOf(HasSubstr(">one two</text>"), HasSubstr(">three</text>"), HasSubstr(">four</text>")));
  EXPECT_EQ(page.lines_of_text(0, 0, "", "word_without_a_space", 4), end - 100 - 2 * (end - 100) / 3);
}

}  // namespace test_chart_panel
}  // namespace aloni::tools
