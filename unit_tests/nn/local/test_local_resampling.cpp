// Adaptive pooling and interpolation against plain loops over the whole tensor, for parts of it with ghosts; gradients as adjoints
// and by finite differences; parts have the bits of the whole.
#include <aloni/core/error.hpp>
#include <aloni/nn/local/resampling.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "local_tensor.hpp"
#include "support/random_cases.hpp"

namespace aloni::test {
namespace test_local_resampling {

using namespace nn::local;
using halo::Range;
using halo::RangeRule;
using Exec = Kokkos::DefaultExecutionSpace;

std::array<Index, 5> input_extents(const ResamplingProblem& p) {
  return {p.samples, p.input[0], p.input[1], p.input[2], p.channels};
}
std::array<Index, 5> output_extents(const ResamplingProblem& p) {
  return {p.samples, p.output[0], p.output[1], p.output[2], p.channels};
}

/// A whole tensor; up to 7 pixels along each dimension.
ResamplingProblem random_whole(std::mt19937& random, RangeRule rule) {
  auto pick = [&](Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random); };
  constexpr std::array<Index, 6> widths{1, 2, 3, 16, 17, 33};
  ResamplingProblem p{.samples = pick(1, 2), .channels = widths[pick(0, 5)]};
  for (auto& m : p.map) m.rule = rule;
  for (int s = static_cast<int>(pick(0, 2)); s < 3; ++s) p.map[s] = {rule, pick(1, 7), pick(1, 7)};
  for (int s = 0; s < 3; ++s) {
    p.input[s] = p.map[s].inputs;
    p.output[s] = p.map[s].outputs;
  }
  return p;
}

/// Some of the outputs, what they read, and up to two ghosts more on each side.
ResamplingProblem random_part(std::mt19937& random, ResamplingProblem p) {
  auto pick = [&](Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random); };
  for (int s = 0; s < 3; ++s) {
    p.output_lower[s] = pick(0, p.map[s].outputs - 1);
    p.output[s] = pick(1, p.map[s].outputs - p.output_lower[s]);
    const Range needed = p.map[s].input_range(p.output_lower[s], p.output_lower[s] + p.output[s]);
    p.input_lower[s] = std::max<Index>(0, needed.lo - pick(0, 2));
    p.input[s] = std::min(p.map[s].inputs, needed.hi + pick(0, 2)) - p.input_lower[s];
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

/// The inputs and weights of an output in one dimension, as PyTorch's documents have them.
struct Tap {
  Index input;
  double weight;
};
std::vector<Tap> taps(const ResamplingProblem& p, int s, Index o) {
  const double inputs = static_cast<double>(p.map[s].inputs), outputs = static_cast<double>(p.map[s].outputs),
               at = static_cast<double>(p.output_lower[s] + o);
  const auto index = [](double v) { return static_cast<Index>(std::floor(v)); };
  std::vector<Tap> t;
  if (p.map[s].rule == RangeRule::adaptive) {
    for (Index i = index(at * inputs / outputs); static_cast<double>(i) < std::ceil((at + 1) * inputs / outputs); ++i)
      t.push_back({i, 1});
    for (auto& tap : t) tap.weight = 1.0 / static_cast<double>(t.size());
  } else if (p.map[s].rule == RangeRule::nearest) {
    t.push_back({index(at * inputs / outputs), 1});
  } else {
    const double place = std::max(0.0, ((2 * at + 1) * inputs - outputs) / (2 * outputs));
    const Index first = index(place);
    const double distance = place - static_cast<double>(first);
    t.push_back({first, 1 - distance});
    if (distance > 0) t.push_back({std::min(first + 1, p.map[s].inputs - 1), distance});
  }
  for (auto& tap : t) tap.input -= p.input_lower[s];
  return t;
}

/// f(position in window, id, ih, iw, weight) for each input of an output.
template <class F>
void for_taps(const ResamplingProblem& p, Index od, Index oh, Index ow, const F& f) {
  const auto d = taps(p, 0, od), h = taps(p, 1, oh), w = taps(p, 2, ow);
  Index position = 0;
  for (const Tap& a : d)
    for (const Tap& b : h)
      for (const Tap& c : w) f(position++, a.input, b.input, c.input, a.weight * b.weight * c.weight);
}

template <class T>
class LocalResampling : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(LocalResampling, Types);

TYPED_TEST(LocalResampling, MaxAndItsGradientAgreeWithTheDefinition) {
  using T = TypeParam;
  const Exec exec = test_space();
  const unsigned seed = test_seed();
  for (int i = 0; i < aloni::test::random_cases(200); ++i) {
    std::mt19937 random(seed + i);
    const auto p = random_part(random, random_whole(random, RangeRule::adaptive));
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
    adaptive_max_pool_forward<T>(exec, p, x, y.view(), argmax);
    adaptive_max_pool_backward<T>(exec, p, dy, argmax, dx.view());
    wait(exec);
    y.download();
    dx.download();
    argmax.download();
    LocalTensor<T> expected_dx(input_extents(p), at_x);
    expected_dx.fill([] { return 0; });
    Index wrong = 0;
    y.for_each([&](Index n, Index od, Index oh, Index ow, Index c) {
      T best = 0;
      Index where = -1, d = 0, h = 0, w = 0;
      for_taps(p, od, oh, ow, [&](Index k, Index id, Index ih, Index iw, double) {
        const T v = x(n, id, ih, iw, c);
        if (where >= 0 && (std::isnan(best) || !(v > best || std::isnan(v)))) return;
        best = v, where = k, d = id, h = ih, w = iw;
      });
      expected_dx(n, d, h, w, c) += dy(n, od, oh, ow, c);
      wrong += argmax(n, od, oh, ow, c) != where;
      const T value = y(n, od, oh, ow, c);
      wrong += !(value == best || (std::isnan(value) && std::isnan(best)));
    });
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(differing_bits(expected_dx, dx), 0);
    EXPECT_EQ(y.damaged() + dx.damaged() + argmax.damaged(), 0);
    // Without argmax: evaluation.
    LocalTensor<T> again(output_extents(p), at_y);
    adaptive_max_pool_forward<T>(exec, p, x, again.view(), {});
    wait(exec);
    again.download();
    Index different = 0;
    y.for_each([&](auto... j) { different += !(again(j...) == y(j...) || std::isnan(y(j...))); });
    EXPECT_EQ(different, 0);
    if (this->HasFailure()) break;
  }
}

TYPED_TEST(LocalResampling, SumsByWeightAndTheirGradientsAgreeWithTheDefinition) {
  using T = TypeParam;
  const Exec exec = test_space();
  const unsigned seed = test_seed();
  const double near = 100 * static_cast<double>(std::numeric_limits<T>::epsilon());
  for (int i = 0; i < aloni::test::random_cases(300); ++i) {
    std::mt19937 random(seed + i);
    const RangeRule rule = std::array{RangeRule::adaptive, RangeRule::nearest, RangeRule::linear}[i % 3];
    const auto p = random_part(random, random_whole(random, rule));
    SCOPED_TRACE("seed " + std::to_string(seed + i) + ": " + to_string(p));
    const auto at_x = random_placement(random), at_y = random_placement(random);
    LocalTensor<T> x(input_extents(p), at_x), dx(input_extents(p), at_x), y(output_extents(p), at_y),
        dy(output_extents(p), at_y);
    x.fill_integers(random, 9);
    dy.fill_integers(random, 9);
    resample_forward<T>(exec, p, x, y.view());
    resample_backward<T>(exec, p, dy, dx.view());
    wait(exec);
    y.download();
    dx.download();
    LocalTensor<double> expected_dx(input_extents(p));
    expected_dx.fill([] { return 0; });
    double off_y = 0, off_dx = 0;
    y.for_each([&](Index n, Index od, Index oh, Index ow, Index c) {
      double sum = 0;
      for_taps(p, od, oh, ow, [&](Index, Index id, Index ih, Index iw, double weight) {
        sum += weight * static_cast<double>(x(n, id, ih, iw, c));
        expected_dx(n, id, ih, iw, c) += weight * static_cast<double>(dy(n, od, oh, ow, c));
      });
      off_y = std::max(off_y, std::abs(static_cast<double>(y(n, od, oh, ow, c)) - sum));
    });
    dx.for_each([&](auto... j) {
      const double expected = expected_dx(j...);
      off_dx = std::max(off_dx, std::abs(static_cast<double>(dx(j...)) - expected) / (1 + std::abs(expected)));
    });
    EXPECT_LE(off_y, near);
    EXPECT_LE(off_dx, near);
    EXPECT_EQ(y.damaged() + dx.damaged(), 0);
    if (this->HasFailure()) break;
  }
}

TYPED_TEST(LocalResampling, GivesAPartTheBitsOfTheWhole) {
  using T = TypeParam;
  const Exec exec = test_space();
  const unsigned seed = test_seed();
  for (int i = 0; i < aloni::test::random_cases(150); ++i) {
    std::mt19937 random(seed + i);
    const RangeRule rule = std::array{RangeRule::adaptive, RangeRule::nearest, RangeRule::linear}[i % 3];
    const auto whole = random_whole(random, rule);
    const auto p = random_part(random, whole);
    SCOPED_TRACE("seed " + std::to_string(seed + i) + ": " + to_string(p));
    const auto at = random_placement(random);
    LocalTensor<T> x(input_extents(whole)), y(output_extents(whole)), part_x(input_extents(p), at),
        part_y(output_extents(p), at);
    x.fill_reals(random);
    part_x.for_each([&](Index n, Index d, Index h, Index w, Index c) {
      part_x(n, d, h, w, c) = x(n, d + p.input_lower[0], h + p.input_lower[1], w + p.input_lower[2], c);
    });
    part_x.upload();
    resample_forward<T>(exec, whole, x, y.view());
    resample_forward<T>(exec, p, part_x, part_y.view());
    wait(exec);
    y.download();
    part_y.download();
    Index different = 0;
    part_y.for_each([&](Index n, Index d, Index h, Index w, Index c) {
      const T a = part_y(n, d, h, w, c),
              b = y(n, d + p.output_lower[0], h + p.output_lower[1], w + p.output_lower[2], c);
      different += std::memcmp(&a, &b, sizeof(T)) != 0;
    });
    EXPECT_EQ(different, 0);
    if (this->HasFailure()) break;
  }
}

TEST(LocalResamplingByHand, TwiceAsManyByDistance) {
  ResamplingProblem p{.samples = 1, .channels = 1};
  for (auto& m : p.map) m.rule = RangeRule::linear;
  p.map[2] = {RangeRule::linear, 3, 6};
  p.input[2] = 3;
  p.output[2] = 6;
  LocalTensor<float> x({1, 1, 1, 3, 1}), y({1, 1, 1, 6, 1}), dx({1, 1, 1, 3, 1});
  const std::array<float, 3> values{0, 8, 24};
  x.fill([&, i = 0]() mutable { return values[i++]; });
  resample_forward<float>(test_space(), p, x, y.view());
  resample_backward<float>(test_space(), p, y, dx.view());
  wait(test_space());
  y.download();
  dx.download();
  const std::array<float, 6> expected{0, 2, 6, 12, 20, 24};
  for (Index i = 0; i < 6; ++i) EXPECT_EQ(y(0, 0, 0, i, 0), expected[i]) << i;
  const std::array<float, 3> gradient{0 + 1.5F + 1.5F, 0.5F + 4.5F + 9 + 5, 3 + 15 + 24};
  for (Index i = 0; i < 3; ++i) EXPECT_EQ(dx(0, 0, 0, i, 0), gradient[i]) << i;
}

TEST(LocalResamplingGradient, FiniteDifferencesOfTheMaximum) {
  const Exec exec = test_space();
  std::mt19937 random(test_seed());
  ResamplingProblem p{.samples = 2, .channels = 2};
  for (auto& m : p.map) m.rule = RangeRule::adaptive;
  p.map[1] = {RangeRule::adaptive, 7, 3};
  p.map[2] = {RangeRule::adaptive, 5, 4};
  p.input = {1, 7, 5};
  p.output = {1, 3, 4};
  LocalTensor<double> x(input_extents(p)), dx(input_extents(p)), y(output_extents(p)), dy(output_extents(p));
  LocalTensor<std::int32_t> argmax(output_extents(p));
  // Distinct values, further apart than the step, so that no maximum changes its place.
  std::vector<double> values(2 * 2 * 7 * 5);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.1 * static_cast<double>(i);
  std::shuffle(values.begin(), values.end(), random);
  x.fill([&, i = 0]() mutable { return values[i++]; });
  dy.fill_reals(random);
  const auto forward = [&] {
    adaptive_max_pool_forward<double>(exec, p, x, y.view(), argmax);
    wait(exec);
    y.download();
    double sum = 0;
    y.for_each([&](auto... i) { sum += y(i...) * dy(i...); });
    return sum;
  };
  forward();
  adaptive_max_pool_backward<double>(exec, p, dy, argmax, dx.view());
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
    EXPECT_NEAR((above - below) / (2 * step), dx(i...), 1e-10);
  });
}

TEST(LocalResamplingArguments, RefusesWhatDoesNotFit) {
  ResamplingProblem p{.samples = 1, .channels = 1};
  for (auto& m : p.map) m.rule = RangeRule::linear;
  p.map[2] = {RangeRule::linear, 4, 8};
  p.input[2] = 2;
  p.output[2] = 4;
  LocalTensor<float> x({1, 1, 1, 2, 1}), y({1, 1, 1, 4, 1});
  const auto forward = [&] { resample_forward<float>(test_space(), p, x, y.view()); };
  EXPECT_THROW(forward(), InvalidArgument);  // output 3 reads input 2
  p.input[2] = 3;
  EXPECT_THROW(forward(), InvalidArgument);  // x is too small
  EXPECT_NO_THROW(validate(p));
  EXPECT_THROW(adaptive_max_pool_forward<float>(test_space(), p, x, y.view(), {}), InvalidArgument);
  p.input_lower[2] = 2;
  EXPECT_THROW(validate(p), InvalidArgument);  // reaches over the tensor
  p.input_lower[2] = 0;
  p.output_lower[2] = 5;
  EXPECT_THROW(validate(p), InvalidArgument);
  p.output_lower[2] = 0;
  p.map[1].rule = RangeRule::nearest;
  EXPECT_THROW(validate(p), InvalidArgument);
  p = {.samples = 1, .channels = 1};
  for (auto& m : p.map) m = {RangeRule::adaptive, 1 << 12, 1};
  p.input = {1 << 12, 1 << 12, 1 << 12};
  EXPECT_THROW(validate(p), InvalidArgument);
}

}  // namespace test_local_resampling
}  // namespace aloni::test
