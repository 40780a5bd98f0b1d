#include <aloni/halo/stencil.hpp>

#include <aloni/core/error.hpp>

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace aloni::halo {
namespace test_stencil {

using views::Box;
using views::Dim;

TEST(Stencil, ReadsOneWindowPerOutput) {
  const Stencil1D rows{.kernel = 5, .stride = 2, .pad_low = 1, .pad_high = 2};
  EXPECT_EQ(rows.output_extent(28), 14);
  EXPECT_EQ(rows.input_range(0, 7), (Range{-1, 16}));
  EXPECT_EQ(rows.output_range(14, 28, 14), (Range{6, 14}));
  EXPECT_TRUE(rows.input_range(3, 3).empty());
  EXPECT_TRUE(rows.output_range(3, 3, 14).empty());
}

TEST(Stencil, MatchesCountingForRandomWindows) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(random); };
    const Stencil1D s{pick(1, 7), pick(1, 9), pick(1, 4), pick(0, 4), pick(0, 4)};
    const Index input = pick(1, 30);
    if (input + s.pad_low + s.pad_high < s.reach()) {
      EXPECT_THROW(s.output_extent(input), InvalidArgument);
      continue;
    }
    Index outputs = 0;
    while (outputs * s.stride + s.reach() <= input + s.pad_low + s.pad_high) ++outputs;
    ASSERT_EQ(s.output_extent(input), outputs);

    const Index lo = pick(-3, static_cast<int>(input)), hi = lo + pick(0, 6);
    Range reading{0, 0};
    for (Index o = 0; o < outputs; ++o)
      for (Index k = 0; k < s.kernel; ++k) {
        const Index i = o * s.stride - s.pad_low + k * s.dilation;
        if (i < lo || i >= hi) continue;
        if (reading.empty()) reading.lo = o;
        reading.hi = o + 1;
      }
    EXPECT_EQ(s.output_range(lo, hi, outputs), reading) << "inputs [" << lo << "," << hi << ")";

    const Index first = pick(0, static_cast<int>(outputs) - 1),
                last = pick(static_cast<int>(first), static_cast<int>(outputs) - 1);
    EXPECT_EQ(s.input_range(first, last + 1),
              (Range{first * s.stride - s.pad_low, last * s.stride - s.pad_low + (s.kernel - 1) * s.dilation + 1}));
  }
}

TEST(Stencil, TreatsBoxesDimensionByDimension) {
  Stencil s;
  s[Dim::height] = {.kernel = 3, .pad_low = 1, .pad_high = 1};
  s[Dim::width] = {.kernel = 2, .stride = 2};
  const auto out = s.output_extents(views::make_extents(8, {28, 28}, 6));
  EXPECT_EQ(out, views::make_extents(8, {28, 14}, 6));
  EXPECT_EQ(s.input_box(Box{{0, 0, 14, 0, 0}, {8, 1, 28, 14, 6}}), (Box{{0, 0, 13, 0, 0}, {8, 1, 29, 28, 6}}));
  EXPECT_EQ(s.output_box(Box{{0, 0, 0, 0, 0}, {8, 1, 14, 28, 6}}, out), (Box{{0, 0, 0, 0, 0}, {8, 1, 15, 14, 6}}));
  EXPECT_TRUE(s.input_box(Box{}).empty());
  EXPECT_TRUE(s.output_box(Box{}, out).empty());
}

TEST(Stencil, RefusesInvalidWindows) {
  EXPECT_THROW((Stencil1D{.kernel = 0}.check("here")), InvalidArgument);
  EXPECT_THROW((Stencil1D{.stride = 0}.check("here")), InvalidArgument);
  EXPECT_THROW((Stencil1D{.dilation = 0}.check("here")), InvalidArgument);
  EXPECT_THROW((Stencil1D{.pad_low = -1}.check("here")), InvalidArgument);
  EXPECT_THROW((Stencil1D{.pad_high = -1}.check("here")), InvalidArgument);
  const Index large = Index{1} << 31;
  EXPECT_THROW((Stencil1D{.kernel = large, .dilation = large}.check("here")), InvalidArgument);  // reach above 2^61
  EXPECT_THROW((Stencil1D{.stride = large}.check("here")), InvalidArgument);
  EXPECT_THROW((Stencil1D{.pad_low = std::numeric_limits<Index>::max()}.check("here")), InvalidArgument);
  EXPECT_THROW((Stencil1D{.pad_high = std::numeric_limits<Index>::max()}.check("here")), InvalidArgument);
  EXPECT_THROW((void)Stencil1D{.pad_low = 1}.output_extent(std::numeric_limits<Index>::max()), InvalidArgument);
  Stencil s;
  s[Dim::channel].kernel = 3;
  try {
    s.check("here");
    FAIL();
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(
        e.what(),
        "here, channel: kernel = 3: expected the identity (kernel 1, stride 1, no padding): windows slide over "
        "depth, height and width only");
  }
  s = {};
  s[Dim::height].kernel = 9;
  try {
    s.output_extents(views::make_extents(1, {4, 4}, 1));
    FAIL();
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(
        e.what(),
        "aloni::halo::Stencil::output_extents, height: input = 4: expected an extent that, with padding 0 + 0, "
        "holds one window of 9");
  }
}

}  // namespace test_stencil
}  // namespace aloni::halo
