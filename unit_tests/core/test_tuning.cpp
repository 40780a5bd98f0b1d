#include <aloni/core/comm/tuning.hpp>
#include <aloni/core/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace test_tuning {

using namespace aloni::comm;
using testing::HasSubstr;

Tuning example() {
  return {.ranks = 4,
          .nodes = 2,
          .latency = 1e-6,
          .seconds_per_byte = 1e-10,
          .combine_seconds_per_byte = 2e-11,
          .measurements = {{AllReduceAlgorithm::ring, 1000, 1e-5},
                           {AllReduceAlgorithm::ring, 4000, 4e-5, 512},
                           {AllReduceAlgorithm::direct, 1000, 2e-6}}};
}

TEST(Tuning, IsUnchangedAfterWritingAndParsing) {
  const Tuning t = parse_tuning(to_text(example()));
  EXPECT_EQ(t.ranks, 4);
  EXPECT_EQ(t.nodes, 2);
  EXPECT_DOUBLE_EQ(t.latency, 1e-6);
  EXPECT_DOUBLE_EQ(t.combine_seconds_per_byte, 2e-11);
  ASSERT_EQ(t.measurements.size(), 3u);
  EXPECT_EQ(t.measurements[2].algorithm, AllReduceAlgorithm::direct);
  EXPECT_EQ(to_text(t), to_text(example()));
}

TEST(Tuning, TakesThePartSizeOfTheLargestMeasuredSizeNotAbove) {
  const Tuning t = parse_tuning(to_text(example()));
  EXPECT_EQ(t.part_bytes(AllReduceAlgorithm::ring, 999), 0u);
  EXPECT_EQ(t.part_bytes(AllReduceAlgorithm::ring, 3999), 0u);
  EXPECT_EQ(t.part_bytes(AllReduceAlgorithm::ring, 1 << 20), 512u);
  EXPECT_EQ(t.part_bytes(AllReduceAlgorithm::rabenseifner, 1 << 20), 0u);
}

TEST(Tuning, InterpolatesBetweenMeasuredSizesAndGrowsAboveThem) {
  const Tuning t = example();
  EXPECT_DOUBLE_EQ(t.measured_seconds(AllReduceAlgorithm::ring, 1000), 1e-5);
  EXPECT_NEAR(t.measured_seconds(AllReduceAlgorithm::ring, 2000), 2e-5, 1e-12);
  EXPECT_NEAR(t.measured_seconds(AllReduceAlgorithm::ring, 40'000), 4e-4, 1e-12);
  EXPECT_DOUBLE_EQ(t.measured_seconds(AllReduceAlgorithm::ring, 8), 1e-5) << "the latency does not shrink";
  EXPECT_LT(t.measured_seconds(AllReduceAlgorithm::rabenseifner, 8), 0);
}

TEST(Tuning, NamesTheLineOfAnErrorInAFile) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      (void)parse_tuning(text);
    } catch (const aloni::InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  const auto refusal_in_file = [](const std::string& text) -> std::string {
    try {
      (void)parse_tuning(text, "my.tuning");
    } catch (const aloni::InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  const std::string good = to_text(example());
  for (const std::string line : {"all_reduce star 10 1 0",
                                 "all_reduce automatic 10 1 0",
                                 "all_reduce ring -10 1 0",
                                 "all_reduce ring 10 1 -1",
                                 "all_reduce ring 10 -1 0",
                                 "all_reduce ring 1e3 1 0",
                                 "all_reduce ring 99999999999999999999 1 0",
                                 "all_reduce ring 10 inf 0",
                                 "ranks 2.9",
                                 "ranks -2",
                                 "ranks 0",
                                 "ranks 4294967298",
                                 "ranks 2x",
                                 "nodes 1.5",
                                 "nodes 0",
                                 "latency nan",
                                 "latency 1e999",
                                 "latency",
                                 "latency 1\rx",
                                 "",
                                 "\033[2J 1"}) {
    const std::string text = refusal_in_file(good + line + "\n");
    EXPECT_THAT(text, HasSubstr("my.tuning:10")) << line;
    EXPECT_TRUE(std::ranges::all_of(text, [](unsigned char c) { return c >= 0x20 && c != 0x7f; })) << line;
  }
  EXPECT_THAT(refusal(good + "all_reduce automatic 10 1 0\n"), HasSubstr("recursive_doubling"));
  EXPECT_THAT(refusal(""), HasSubstr("line 1"));
  EXPECT_THAT(refusal("something\n"), HasSubstr("line 1"));
  EXPECT_THAT(refusal("aloni tuning 2\n"), HasSubstr("complete file"));
  EXPECT_THAT(refusal(good + "colour 3\n"), HasSubstr("line 10"));
  EXPECT_THAT(refusal(good + "all_reduce ring 10 1\n"), HasSubstr("line 10"));
  EXPECT_THAT(refusal(good + "all_reduce star 10 1 0\n"), HasSubstr("star"));
  EXPECT_THAT(refusal(good + "latency -1\n"), HasSubstr("negative"));
  EXPECT_THAT(refusal(good + "latency 1 2\n"), HasSubstr("line 10"));
}

}  // namespace test_tuning
