// Every range against counting over all pairs; the linear weights against the formula in real numbers.
#include <aloni/halo/range_map.hpp>

#include <aloni/core/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace aloni::halo {
namespace test_range_map {

using views::Box;
using views::Dim;

constexpr RangeRule rules[] = {RangeRule::adaptive, RangeRule::nearest, RangeRule::linear};

/// All extents up to a bound, and some that are far apart.
template <class F>
void for_each_map(const F& f) {
  for (RangeRule rule : rules) {
    for (Index inputs = 1; inputs <= 13; ++inputs) {
      for (Index outputs = 1; outputs <= 13; ++outputs) f(RangeMap1D{rule, inputs, outputs});
    }
    for (const auto& [inputs, outputs] :
         std::vector<std::pair<Index, Index>>{{1, 40}, {40, 1}, {7, 100}, {100, 7}, {63, 64}, {64, 63}}) {
      f(RangeMap1D{rule, inputs, outputs});
    }
  }
}

std::string text(const RangeMap1D& m) {
  return "rule " + std::to_string(static_cast<int>(m.rule)) + ", " + std::to_string(m.inputs) + " -> " +
         std::to_string(m.outputs);
}

/// Which inputs have weight, straight from the definitions in real numbers. The quotients of small integers that are integers are
/// exact in double, so floor and ceil are right.
std::vector<double> weights(const RangeMap1D& m, Index o) {
  std::vector<double> w(static_cast<std::size_t>(m.inputs), 0.0);
  const double inputs = static_cast<double>(m.inputs), outputs = static_cast<double>(m.outputs);
  const double x = static_cast<double>(o);
  if (m.rule == RangeRule::adaptive) {
    for (Index i = 0; i < m.inputs; ++i) {
      const double at = static_cast<double>(i);
      if (at >= std::floor(x * inputs / outputs) && at < std::ceil((x + 1) * inputs / outputs)) w[i] = 1;
    }
  } else if (m.rule == RangeRule::nearest) {
    w[static_cast<std::size_t>(std::floor(x * inputs / outputs))] = 1;
  } else {
    const double place = std::max(0.0, ((2 * x + 1) * inputs - outputs) / (2 * outputs));
    const std::size_t first = static_cast<std::size_t>(place);
    const std::size_t second = std::min<std::size_t>(first + 1, w.size() - 1);
    w[first] += 1 - (place - std::floor(place));
    w[second] += place - std::floor(place);
  }
  return w;
}

TEST(RangeMap, ReadsWhatHasWeight) {
  for_each_map([](const RangeMap1D& m) {
    SCOPED_TRACE(text(m));
    m.check("here");
    Index longest = 0;
    for (Index o = 0; o < m.outputs; ++o) {
      const auto expected = weights(m, o);
      const Range window = m.window(o);
      ASSERT_FALSE(window.empty());
      ASSERT_GE(window.lo, 0);
      ASSERT_LE(window.hi, m.inputs);
      longest = std::max(longest, window.hi - window.lo);
      for (Index i = 0; i < m.inputs; ++i) {
        ASSERT_EQ(window.lo <= i && i<window.hi, expected[i]> 0) << "output " << o << ", input " << i;
        if (expected[i] > 0) {
          ASSERT_NEAR(m.weight(o, i), expected[i], 1e-14) << "output " << o << ", input " << i;
        }
      }
    }
    EXPECT_LE(longest, m.longest_window());
    if (m.inputs % m.outputs == 0 && m.rule == RangeRule::adaptive) {
      EXPECT_EQ(longest, m.longest_window());
    }
  });
}

TEST(RangeMap, MatchesCountingForEveryRange) {
  for_each_map([](const RangeMap1D& m) {
    SCOPED_TRACE(text(m));
    for (Index lo = 0; lo <= m.outputs; ++lo) {
      for (Index hi = lo; hi <= m.outputs; ++hi) {
        Range expected{};
        for (Index o = lo; o < hi; ++o) {
          const Range window = m.window(o);
          expected =
              expected.empty() ? window : Range{std::min(expected.lo, window.lo), std::max(expected.hi, window.hi)};
        }
        ASSERT_EQ(m.input_range(lo, hi), expected) << "outputs [" << lo << "," << hi << ")";
      }
    }
    for (Index lo = -2; lo <= m.inputs + 1; ++lo) {
      for (Index hi = lo; hi <= m.inputs + 2; ++hi) {
        Range expected{};
        for (Index o = 0; o < m.outputs; ++o) {
          const Range window = m.window(o);
          if (window.hi <= lo || window.lo >= hi || lo == hi) continue;
          if (expected.empty()) expected.lo = o;
          expected.hi = o + 1;
        }
        ASSERT_EQ(m.output_range(lo, hi), expected) << "inputs [" << lo << "," << hi << ")";
      }
    }
  });
}

TEST(RangeMap, KnowsExamples) {
  const RangeMap1D adaptive{RangeRule::adaptive, 10, 4};
  EXPECT_EQ(adaptive.window(1), (Range{2, 5}));
  EXPECT_EQ(adaptive.input_range(1, 3), (Range{2, 8}));
  EXPECT_EQ(adaptive.output_range(5, 8), (Range{2, 4}));
  const RangeMap1D twice{RangeRule::linear, 4, 8};
  EXPECT_EQ(twice.window(0), (Range{0, 1}));
  EXPECT_EQ(twice.window(1), (Range{0, 2}));
  EXPECT_EQ(twice.weight(1, 0), 0.75);
  EXPECT_EQ(twice.weight(1, 1), 0.25);
  EXPECT_EQ(twice.window(7), (Range{3, 4}));
  EXPECT_EQ(twice.weight(7, 3), 1);
  EXPECT_EQ((RangeMap1D{RangeRule::nearest, 10, 4}.window(3)), (Range{7, 8}));
  EXPECT_TRUE((RangeMap1D{RangeRule::nearest, 10, 4}.output_range(8, 10).empty()));
}

TEST(RangeMap, StaysExactForTheLargestExtents) {
  constexpr Index n = RangeMap1D::largest;
  for (RangeRule rule : rules) {
    for (const auto& [inputs, outputs] : std::vector<std::pair<Index, Index>>{{n, n - 1}, {n - 1, n}, {1, n}, {n, 1}}) {
      const RangeMap1D m{rule, inputs, outputs};
      SCOPED_TRACE(text(m));
      m.check("here");
      for (Index o : {Index{0}, outputs / 2, outputs - 1}) {
        const Range window = m.window(o);
        EXPECT_GE(window.lo, 0);
        EXPECT_LE(window.hi, inputs);
        const Range readers = m.output_range(window.lo, window.lo + 1);
        EXPECT_LE(readers.lo, o);
        EXPECT_GT(readers.hi, o);
        EXPECT_LE(readers.hi, outputs);
      }
    }
  }
}

TEST(RangeMap, TreatsBoxesDimensionByDimension) {
  const RangeMap m{RangeRule::adaptive, views::make_extents(8, {10, 6}, 3), views::make_extents(8, {4, 3}, 3)};
  m.check("here");
  EXPECT_EQ(m.input_box(Box{{2, 0, 1, 0, 0}, {4, 1, 3, 2, 3}}), (Box{{2, 0, 2, 0, 0}, {4, 1, 8, 4, 3}}));
  EXPECT_EQ(m.output_box(Box{{2, 0, 5, 2, 0}, {4, 1, 8, 3, 3}}), (Box{{2, 0, 2, 1, 0}, {4, 1, 4, 2, 3}}));
  EXPECT_TRUE(m.input_box(Box{}).empty());
  EXPECT_TRUE(m.output_box(Box{}).empty());
}

TEST(RangeMap, RefusesExtentsThatMakeNoSense) {
  EXPECT_THROW((RangeMap1D{RangeRule::linear, 0, 1}.check("here")), InvalidArgument);
  EXPECT_THROW((RangeMap1D{RangeRule::linear, 1, 0}.check("here")), InvalidArgument);
  EXPECT_THROW((RangeMap1D{RangeRule::linear, RangeMap1D::largest + 1, 2}.check("here")), InvalidArgument);
  EXPECT_THROW((RangeMap1D{RangeRule::linear, 2, RangeMap1D::largest + 1}.check("here")), InvalidArgument);
  EXPECT_NO_THROW((RangeMap1D{RangeRule::linear, Index{1} << 40, Index{1} << 40}.check("here")));
  const RangeMap m{RangeRule::nearest, views::make_extents(1, {4, 4}, 2), views::make_extents(1, {4, 4}, 3)};
  try {
    m.check("here");
    FAIL();
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(),
                 "here, channel: outputs = 3: expected the 2 of the input: depth, height and width change only");
  }
}

}  // namespace test_range_map
}  // namespace aloni::halo
