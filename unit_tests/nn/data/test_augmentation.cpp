// Changes of samples: each pixel by hand, equal bits for any split, and draws that depend on the sample only.
#include <aloni/core/error.hpp>
#include <aloni/nn/data/memory_array.hpp>
#include <aloni/nn/data/sample_values.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>
#include <support/random_cases.hpp>

namespace aloni::nn {
namespace test_augmentation {

using views::Box;
using views::Dim;
using views::Extents;

constexpr Extents extents{{1, 2, 6, 7, 3}};

template <class T>
Dataset set_of(const Normalisation& normalisation) {
  std::vector<T> values(static_cast<std::size_t>(3 * extents.size()));
  std::vector<std::int32_t> masks(static_cast<std::size_t>(3 * extents.size() / 3));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(1 + i % 255);
  for (std::size_t i = 0; i < masks.size(); ++i) masks[i] = static_cast<std::int32_t>(1 + i % 9);
  Extents mask = extents;
  mask[Dim::channel] = 1;
  return {.inputs = memory_array("values", values, extents),
          .targets = memory_array("masks", masks, mask),
          .target_kind = TargetKind::pixel_labels,
          .normalisation = normalisation};
}

template <class T>
std::vector<T> input_of(const Dataset& set, Index sample, const Augmentation& change, const Box& box) {
  std::vector<std::byte> scratch;
  std::vector<T> values(static_cast<std::size_t>(box.size()));
  read_input<T>(set, sample, change, box, scratch, values);
  return values;
}

/// The stored element that pixel d,h,w shows by the definition of the changes; 0 beyond the sample.
double stored_at(Index sample, const Augmentation& change, Index d, Index h, Index w, Index c) {
  const Index width = extents[Dim::width];
  const Index row = h - change.shift.down, column = (change.flip ? width - 1 - w : w) - change.shift.right;
  if (row < 0 || row >= extents[Dim::height] || column < 0 || column >= width) return 0;
  const Index at = (((sample * extents[Dim::depth] + d) * extents[Dim::height] + row) * width + column) * 3 + c;
  return static_cast<double>(1 + at % 255);
}

const std::vector<Augmentation> changes{{},
                                        {.shift = {2, -3}},
                                        {.shift = {-1, 4}, .flip = true},
                                        {.flip = true},
                                        {.shift = {0, 7}},
                                        {.shift = {-6, 0}, .flip = true},
                                        {.shift = {100, -100}},
                                        {.shift = {1, 1}, .flip = true, .brightness = 1.25, .contrast = 0.5}};

template <class Stored>
void expect_definition(const Normalisation& n) {
  const Dataset set = set_of<Stored>(n);
  for (const Augmentation& change : changes) {
    const auto values = input_of<double>(set, 1, change, whole(extents));
    std::size_t i = 0;
    for (Index d = 0; d < 2; ++d)
      for (Index h = 0; h < 6; ++h)
        for (Index w = 0; w < 7; ++w)
          for (std::size_t c = 0; c < 3; ++c, ++i) {
            const double mean = n.mean[n.mean.size() > 1 ? c : 0];
            const double deviation = n.deviation[n.deviation.size() > 1 ? c : 0];
            const double stored = stored_at(1, change, d, h, w, static_cast<Index>(c));
            const double value = ((stored * n.scale * change.brightness - mean) * change.contrast) / deviation;
            ASSERT_NEAR(values[i], value, 1e-12) << "pixel " << d << " " << h << " " << w << " " << c << " shift "
                                                 << change.shift.down << " " << change.shift.right;
          }
  }
}

TEST(Augmentation, ValuesFollowTheDefinition) {
  expect_definition<std::uint8_t>({1.0 / 255, {0.5}, {0.25}});
  expect_definition<std::uint8_t>({1.0 / 255, {0.5, 0.25, 0.125}, {0.25, 1, 2}});
  expect_definition<float>({2, {1, 2, 3}, {0.25}});
  expect_definition<float>({});
  expect_definition<std::int16_t>({});
  expect_definition<double>({});
}

template <class Stored, class T>
void expect_equal_for_splits(const Normalisation& n) {
  const Dataset set = set_of<Stored>(n);
  std::mt19937 engine(5);
  for (int i = 0; i < aloni::test::random_cases(300); ++i) {
    const Augmentation change = draw_augmentation({5, true, 0.5, 0.5}, 3, 4, i);
    const auto all = input_of<T>(set, 2, change, whole(extents));
    Box box = whole(extents);
    for (int d = 1; d < views::num_dims; ++d) {
      const auto e = static_cast<std::uint64_t>(extents.values[d]);
      box.lo[d] = static_cast<Index>(engine() % e);
      box.hi[d] = box.lo[d] + 1 + static_cast<Index>(engine() % (e - static_cast<std::uint64_t>(box.lo[d])));
    }
    const auto part = input_of<T>(set, 2, change, box);
    std::size_t k = 0;
    for (Index d = box.lo[1]; d < box.hi[1]; ++d)
      for (Index h = box.lo[2]; h < box.hi[2]; ++h)
        for (Index w = box.lo[3]; w < box.hi[3]; ++w)
          for (Index c = box.lo[4]; c < box.hi[4]; ++c, ++k)
            ASSERT_EQ(part[k], all[static_cast<std::size_t>(((d * 6 + h) * 7 + w) * 3 + c)]) << to_string(box);
  }
}

TEST(Augmentation, SplitEqualsUnsplitBitForBit) {
  expect_equal_for_splits<std::uint8_t, float>({1.0 / 255, {0.1307}, {0.3081}});
  expect_equal_for_splits<std::uint8_t, double>({1.0 / 255, {0.1, 0.2, 0.3}, {0.4, 0.5, 0.6}});
  expect_equal_for_splits<float, float>({3, {0.1}, {0.3}});
}

TEST(Augmentation, MasksMoveWithTheInput) {
  const Dataset set = set_of<std::uint8_t>({});
  std::vector<int> scratch, labels(84);
  for (const Augmentation& change : changes) {
    read_pixel_labels(set, 1, change, whole(set.targets->extents()), 10, scratch, labels);
    std::size_t i = 0;
    for (Index d = 0; d < 2; ++d)
      for (Index h = 0; h < 6; ++h)
        for (Index w = 0; w < 7; ++w, ++i) {
          const Index row = h - change.shift.down, column = (change.flip ? 6 - w : w) - change.shift.right;
          const bool inside = row >= 0 && row < 6 && column >= 0 && column < 7;
          ASSERT_EQ(labels[i], inside ? 1 + (84 + (d * 6 + row) * 7 + column) % 9 : 0) << d << " " << h << " " << w;
        }
  }
  EXPECT_THROW(read_pixel_labels(set, 1, {}, whole(set.targets->extents()), 9, scratch, labels), FileError);
}

TEST(Augmentation, ReadsOnlyTheSourceBox) {
  const Augmentation change{.shift = {2, 1}, .flip = true};
  Box box = whole(extents);
  box.set(Dim::height, 3, 5);
  box.set(Dim::width, 1, 4);
  Box expected = box;
  expected.set(Dim::height, 1, 3);
  expected.set(Dim::width, 2, 5);
  EXPECT_EQ(source_box(change, extents, box), expected);
  EXPECT_TRUE(source_box({.shift = {9, 0}}, extents, box).empty());
}

TEST(Augmentation, DrawsDependOnSeedEpochAndSampleOnly) {
  const AugmentationOptions options{4, true, 0.1, 0.2};
  std::set<int> shifts;
  int flips = 0;
  double least = 2, most = 0;
  for (Index sample = 0; sample < 1000; ++sample) {
    const Augmentation a = draw_augmentation(options, 7, 3, sample);
    shifts.insert(a.shift.down);
    shifts.insert(a.shift.right);
    flips += a.flip ? 1 : 0;
    least = std::min(least, a.contrast);
    most = std::max(most, a.contrast);
    EXPECT_LE(std::abs(a.brightness - 1), 0.1);
    const Augmentation without = draw_augmentation({.shift = 4}, 7, 3, sample);
    EXPECT_EQ(a.shift.down, without.shift.down);
  }
  EXPECT_EQ(shifts.size(), 9u);
  EXPECT_NEAR(flips, 500, 60);
  EXPECT_NEAR(least, 0.8, 0.01);
  EXPECT_NEAR(most, 1.2, 0.01);
  int equal = 0;
  for (Index sample = 0; sample < 1000; ++sample)
    equal += draw_augmentation(options, 7, 3, sample).flip == draw_augmentation(options, 7, 4, sample).flip ? 1 : 0;
  EXPECT_NEAR(equal, 500, 60) << "epochs must be independent";
}

TEST(Augmentation, ShiftsAreThoseOfRandomCropsAfterPadding) {
  // A crop of the extents of the image begins at each of the (2P + 1)² offsets of the padded image equally often.
  constexpr int padding = 2, side = 2 * padding + 1, each = 1000;
  std::vector<int> counts(side * side);
  for (Index sample = 0; sample < side * side * each; ++sample) {
    const Shift shift = draw_augmentation({.shift = padding}, 7, 3, sample).shift;
    ASSERT_LE(std::max(std::abs(shift.down), std::abs(shift.right)), padding);
    ++counts[static_cast<std::size_t>((shift.down + padding) * side + shift.right + padding)];
  }
  // Counts of independent draws deviate by sqrt(1000) = 32; five times that happens once in 10^6 tests.
  for (const int count : counts) EXPECT_NEAR(count, each, 160);
}

TEST(Augmentation, RefusesWrongOptions) {
  EXPECT_THROW(check(AugmentationOptions{.shift = -1}, "test"), InvalidArgument);
  EXPECT_THROW(check(AugmentationOptions{.brightness = 1.5}, "test"), InvalidArgument);
  EXPECT_THROW(check(AugmentationOptions{.contrast = -0.5}, "test"), InvalidArgument);
  check(AugmentationOptions{3, true, 1, 1}, "test");
}

}  // namespace test_augmentation
}  // namespace aloni::nn
