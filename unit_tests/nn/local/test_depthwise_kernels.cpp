// The depthwise kernels of every instruction set that this processor has, against plain loops.
#include <aloni/nn/local/detail/depthwise_kernels.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "guarded_memory.hpp"

namespace aloni::nn::local::detail {
namespace test_depthwise_kernels {

template <class T>
class DepthwiseKernelsOf : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(DepthwiseKernelsOf, Types);

/// Small integers in memory that ends at a protected page.
template <class T>
struct Integers {
  aloni::test::GuardedMemory<T> memory;
  Index size;
  Integers(std::mt19937& random, Index n) : memory(n), size(n) {
    for (Index i = 0; i < n; ++i) memory.data()[i] = static_cast<T>(static_cast<int>(random() % 7) - 3);
  }
  T* data() const { return memory.data(); }
  std::vector<T> copy() const { return {data(), data() + size}; }
};

TYPED_TEST(DepthwiseKernelsOf, RowsAgreeWithPlainLoopsAndTouchOnlyTheirChannels) {
  using T = TypeParam;
  for (const auto* kernels : all_depthwise_kernels<T>()) {
    for (unsigned seed = 0; seed < 300; ++seed) {
      SCOPED_TRACE(std::string(kernels->name) + ", seed " + std::to_string(seed));
      std::mt19937 random(seed);
      auto pick = [&](Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random); };
      const Index channels = pick(1, 70), pixels = pick(0, 19), terms = pick(0, 3), taps = pick(0, 4);
      const Index pixel = channels + pick(0, 1) * pick(1, 5), step = pick(1, 3), tap = pick(-2, 2);
      const Index y_pixel = channels + pick(0, 1) * pick(1, 5);
      // The source row has the smallest length that the kernel needs.
      const Index least = std::min<Index>(0, (taps - 1) * tap), most = std::max<Index>(0, (taps - 1) * tap);
      const Index columns = std::max<Index>(1, (std::max<Index>(pixels, 1) - 1) * step + most - least + 1);
      const Index row = (columns - 1) * pixel + channels;
      const Integers<T> x(random, std::max<Index>(1, terms) * row),
          w(random, std::max<Index>(1, terms * taps) * channels), bias(random, channels),
          y(random, std::max<Index>(1, pixels - 1) * y_pixel + channels);
      const bool with_bias = pick(0, 1) == 1;
      std::vector<RowTerm<T>> rows;
      for (Index t = 0; t < terms; ++t) rows.push_back({x.data() + t * row, w.data() + t * taps * channels});
      auto expected = y.copy();
      for (Index p = 0; p < pixels; ++p)
        for (Index c = 0; c < channels; ++c) {
          T sum = with_bias ? bias.data()[c] : T(0);
          for (Index t = 0; t < terms; ++t)
            for (Index m = 0; m < taps; ++m)
              sum += rows[t].x[(p * step + m * tap - least) * pixel + c] * rows[t].w[m * channels + c];
          expected[p * y_pixel + c] = sum;
        }
      kernels->row({.terms = rows.data(),
                    .num_terms = terms,
                    .taps = taps,
                    .x_first = -least * pixel,
                    .x_pixel = step * pixel,
                    .x_tap = tap * pixel,
                    .w_first = 0,
                    .w_tap = channels,
                    .bias = with_bias ? bias.data() : nullptr,
                    .y = y.data(),
                    .y_pixel = y_pixel,
                    .pixels = pixels,
                    .channels = channels});
      ASSERT_EQ(y.copy(), expected);
    }
  }
}

TYPED_TEST(DepthwiseKernelsOf, FilterSumsAgreeWithPlainLoopsAndTouchOnlyTheirChannels) {
  using T = TypeParam;
  for (const auto* kernels : all_depthwise_kernels<T>()) {
    for (unsigned seed = 0; seed < 300; ++seed) {
      SCOPED_TRACE(std::string(kernels->name) + ", seed " + std::to_string(seed));
      std::mt19937 random(seed);
      auto pick = [&](Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random); };
      const Index channels = pick(1, 70), pixels = pick(1, 19), values = pick(0, 25);
      const Index x_pixel = channels + pick(0, 30), dy_pixel = channels + pick(0, 1) * pick(1, 5);
      const Index row = (pixels - 1) * x_pixel + channels;
      const Integers<T> x(random, std::max<Index>(1, values) * row), dy(random, (pixels - 1) * dy_pixel + channels),
          sums(random, (values + 1) * channels);
      std::vector<const T*> x_of;
      std::vector<T*> sums_of;
      auto expected = sums.copy();
      for (Index j = 0; j <= values; ++j) {
        if (j < values) x_of.push_back(x.data() + j * row), sums_of.push_back(sums.data() + j * channels);
        for (Index p = 0; p < pixels; ++p)
          for (Index c = 0; c < channels; ++c)
            expected[j * channels + c] += (j < values ? x_of[j][p * x_pixel + c] : T(1)) * dy.data()[p * dy_pixel + c];
      }
      kernels->filter({.x = x_of.data(),
                       .sums = sums_of.data(),
                       .values = values,
                       .dy = dy.data(),
                       .bias_sums = sums.data() + values * channels,
                       .x_pixel = x_pixel,
                       .dy_pixel = dy_pixel,
                       .pixels = pixels,
                       .channels = channels});
      ASSERT_EQ(sums.copy(), expected);
    }
  }
}

}  // namespace test_depthwise_kernels
}  // namespace aloni::nn::local::detail
