// The vector kernels of every instruction set that this processor has, against plain loops.
#include <aloni/nn/local/detail/direct_kernels.hpp>

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace aloni::nn::local::detail {
namespace test_direct_kernels {

template <class T>
class DirectKernelsOf : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(DirectKernelsOf, Types);

template <class T>
std::vector<T> integers(std::mt19937& random, Index size) {
  std::vector<T> values(size);
  for (T& v : values) v = static_cast<T>(static_cast<int>(random() % 7) - 3);
  return values;
}

TYPED_TEST(DirectKernelsOf, RowsAgreeWithPlainLoopsAndStayInTheirRow) {
  using T = TypeParam;
  for (const auto* kernels : all_direct_kernels<T>()) {
    for (unsigned seed = 0; seed < 400; ++seed) {
      std::mt19937 random(seed);
      auto pick = [&](Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random); };
      const Index filters = pick(1, 40), padded = (filters + kernels->lanes - 1) / kernels->lanes * kernels->lanes;
      const Index terms = pick(0, 3), taps = pick(1, 3), channels = pick(0, 6), pixels = pick(1, 31);
      const Index x_pixel = pick(1, 4), x_tap = pick(1, 3);
      const Index y_pixel = pick(0, 1) == 0 ? filters : filters + pick(1, 5);
      SCOPED_TRACE(std::string(kernels->name) + ", seed " + std::to_string(seed));
      const auto x = integers<T>(random, terms * 200 + 1),
                 w = integers<T>(random, (terms * taps * channels + 1) * padded);
      auto bias = integers<T>(random, padded);
      std::vector<RowTerm<T>> rows;
      for (Index t = 0; t < terms; ++t) rows.push_back({x.data() + t * 200, w.data() + t * taps * channels * padded});
      const T canary = T(99);
      std::vector<T> y(pixels * y_pixel + 80, canary), expected = y;
      for (Index p = 0; p < pixels; ++p)
        for (Index f = 0; f < filters; ++f) {
          T sum = bias[f];
          for (Index t = 0; t < terms; ++t)
            for (Index m = 0; m < taps; ++m)
              for (Index c = 0; c < channels; ++c)
                sum += rows[t].x[p * x_pixel + m * x_tap + c] * rows[t].w[(m * channels + c) * padded + f];
          expected[40 + p * y_pixel + f] = sum;
        }
      kernels->row({.terms = rows.data(),
                    .num_terms = terms,
                    .taps = taps,
                    .channels = channels,
                    .x_pixel = x_pixel,
                    .x_tap = x_tap,
                    .w_tap = channels * padded,
                    .bias = bias.data(),
                    .filters = filters,
                    .padded = padded,
                    .y = y.data() + 40,
                    .pixels = pixels,
                    .y_pixel = y_pixel});
      ASSERT_EQ(y, expected);
    }
  }
}

TYPED_TEST(DirectKernelsOf, FilterSumsAndColumnSumsAgreeWithPlainLoops) {
  using T = TypeParam;
  for (const auto* kernels : all_direct_kernels<T>()) {
    for (unsigned seed = 0; seed < 400; ++seed) {
      std::mt19937 random(seed);
      auto pick = [&](Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random); };
      const Index padded = pick(1, 5) * kernels->lanes, values = pick(1, 40), rows = pick(0, 4), pixels = pick(1, 20);
      const Index x_pixel = pick(1, 4), dy_pixel = padded + pick(0, 3);
      SCOPED_TRACE(std::string(kernels->name) + ", seed " + std::to_string(seed));
      const auto x = integers<T>(random, rows * 200 + 1), dy = integers<T>(random, rows * pixels * dy_pixel + 1);
      std::vector<const T*> x_rows, dy_rows;
      for (Index r = 0; r < rows; ++r) {
        x_rows.push_back(x.data() + r * 200);
        dy_rows.push_back(dy.data() + r * pixels * dy_pixel);
      }
      auto sum = integers<T>(random, values * padded), column = integers<T>(random, padded);
      auto expected = sum, expected_column = column;
      for (Index r = 0; r < rows; ++r)
        for (Index p = 0; p < pixels; ++p)
          for (Index f = 0; f < padded; ++f) {
            const T d = dy_rows[r][p * dy_pixel + f];
            expected_column[f] += d;
            for (Index j = 0; j < values; ++j) expected[j * padded + f] += x_rows[r][p * x_pixel + j] * d;
          }
      FilterArguments<T> a{.x = x_rows.data(),
                           .dy = dy_rows.data(),
                           .rows = rows,
                           .pixels = pixels,
                           .x_pixel = x_pixel,
                           .dy_pixel = dy_pixel,
                           .values = values,
                           .padded = padded,
                           .sum = sum.data()};
      kernels->filter(a);
      ASSERT_EQ(sum, expected);
      a.sum = column.data();
      kernels->column_sums(a);
      ASSERT_EQ(column, expected_column);
    }
  }
}

}  // namespace test_direct_kernels
}  // namespace aloni::nn::local::detail
