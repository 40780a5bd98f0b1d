// The gradient of filters as matrix products, against the definition: random problems, memory with and without gaps.
#include <aloni/nn/local/convolution_choice.hpp>
#include <aloni/nn/local/detail/filter_products.hpp>

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

namespace aloni::nn::local::detail {
namespace test_filter_products {

using Exec = Kokkos::DefaultHostExecutionSpace;

int products = 0;  // calls of add_product, in tests with one thread

void add_product(Index m, Index n, Index k, const float* a, Index a_stride, const float* b, Index b_stride, float* c,
                 Index c_stride) {
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < n; ++j)
      for (Index l = 0; l < k; ++l) c[i * c_stride + j] += a[l * a_stride + i] * b[l * b_stride + j];
}
void count_product(Index m, Index n, Index k, const float* a, Index a_stride, const float* b, Index b_stride, float* c,
                   Index c_stride) {
  ++products;
  add_product(m, n, k, a, a_stride, b, b_stride, c, c_stride);
}

/// Small integers in memory with a gap behind each pixel, row, plane or sample.
struct Memory {
  std::vector<float> values;
  std::array<Index, 4> strides{};

  Memory(std::mt19937& random, Index samples, const std::array<Index, 3>& pixels, Index channels, bool gaps) {
    const auto gap = [&] { return gaps && random() % 2 == 0 ? static_cast<Index>(random() % 4) : 0; };
    strides[3] = channels + gap();
    strides[2] = pixels[2] * strides[3] + gap();
    strides[1] = pixels[1] * strides[2] + gap();
    strides[0] = pixels[0] * strides[1] + gap();
    values.resize(static_cast<std::size_t>(samples * strides[0]));
    for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 7) - 3);
  }
  Pixels pixels() const { return {values.data(), strides}; }
};

PaddedProblem random_problem(std::mt19937& random) {
  const auto pick = [&](Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random); };
  const Index most_taps = pick(0, 2) == 0 ? 1 : 3;
  PaddedProblem p{.samples = pick(1, 3), .channels = pick(1, 40), .filters = pick(1, 40)};
  for (std::size_t s = 0; s < 3; ++s) {
    p.kernel[s] = pick(1, most_taps);
    p.stride[s] = pick(0, 2) == 0 ? pick(2, 3) : 1;
    p.dilation[s] = pick(1, 2);
    const Index reach = (p.kernel[s] - 1) * p.dilation[s];
    p.padding_before[s] = pick(0, reach);
    p.padding_after[s] = pick(0, reach);
    p.output[s] = pick(1, 6);
    p.input[s] = (p.output[s] - 1) * p.stride[s] + reach + 1 - p.padding_before[s] - p.padding_after[s];
    if (p.input[s] >= 1) continue;
    p.padding_before[s] = p.padding_after[s] = 0;
    p.input[s] = (p.output[s] - 1) * p.stride[s] + reach + 1;
  }
  return p;
}

std::vector<float> gradient(const PaddedProblem& p, const Memory& x, const Memory& dy) {
  std::vector<float> dw;
  for (Index f = 0; f < p.filters; ++f)
    for (Index kd = 0; kd < p.kernel[0]; ++kd)
      for (Index kh = 0; kh < p.kernel[1]; ++kh)
        for (Index kw = 0; kw < p.kernel[2]; ++kw)
          for (Index c = 0; c < p.channels; ++c) {
            float sum = 0;
            for (Index n = 0; n < p.samples; ++n)
              for (Index d = 0; d < p.output[0]; ++d)
                for (Index h = 0; h < p.output[1]; ++h)
                  for (Index w = 0; w < p.output[2]; ++w) {
                    const Index id = d * p.stride[0] + kd * p.dilation[0] - p.padding_before[0];
                    const Index ih = h * p.stride[1] + kh * p.dilation[1] - p.padding_before[1];
                    const Index iw = w * p.stride[2] + kw * p.dilation[2] - p.padding_before[2];
                    if (id < 0 || id >= p.input[0] || ih < 0 || ih >= p.input[1] || iw < 0 || iw >= p.input[2])
                      continue;
                    sum += pixel_at(dy.pixels(), n, d, h, w)[f] * pixel_at(x.pixels(), n, id, ih, iw)[c];
                  }
            dw.push_back(sum);
          }
  return dw;
}

TEST(FilterProducts, AgreeWithTheDefinition) {
  const Exec exec;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const PaddedProblem p = random_problem(random);
    const bool gaps = random() % 2 == 0;
    const Memory x(random, p.samples, p.input, p.channels, gaps), dy(random, p.samples, p.output, p.filters, gaps);
    const std::vector<float> expected = gradient(p, x, dy);
    std::vector<float> dw(expected.size(), 7);
    set_filter_products(exec, p, add_product, x.pixels(), dy.pixels(), dw.data());
    exec.fence("test: gradient");
    ASSERT_EQ(dw, expected) << "seed " << seed;

    std::vector<float> sums(static_cast<std::size_t>(p.filters), 7), all(sums.size(), 0);
    sum_pixels(exec, p, dy.pixels(), sums.data());
    exec.fence("test: sums");
    for (Index n = 0; n < p.samples; ++n)
      for (Index d = 0; d < p.output[0]; ++d)
        for (Index h = 0; h < p.output[1]; ++h)
          for (Index w = 0; w < p.output[2]; ++w)
            for (std::size_t f = 0; f < all.size(); ++f) all[f] += pixel_at(dy.pixels(), n, d, h, w)[f];
    ASSERT_EQ(sums, all) << "seed " << seed;
  }
}

// Otherwise oneDNN would multiply narrow matrices for each row of four pixels.
TEST(FilterProducts, OfOneTapAreOneProductWhereRowsContinue) {
  std::mt19937 random(1);
  PaddedProblem p{.samples = 3, .channels = 5, .filters = 6, .input = {2, 4, 4}, .output = {2, 4, 4}};
  const Memory x(random, 3, p.input, 5, false), dy(random, 3, p.output, 6, false);
  std::vector<float> dw(30);
  products = 0;
  FilterProducts(p, count_product, x.pixels(), dy.pixels(), dw.data())(0, 6, 0, 5);
  EXPECT_EQ(products, 1);
  EXPECT_EQ(dw, gradient(p, x, dy));
  Memory with_gaps = x;
  with_gaps.strides[0] += 5;
  with_gaps.values.resize(static_cast<std::size_t>(3 * with_gaps.strides[0]));
  products = 0;
  FilterProducts(p, count_product, with_gaps.pixels(), dy.pixels(), dw.data())(0, 6, 0, 5);
  EXPECT_EQ(products, 3);  // samples do not continue
  EXPECT_EQ(dw, gradient(p, with_gaps, dy));
}

TEST(FilterProducts, PayForOneTapAndForLongRowsOfManyChannels) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "oneDNN has no fast products here";
#endif
  const auto pay = [](Index channels, Index filters, Index row, Index kernel, Index stride, Index groups = 1) {
    return multiplies_for_filters({.samples = 1,
                                   .channels = channels,
                                   .filters = filters,
                                   .groups = groups,
                                   .input = {1, row * stride, row * stride},
                                   .output = {1, row, row},
                                   .kernel = {1, kernel, kernel},
                                   .stride = {1, stride, stride},
                                   .offset = {0, -kernel / 2, -kernel / 2}},
                                  ElementType::float32);
  };
  EXPECT_TRUE(pay(3, 8, 4, 1, 1));
  EXPECT_TRUE(pay(128, 128, 256, 3, 1));
  EXPECT_TRUE(pay(128, 160, 32, 3, 2));
  EXPECT_FALSE(pay(128, 128, 32, 3, 1));
  EXPECT_FALSE(pay(18, 128, 256, 5, 2));
  EXPECT_FALSE(pay(3, 8, 4, 1, 2));
  EXPECT_FALSE(pay(128, 128, 256, 1, 1, 128));
}

}  // namespace test_filter_products
}  // namespace aloni::nn::local::detail
