#include "svg_text.hpp"

#include <aloni/tools/calibration_drawing.hpp>

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace aloni::tools {
namespace test_calibration_drawing {

using svg_text::count;
using svg_text::xml_fault;
using testing::AllOf;
using testing::HasSubstr;

CommunicationTimes row(const char* operation, const char* method, const char* memory) {
  CommunicationTimes row{.operation = operation, .method = method, .memory = memory};
  for (std::size_t bytes = 256; bytes <= std::size_t{1} << 20; bytes *= 4) {
    const double seconds = 1e-6 + 1e-10 * static_cast<double>(bytes);
    row.times.push_back({.bytes = bytes, .seconds = 1.1 * seconds, .predicted = seconds});
  }
  row.times.back().left_out = true;
  return row;
}

TEST(CalibrationDrawing, HasAChartForEachOperationAndDotsForEachTime) {
  const std::vector<CommunicationTimes> all{row("message", "send", "private"), row("message", "send", "shared"),
                                            row("all_reduce", "recursive_doubling", "private"),
                                            row("all_to_all", "bruck", "")};
  const std::string svg = to_svg("2 ranks of <a machine>", all);
  EXPECT_EQ(xml_fault(svg), "");
  for (const char* title : {"message", "all reduce", "all to all"})
    EXPECT_EQ(count(svg, ">" + std::string(title) + "</text>"), 1u) << title;
  for (const char* line : {"send, private", "send, shared", "recursive doubling, private", "bruck"}) {
    EXPECT_EQ(count(svg, "<title>" + std::string(line) + ", "), 7u) << line;
    EXPECT_EQ(count(svg, ">" + std::string(line) + "</text>"), 1u) << line;  // in the legend
  }
  EXPECT_EQ(count(svg, " hollow\""), all.size());
  EXPECT_EQ(count(svg, ">size (logarithmic)</text>"), 3u);
  EXPECT_EQ(count(svg, ">time (logarithmic)</text>"), 3u);
  EXPECT_THAT(svg, AllOf(HasSubstr("2 ranks of &lt;a machine&gt;"), HasSubstr(">256 B</text>"),
                         HasSubstr("<title>bruck, 1 MiB: 116 us</title>")));
}

TEST(CalibrationDrawing, LeavesOutTimesThatAreNotKnown) {
  std::vector<CommunicationTimes> all{row("all_gather", "ring", "private")};
  for (CommunicationTimes::Time& time : all[0].times) time.predicted = 0;  // too many ranks for a fit
  all[0].times[0].seconds = -1;
  all[0].times[1].bytes = 0;
  const std::string svg = to_svg("", all);
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_EQ(count(svg, "<title>ring, private, "), 5u);
}

TEST(CalibrationDrawing, SaysWhyThereAreNoTimes) {
  const std::string svg = to_svg("1 rank", std::vector<CommunicationTimes>{});
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_THAT(svg, AllOf(HasSubstr("at least two ranks"), HasSubstr("--resume")));
}

}  // namespace test_calibration_drawing
}  // namespace aloni::tools
