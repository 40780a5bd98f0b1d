// Pooling against plain loops that follow the definition, ties and NaN included; gradients by finite differences.
#include <aloni/core/error.hpp>
#include <aloni/nn/local/pooling.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "local_tensor.hpp"
#include "support/random_cases.hpp"

namespace aloni::test {
namespace test_local_pooling {

using namespace nn::local;
using Exec = Kokkos::DefaultExecutionSpace;

std::array<Index, 5> input_extents(const PoolingProblem& p) {
  return {p.samples, p.input[0], p.input[1], p.input[2], p.channels};
}
std::array<Index, 5> output_extents(const PoolingProblem& p) {
  return {p.samples, p.output[0], p.output[1], p.output[2], p.channels};
}

/// f(position in window, id, ih, iw) for each element of a window inside the input.
template <class F>
void for_window(const PoolingProblem& p, Index od, Index oh, Index ow, const F& f) {
  for (Index kd = 0; kd < p.window[0]; ++kd)
    for (Index kh = 0; kh < p.window[1]; ++kh)
      for (Index kw = 0; kw < p.window[2]; ++kw) {
        const Index id = od * p.stride[0] + kd + p.offset[0], ih = oh * p.stride[1] + kh + p.offset[1],
                    iw = ow * p.stride[2] + kw + p.offset[2];
        if (id < 0 || id >= p.input[0] || ih < 0 || ih >= p.input[1] || iw < 0 || iw >= p.input[2]) continue;
        f((kd * p.window[1] + kh) * p.window[2] + kw, id, ih, iw);
      }
}

PoolingProblem random_problem(std::mt19937& random) {
  auto pick = [&](Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random); };
  constexpr std::array<Index, 7> widths{1, 2, 3, 6, 16, 17, 33};
  PoolingProblem p{.samples = pick(1, 3), .channels = widths[pick(0, 6)]};
  for (int s = static_cast<int>(pick(0, 2)); s < 3; ++s) {
    p.window[s] = pick(0, 15) > 0 ? pick(1, 4) : pick(5, 8);
    p.stride[s] = pick(0, 2) > 0 ? pick(1, 4) : p.window[s];  // overlapping, touching and with gaps
    p.output[s] = pick(1, 6);
    p.offset[s] = pick(0, 3) > 0 ? -pick(0, p.window[s] - 1) : pick(-p.window[s] - 1, 2);
    p.input[s] = std::max<Index>(pick(0, 9) > 0 ? 1 : 0,
                                 (p.output[s] - 1) * p.stride[s] + p.window[s] + p.offset[s] - pick(-2, 3));
  }
  return p;
}

Placement random_placement(std::mt19937& random) {
  Placement placement;
  for (int i = 0; i < 5; ++i) {
    if (random() % 3 == 0) placement.before[i] = static_cast<Index>(random() % 3);
    if (random() % 3 == 0) placement.after[i] = static_cast<Index>(random() % 3);
  }
  placement.channels_first = random() % 6 == 0;
  return placement;
}

template <class T>
class LocalPooling : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(LocalPooling, Types);

TYPED_TEST(LocalPooling, MaxAndItsGradientAgreeWithTheDefinition) {
  using T = TypeParam;
  const Exec exec = test_space();
  const unsigned seed = test_seed();
  for (int i = 0; i < aloni::test::random_cases(200); ++i) {
    std::mt19937 random(seed + i);
    const auto p = random_problem(random);
    SCOPED_TRACE("seed " + std::to_string(seed + i) + ": " + to_string(p));
    const auto at_x = random_placement(random), at_y = random_placement(random);
    LocalTensor<T> x(input_extents(p), at_x), dx(input_extents(p), at_x), y(output_extents(p), at_y),
        dy(output_extents(p), at_y);
    LocalTensor<std::int32_t> argmax(output_extents(p), at_y);
    x.fill_integers(random, 2);  // many ties
    if (i % 4 == 0) {
      x.fill([&, n = 0]() mutable {
        return ++n % 5 == 0 ? std::numeric_limits<T>::quiet_NaN() : static_cast<T>(random() % 3);
      });
    }
    dy.fill_integers(random, 3);
    const bool relu = i % 3 == 0;
    max_pool_forward<T>(exec, p, x, y.view(), argmax, relu);
    max_pool_backward<T>(exec, p, dy, argmax, dx.view());
    wait(exec);
    y.download();
    dx.download();
    argmax.download();
    LocalTensor<T> expected_dx(input_extents(p), at_x);
    expected_dx.fill([] { return 0; });
    Index wrong = 0;
    y.for_each([&](Index n, Index od, Index oh, Index ow, Index c) {
      T best = -std::numeric_limits<T>::infinity();
      Index where = -1, d = 0, h = 0, w = 0;
      for_window(p, od, oh, ow, [&](Index k, Index id, Index ih, Index iw) {
        const T v = x(n, id, ih, iw, c);
        if (where >= 0 && (std::isnan(best) || !(v > best || std::isnan(v)))) return;
        best = v, where = k, d = id, h = ih, w = iw;
      });
      if (relu && where >= 0 && !(best > 0)) {
        if (best < 0) best = 0;
        where = -1;
      }
      if (where >= 0) expected_dx(n, d, h, w, c) += dy(n, od, oh, ow, c);
      wrong += argmax(n, od, oh, ow, c) != where;
      const T value = y(n, od, oh, ow, c);
      wrong += !(value == best || (std::isnan(value) && std::isnan(best)));
    });
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(differing_bits(expected_dx, dx), 0);
    EXPECT_EQ(y.damaged() + dx.damaged() + argmax.damaged(), 0);
    // Without argmax, as in evaluation.
    LocalTensor<T> again(output_extents(p), at_y);
    max_pool_forward<T>(exec, p, x, again.view(), {}, relu);
    wait(exec);
    again.download();
    Index different = 0;
    y.for_each([&](auto... j) { different += !(again(j...) == y(j...) || std::isnan(y(j...))); });
    EXPECT_EQ(different, 0);
    if (this->HasFailure()) break;
  }
}

TYPED_TEST(LocalPooling, AverageAgreesWithTheDefinitionForBothDivisors) {
  using T = TypeParam;
  const Exec exec = test_space();
  const unsigned seed = test_seed();
  for (int i = 0; i < aloni::test::random_cases(200); ++i) {
    std::mt19937 random(seed + i);
    const auto p = random_problem(random);
    const auto divisor = i % 2 == 0 ? AverageDivisor::window : AverageDivisor::in_domain;
    SCOPED_TRACE("seed " + std::to_string(seed + i) + ": " + to_string(p));
    const auto at_x = random_placement(random), at_y = random_placement(random);
    LocalTensor<T> x(input_extents(p), at_x), dx(input_extents(p), at_x), y(output_extents(p), at_y),
        dy(output_extents(p), at_y);
    x.fill_integers(random, 9);
    dy.fill_integers(random, 9);
    average_pool_forward<T>(exec, p, divisor, x, y.view());
    average_pool_backward<T>(exec, p, divisor, dy, dx.view());
    wait(exec);
    y.download();
    dx.download();
    LocalTensor<double> expected_dx(input_extents(p));
    expected_dx.fill([] { return 0; });
    const double near = 100 * static_cast<double>(std::numeric_limits<T>::epsilon());
    y.for_each([&](Index n, Index od, Index oh, Index ow, Index c) {
      double sum = 0;
      Index count = 0;
      for_window(p, od, oh, ow, [&](Index, Index id, Index ih, Index iw) {
        sum += static_cast<double>(x(n, id, ih, iw, c));
        ++count;
      });
      if (divisor == AverageDivisor::window) count = p.window[0] * p.window[1] * p.window[2];
      ASSERT_NEAR(static_cast<double>(y(n, od, oh, ow, c)), count > 0 ? sum / static_cast<double>(count) : 0.0, near);
      for_window(p, od, oh, ow, [&](Index, Index id, Index ih, Index iw) {
        expected_dx(n, id, ih, iw, c) += static_cast<double>(dy(n, od, oh, ow, c)) / static_cast<double>(count);
      });
    });
    dx.for_each([&](auto... j) { ASSERT_NEAR(static_cast<double>(dx(j...)), expected_dx(j...), near); });
    EXPECT_EQ(y.damaged() + dx.damaged(), 0);
  }
}

TEST(LocalPoolingByHand, TiesNaNAndWindowsWithoutElements) {
  // Window 2, stride 1 over 5 5 NaN 1 with one absent element before: windows (·,5) (5,5) (5,NaN) (NaN,1)
  const PoolingProblem p{
      .samples = 1, .channels = 1, .input = {1, 1, 4}, .output = {1, 1, 4}, .window = {1, 1, 2}, .offset = {0, 0, -1}};
  LocalTensor<double> x({1, 1, 1, 4, 1}), y({1, 1, 1, 4, 1}), dy({1, 1, 1, 4, 1}), dx({1, 1, 1, 4, 1});
  LocalTensor<std::int32_t> argmax({1, 1, 1, 4, 1});
  const std::array<double, 4> values{5, 5, std::nan(""), 1};
  x.fill([&, i = 0]() mutable { return values[i++]; });
  dy.fill([&, i = 0]() mutable { return std::pow(10, i++); });
  max_pool_forward<double>(test_space(), p, x, y.view(), argmax);
  max_pool_backward<double>(test_space(), p, dy, argmax, dx.view());
  wait(test_space());
  y.download();
  argmax.download();
  dx.download();
  EXPECT_EQ(y(0, 0, 0, 0, 0), 5);
  EXPECT_EQ(y(0, 0, 0, 1, 0), 5);
  EXPECT_TRUE(std::isnan(y(0, 0, 0, 2, 0)));
  EXPECT_TRUE(std::isnan(y(0, 0, 0, 3, 0)));
  const std::array<int, 4> where{1, 0, 1, 0};
  const std::array<double, 4> gradient{11, 0, 1100, 0};
  for (Index i = 0; i < 4; ++i) {
    EXPECT_EQ(argmax(0, 0, 0, i, 0), where[i]) << i;
    EXPECT_EQ(dx(0, 0, 0, i, 0), gradient[i]) << i;
  }

  const PoolingProblem outside{
      .samples = 1, .channels = 1, .input = {1, 1, 4}, .output = {1, 1, 1}, .window = {1, 1, 2}, .offset = {0, 0, -7}};
  LocalTensor<double> one({1, 1, 1, 1, 1});
  LocalTensor<std::int32_t> where_one({1, 1, 1, 1, 1});
  max_pool_forward<double>(test_space(), outside, x, one.view(), where_one);
  max_pool_backward<double>(test_space(), outside, one, where_one, dx.view());
  wait(test_space());
  one.download();
  where_one.download();
  dx.download();
  EXPECT_EQ(one(0, 0, 0, 0, 0), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(where_one(0, 0, 0, 0, 0), -1);
  for (Index i = 0; i < 4; ++i) EXPECT_EQ(dx(0, 0, 0, i, 0), 0);
}

TEST(LocalPoolingGradient, FiniteDifferencesWithOverlappingWindows) {
  const Exec exec = test_space();
  std::mt19937 random(test_seed());
  const PoolingProblem p{.samples = 2,
                         .channels = 2,
                         .input = {1, 6, 5},
                         .output = {1, 3, 3},
                         .window = {1, 3, 3},
                         .stride = {1, 2, 2},
                         .offset = {0, -1, -1}};
  LocalTensor<double> x(input_extents(p)), dx(input_extents(p)), y(output_extents(p)), dy(output_extents(p));
  LocalTensor<std::int32_t> argmax(output_extents(p));
  for (int kind = 0; kind < 3; ++kind) {
    // Distinct values, further apart than the step, so that no maximum changes its place.
    std::vector<double> values(2 * 2 * 6 * 5);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.1 * static_cast<double>(i);
    std::shuffle(values.begin(), values.end(), random);
    x.fill([&, i = 0]() mutable { return values[i++]; });
    dy.fill_reals(random);
    auto forward = [&] {
      if (kind == 0) {
        max_pool_forward<double>(exec, p, x, y.view(), argmax);
      } else {
        average_pool_forward<double>(exec, p, kind == 1 ? AverageDivisor::window : AverageDivisor::in_domain, x,
                                     y.view());
      }
      wait(exec);
      y.download();
      double sum = 0;
      y.for_each([&](auto... i) { sum += y(i...) * dy(i...); });
      return sum;
    };
    forward();
    if (kind == 0) {
      max_pool_backward<double>(exec, p, dy, argmax, dx.view());
    } else {
      average_pool_backward<double>(exec, p, kind == 1 ? AverageDivisor::window : AverageDivisor::in_domain, dy,
                                    dx.view());
    }
    wait(exec);
    dx.download();
    constexpr double step = 0.01;
    x.for_each([&](auto... i) {
      const double before = x(i...);
      x(i...) = before + step;
      x.upload();
      const double above = forward();
      x(i...) = before - step;
      x.upload();
      const double below = forward();
      x(i...) = before;
      x.upload();
      EXPECT_NEAR((above - below) / (2 * step), dx(i...), 1e-10) << "kind " << kind;
    });
  }
}

TEST(LocalGlobalAverage, SumsWithScaleAndSpreadsBack) {
  const Exec exec = test_space();
  std::mt19937 random(test_seed());
  Placement ghosted;
  ghosted.before = {0, 0, 1, 1, 0};
  ghosted.after = {0, 0, 2, 1, 0};
  // Hosts sum up to 512 channels together; few channels, or channels first, one by one.
  for (const Index channels : {1, 5, 8, 16, 23, 64, 130, 515}) {
    for (const bool channels_first : {false, true}) {
      SCOPED_TRACE(std::to_string(channels) + (channels_first ? " channels first" : " channels"));
      ghosted.channels_first = channels_first;
      LocalTensor<float> x({3, 2, 3, 4, channels}, ghosted), dx({3, 2, 3, 4, channels}, ghosted);
      LocalTensor<float> y({3, 1, 1, 1, channels}), dy({3, 1, 1, 1, channels});
      x.fill_integers(random, 5);
      dy.fill_integers(random, 5);
      global_average_forward<float>(exec, 0.5, x, y.view());
      global_average_backward<float>(exec, 0.25, dy, dx.view());
      wait(exec);
      y.download();
      dx.download();
      for (Index n = 0; n < 3; ++n)
        for (Index c = 0; c < channels; ++c) {
          float sum = 0;
          for (Index d = 0; d < 2; ++d)
            for (Index h = 0; h < 3; ++h)
              for (Index w = 0; w < 4; ++w) sum += x(n, d, h, w, c);
          EXPECT_EQ(y(n, 0, 0, 0, c), sum / 2);
        }
      dx.for_each(
          [&](Index n, Index d, Index h, Index w, Index c) { EXPECT_EQ(dx(n, d, h, w, c), dy(n, 0, 0, 0, c) / 4); });
      EXPECT_EQ(dx.damaged(), 0);
    }
  }
}

TEST(LocalPoolingArguments, RefusesWrongExtents) {
  const PoolingProblem p{
      .samples = 1, .channels = 1, .input = {1, 4, 4}, .output = {1, 2, 2}, .window = {1, 2, 2}, .stride = {1, 2, 2}};
  LocalTensor<float> x({1, 1, 4, 4, 1}), y({1, 1, 2, 3, 1});
  EXPECT_THROW(max_pool_forward<float>(test_space(), p, x, y.view(), {}), InvalidArgument);
  EXPECT_THROW(validate(PoolingProblem{.window = {1 << 12, 1 << 12, 1 << 12}}), InvalidArgument);
}

}  // namespace test_local_pooling
}  // namespace aloni::test
