// Problems of convolutions as numbers and texts, and their distances.
#include "support/random_cases.hpp"

#include <aloni/nn/local/convolution_times.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn::local {
namespace test_convolution_times {

ConvolutionCase random_case(std::mt19937& random) {
  const auto dice = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  ConvolutionCase c{.pass = static_cast<ConvolutionPass>(dice(0, 2)),
                    .type = static_cast<ElementType>(dice(0, 2)),
                    .input_gaps = dice(0, 1) == 1,
                    .output_gaps = dice(0, 1) == 1};
  ConvolutionProblem& p = c.problem;
  p.groups = dice(0, 1) == 0 ? 1 : dice(2, 9);
  p.samples = dice(0, 100);
  p.channels = p.groups * dice(0, 40);
  p.filters = p.groups * dice(0, 40);
  for (std::size_t d = 0; d < 3; ++d) {
    p.input[d] = dice(0, 1000);
    p.output[d] = dice(0, 1000);
    p.kernel[d] = dice(1, 9);
    p.stride[d] = dice(1, 3);
    p.dilation[d] = dice(1, 3);
    p.offset[d] = dice(-9, 9);
  }
  return c;
}

const std::string text_of_a_case =
    "forward float32 4x(1,34,34)x64 -> (1,32,32)x48, groups 2, kernel (1,3,3), stride (1,1,1), dilation (1,1,1), "
    "offset (0,0,-1), input with gaps";

TEST(ConvolutionTimes, NumbersAndTextsGiveTheCaseBack) {
  for (int seed = 0; seed < aloni::test::random_cases(300); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(static_cast<unsigned>(seed));
    const ConvolutionCase c = random_case(random);
    EXPECT_EQ(convolution_case_of(numbers_of(c)), c);
    EXPECT_EQ(parse_convolution_case(to_string(c)), c) << to_string(c);
  }
  const auto parsed = parse_convolution_case(text_of_a_case);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(to_string(*parsed), text_of_a_case);
  EXPECT_EQ(parsed->problem.filters, 48);
  EXPECT_EQ(parsed->problem.offset[2], -1);
  EXPECT_TRUE(parsed->input_gaps);
  EXPECT_FALSE(parsed->output_gaps);
}

TEST(ConvolutionTimes, RefuseEveryDamagedText) {
  for (std::size_t i = 0; i < text_of_a_case.size(); ++i) {
    std::string without = text_of_a_case, doubled = text_of_a_case;
    without.erase(i, 1);
    doubled.insert(i, "~");
    EXPECT_FALSE(parse_convolution_case(doubled)) << doubled;
    // Without a digit it may be the text of another case.
    if (const auto parsed = parse_convolution_case(without)) {
      EXPECT_EQ(to_string(*parsed), without);
    }
    const bool is_without_gaps = i == text_of_a_case.find(", input with gaps");
    EXPECT_EQ(parse_convolution_case(text_of_a_case.substr(0, i)).has_value(), is_without_gaps) << i;
  }
  for (const char* text :
       {"", "forward",
        "sideways float32 1x(1,1,1)x1 -> (1,1,1)x1, kernel (1,1,1), stride (1,1,1), dilation (1,1,1), offset (0,0,0)",
        "forward float32 1x(1,1,1)x3 -> (1,1,1)x4, groups 2, kernel (1,1,1), stride (1,1,1), dilation (1,1,1), offset "
        "(0,0,0)",
        "forward float32 01x(1,1,1)x1 -> (1,1,1)x1, kernel (1,1,1), stride (1,1,1), dilation (1,1,1), offset (0,0,0)",
        "forward float32 1x(1,1,1)x1 -> (1,1,1)x1, kernel (0,1,1), stride (1,1,1), dilation (1,1,1), offset (0,0,0)",
        "forward float32 99999999999999999999x(1,1,1)x1 -> (1,1,1)x1, kernel (1,1,1), stride (1,1,1), dilation "
        "(1,1,1), "
        "offset (0,0,0)"})
    EXPECT_FALSE(parse_convolution_case(text)) << text;
}

TEST(ConvolutionTimes, RefuseNumbersThatAreNoCase) {
  const MeasuredImplementations::Problem good = numbers_of(*parse_convolution_case(text_of_a_case));
  ASSERT_TRUE(convolution_case_of(good));
  for (const std::size_t size : {std::size_t{0}, good.size() - 1, good.size() + 1}) {
    MeasuredImplementations::Problem other = good;
    other.resize(size);
    EXPECT_FALSE(convolution_case_of(other)) << size;
  }
  for (std::size_t i = 0; i + 3 < good.size(); ++i) {  // offsets may be negative
    MeasuredImplementations::Problem other = good;
    other[i] = -1;
    EXPECT_FALSE(convolution_case_of(other)) << i;
  }
}

TEST(ConvolutionTimes, NamesOfImplementations) {
  for (const auto& [text, expected] : std::vector<std::pair<std::string, ConvolutionImplementation>>{
           {"direct", {ConvolutionBackend::direct}},
           {"onednn", {ConvolutionBackend::onednn}},
           {"cudnn", {ConvolutionBackend::cudnn}},
           {"cudnn engine 0", {ConvolutionBackend::cudnn, 0}},
           {"cudnn engine 57", {ConvolutionBackend::cudnn, 57}}}) {
    EXPECT_EQ(convolution_implementation_named(text), expected) << text;
    EXPECT_EQ(to_string(expected), text);
  }
  for (const char* text : {"", "automatic", "onednn engine 3", "cudnn engine", "cudnn engine -1", "cudnn engine 03",
                           "cudnn engine 3 ", "Direct", " direct"})
    EXPECT_FALSE(convolution_implementation_named(text)) << text;
}

TEST(ConvolutionTimes, DistanceIsTheProductOfTheRatios) {
  const ConvolutionCase a = *parse_convolution_case(text_of_a_case);
  EXPECT_EQ(distance(a, a), 1);
  ConvolutionCase b = a;
  b.problem.samples = 6;
  EXPECT_EQ(distance(a, b), 1.5);
  b.problem.output[1] = 16;
  EXPECT_EQ(distance(a, b), 3);
  EXPECT_EQ(distance(b, a), 3);
  b = a;
  b.problem.offset[2] = 0;
  EXPECT_EQ(distance(a, b), 1);  // the same work
}

TEST(ConvolutionTimes, OtherKindsAreInfinitelyFar) {
  const ConvolutionCase a = *parse_convolution_case(text_of_a_case);
  const auto far = [&](const auto& change) {
    ConvolutionCase b = a;
    change(b);
    return std::isinf(distance(a, b)) && std::isinf(distance(b, a));
  };
  EXPECT_TRUE(far([](ConvolutionCase& c) { c.pass = ConvolutionPass::backward_data; }));
  EXPECT_TRUE(far([](ConvolutionCase& c) { c.type = ElementType::float64; }));
  EXPECT_TRUE(far([](ConvolutionCase& c) { c.input_gaps = false; }));
  EXPECT_TRUE(far([](ConvolutionCase& c) { c.output_gaps = true; }));
  EXPECT_TRUE(far([](ConvolutionCase& c) { c.problem.kernel[1] = 5; }));
  EXPECT_TRUE(far([](ConvolutionCase& c) { c.problem.stride[1] = 2; }));
  EXPECT_TRUE(far([](ConvolutionCase& c) { c.problem.dilation[1] = 2; }));
  EXPECT_TRUE(far([](ConvolutionCase& c) { c.problem.groups = 1; }));
  EXPECT_TRUE(far([](ConvolutionCase& c) { c.problem.channels = 66; }));  // 33 fill no vectors, 32 do
  EXPECT_TRUE(far([](ConvolutionCase& c) { c.problem.filters = 64; }));   // and 24 do not, 32 do
  EXPECT_FALSE(far([](ConvolutionCase& c) { c.problem.samples = 1000; }));
}

}  // namespace test_convolution_times
}  // namespace aloni::nn::local
