#include <aloni/tools/markup_text.hpp>
#include <aloni/tools/report_chart.hpp>
#include <aloni/tools/report_page.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace aloni::tools {
namespace test_report_page {

using testing::HasSubstr;
using testing::Not;

ReportPage example() {
  ReportPage page;
  page.title = "lenet5 </script><b>";
  page.subtitle = "61,706 parameters, 2 ranks";
  page.tiles = {{"loss", "0.0312"}, {"test accuracy", "99.02 %"}, {"speed", "12,300 samples/s"}, {"step", "5.2 ms"}};
  for (int i = 1; i <= 5000; ++i) {
    page.losses.push_back(2.3 * std::exp(-i / 700.0) + 0.02 + 0.01 * std::sin(i));
    page.rates.push_back(0.05 * (1 - i / 5000.0));
  }
  for (int e = 1; e <= 5; ++e) page.epochs.push_back({1000 * e, 1.0 / e, {{"test accuracy", 0.99 - 0.1 / e}}});
  page.seconds = {{"compute", 12.5}, {"halo", 1.25}, {"collective", 2.5}, {"input", 0.5}};
  page.measured_bytes = 52 << 20;
  page.predicted_bytes = 50 << 20;
  page.layers = {{.name = "conv1",
                  .operation = "convolution",
                  .grid = "h2",
                  .ghosted = {{64, 1, 16, 28, 1}},
                  .flops = 1.5e9,
                  .halo_bytes = 14336,
                  .messages = 2,
                  .memory_bytes = 1 << 20}};
  for (int i = 0; i < 12; ++i) {
    ReportPage::Picture picture{"input", 28, 27};
    for (int p = 0; p < 28 * 27; ++p)
      for (int c = 0; c < 3; ++c) picture.pixels.push_back(static_cast<std::uint8_t>(p * (c + i)));
    page.samples.push_back({{picture}, "predicted 7: wrong, is 1 & <2>", i != 4});
  }
  page.configuration = {{"--model", "lenet5"}, {"--batch", "64"}};
  return page;
}

nlohmann::json data_of(const std::string& html) {
  const std::string start = "id=\"aloni-data\">";
  const auto begin = html.find(start) + start.size();
  return nlohmann::json::parse(html.substr(begin, html.find("</script>", begin) - begin));
}

TEST(ReportPage, ShowsSamplesWithTextBesideTheColour) {
  ReportPage page = example();
  const std::string html = to_html(page);
  EXPECT_NE(html.find("predicted 7: wrong, is 1 &amp; &lt;2&gt;"), std::string::npos);
  EXPECT_NE(html.find("class=\"sample wrong\""), std::string::npos);
  EXPECT_EQ(html.find("samples wide"), std::string::npos) << "one picture for each sample";
  page.samples.resize(1);
  page.samples[0].right.reset();
  page.samples[0].pictures.push_back(page.samples[0].pictures[0]);
  page.samples[0].pictures[1].name = "truth";
  const std::string three = to_html(page);
  EXPECT_NE(three.find("samples wide"), std::string::npos);
  EXPECT_NE(three.find(">truth<"), std::string::npos);
  EXPECT_EQ(three.find("sample wrong\""), std::string::npos);
}

TEST(ReportPage, HoldsItsNumbersForPrograms) {
  const ReportPage page = example();
  const auto data = data_of(to_html(page));
  EXPECT_EQ(data["losses"].size(), 1000u);
  EXPECT_EQ(data["losses"].front()[0], 1);
  EXPECT_EQ(data["losses"].back()[0], 5000);
  EXPECT_EQ(data["losses"].back()[1], page.losses.back());
  EXPECT_EQ(data["epochs"][4]["metrics"]["test accuracy"], page.epochs[4].metrics[0].second);
  EXPECT_EQ(data["seconds"]["halo"], 1.25);
  EXPECT_EQ(data["memory"]["measured"], 52 << 20);
  EXPECT_EQ(data["configuration"]["--batch"], "64");
}

TEST(ReportPage, IsOneFileThatNeedsNoOther) {
  const std::string html = to_html(example());
  EXPECT_LT(html.size(), 300'000u);
  EXPECT_THAT(html, Not(HasSubstr("http")));
  EXPECT_THAT(html, Not(HasSubstr("<b>lenet5")));
  EXPECT_THAT(html, HasSubstr("lenet5 &lt;/script&gt;"));
  if (const char* const folder = std::getenv("ALONI_KEEP_REPORT"))
    std::ofstream(std::string(folder) + "/report.html") << html;
}

TEST(ReportPage, ShowsValuesThatAreNotFiniteAsGaps) {
  ReportPage page = example();
  page.losses = {1, std::numeric_limits<double>::quiet_NaN(), 3};
  const std::string html = to_html(page);
  EXPECT_TRUE(data_of(html)["losses"][1][1].is_null());
  EXPECT_THAT(html, Not(HasSubstr("nan")));
  page.losses = {std::numeric_limits<double>::infinity()};
  EXPECT_THAT(to_html(page), HasSubstr("No finite values"));
  page.losses = {2.5};
  page.epochs.clear();
  EXPECT_THAT(to_html(page), Not(HasSubstr("nan")));
}

TEST(ReportChart, HasRoundNumbersOnItsAxes) {
  EXPECT_EQ(axis_values(0, 6), (std::vector<double>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(axis_values(0.3, 11), (std::vector<double>{2, 4, 6, 8, 10}));
  for (const double most : {1e-9, 0.37, 1.0, 17.0, 123456.0, 1e12}) {
    const auto values = axis_values(0, most);
    EXPECT_GE(values.size(), 3u) << most;
    EXPECT_LE(values.size(), 7u) << most;
    EXPECT_GE(values.front(), 0);
    EXPECT_LE(values.back(), most * (1 + 1e-6));
  }
}

TEST(ReportChart, HasPowersOfTenOnLogarithmicAxes) {
  const ChartAxis axis = axis_over(2e-6, 0.3, ChartScale::logarithmic);
  EXPECT_TRUE(axis.logarithmic);
  const std::vector<double> values = axis.values();
  ASSERT_EQ(values.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(values[i] / std::pow(10, static_cast<double>(i) - 5), 1, 1e-9);
  EXPECT_DOUBLE_EQ(axis.position(2e-6), 0);
  EXPECT_DOUBLE_EQ(axis.position(0.3), 1);
  EXPECT_NEAR(axis.position(std::sqrt(2e-6 * 0.3)), 0.5, 1e-9);
  EXPECT_EQ(axis_over(1, 30, ChartScale::logarithmic).values(), (std::vector<double>{1, 2, 5, 10, 20}));
}

TEST(ReportChart, IsLogarithmicOnlyOverWideRangesAboveZero) {
  EXPECT_FALSE(axis_over(0, 100, ChartScale::logarithmic).logarithmic);
  EXPECT_FALSE(axis_over(1, 19, ChartScale::logarithmic).logarithmic);
  EXPECT_TRUE(axis_over(1, 19, ChartScale::logarithmic, 4).logarithmic);
  EXPECT_FALSE(axis_over(1, 1000, ChartScale::linear).logarithmic);
  EXPECT_EQ(axis_over(1, 10, ChartScale::linear).least, 0);
  EXPECT_EQ(axis_over(9, 10, ChartScale::linear).least, 9);
  EXPECT_LT(axis_over(3, 3, ChartScale::logarithmic).least, 3);
}

TEST(ReportChart, KeepsTheFirstAndTheLastStep) {
  for (const std::size_t count : {1u, 2u, 999u, 1000u, 1001u, 123'456u}) {
    const auto chosen = chosen_steps(count);
    EXPECT_LE(chosen.size(), 1000u);
    EXPECT_EQ(chosen.front(), 0u);
    EXPECT_EQ(chosen.back(), count - 1);
    EXPECT_TRUE(std::is_sorted(chosen.begin(), chosen.end()));
  }
  EXPECT_TRUE(chosen_steps(0).empty());
}

TEST(Base64, EncodesEveryRestOfThreeBytes) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foobar\xff"), "Zm9vYmFy/w==");
}

}  // namespace test_report_page
}  // namespace aloni::tools
