#include <aloni/tools/progress.hpp>

#include <gmock/gmock.h>

namespace aloni::tools {
namespace test_progress {

const std::vector<std::string> parts{" 43 %", "0:12 left", "8123 samples/s", "loss 0.2134", "epoch 2/5"};

TEST(ClockTime, ReadsLikeAClock) {
  EXPECT_EQ(clock_time(0), "0:00");
  EXPECT_EQ(clock_time(7.4), "0:07");
  EXPECT_EQ(clock_time(187), "3:07");
  EXPECT_EQ(clock_time(3729), "1:02:09");
  EXPECT_EQ(clock_time(-1), "-:--");
  EXPECT_EQ(clock_time(1e300), "-:--");
  EXPECT_EQ(clock_time(0.0 / 0.0), "-:--");
}

TEST(FitLine, IsNeverWiderThanItMayBe) {
  for (int width = -3; width <= 200; ++width) {
    EXPECT_LE(fit_line(0.43, parts, width).size(), static_cast<std::size_t>(std::max(width, 0))) << width;
  }
}

TEST(FitLine, KeepsTheMostImportantParts) {
  EXPECT_EQ(fit_line(0.43, parts, 4), "");
  EXPECT_EQ(fit_line(0.43, parts, 5), " 43 %");
  EXPECT_EQ(fit_line(0.43, parts, 16), " 43 %  0:12 left");
  EXPECT_EQ(fit_line(0.43, parts, 32), " 43 %  0:12 left  8123 samples/s");
}

TEST(FitLine, FillsTheRestWithABar) {
  const std::string line = fit_line(0.5, parts, 100);
  EXPECT_THAT(line, testing::StartsWith("[####"));
  EXPECT_EQ(std::count(line.begin(), line.end(), '#'), std::count(line.begin(), line.end(), '.') - 1);  // and "0.2134"
  EXPECT_THAT(fit_line(0, parts, 100), testing::StartsWith("[."));
  EXPECT_THAT(fit_line(1, parts, 100), testing::HasSubstr("#]"));
  EXPECT_THAT(fit_line(7, parts, 100), testing::HasSubstr("#]"));
  EXPECT_THAT(fit_line(0.0 / 0.0, parts, 100), testing::StartsWith("[."));
}

TEST(Progress, SaysNothingWhenTold) {
  testing::internal::CaptureStderr();
  {
    Progress progress(ProgressStyle::none);
    progress.show(0.5, parts);
    progress.clear();
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Progress, PlainWaitsBeforeItsFirstLine) {
  testing::internal::CaptureStderr();
  {
    Progress progress(ProgressStyle::plain);
    EXPECT_FALSE(progress.due());
    progress.show(0.5, parts);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Progress, LineIsTakenAwayAtTheEnd) {
  testing::internal::CaptureStderr();
  {
    Progress progress(ProgressStyle::line);
    EXPECT_TRUE(progress.due());
    progress.show(0.5, parts);
    EXPECT_FALSE(progress.due());
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, testing::HasSubstr(" 43 %"));
  EXPECT_THAT(text, testing::EndsWith("\r\x1b[K"));
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

}  // namespace test_progress
}  // namespace aloni::tools
