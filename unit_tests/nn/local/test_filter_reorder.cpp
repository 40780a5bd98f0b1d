// Copies of filters between orders, against a loop over all elements.
#include <aloni/nn/local/detail/filter_reorder.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "guarded_memory.hpp"

namespace aloni::nn::local::detail {
namespace test_filter_reorder {

constexpr float untouched = -1;

/// Blocks of filters, with channels or taps between them; of both, with filters or channels inside.
std::vector<FilterOrderInMemory> blocked_orders(Index filters, Index taps, Index channels) {
  std::vector<FilterOrderInMemory> all;
  for (const Index block : {8, 16, 32, 48}) {
    const Index padded = (filters + block - 1) / block * block;
    FilterOrderInMemory of_filters{.filters = filters,
                                   .channels = channels,
                                   .padded_filters = padded,
                                   .filter_block = block,
                                   .channel_block = channels,
                                   .filter = 1,
                                   .channel = block,
                                   .filter_blocks = taps * channels * block};
    for (Index t = 0; t < taps; ++t) of_filters.taps.push_back(t * channels * block);
    all.push_back(of_filters);
    if (block > 16 || channels % block != 0) continue;
    for (const bool filters_inside : {false, true}) {
      FilterOrderInMemory of_both = of_filters;
      of_both.channel_block = block;
      of_both.filter = filters_inside ? 1 : block;
      of_both.channel = filters_inside ? block : 1;
      of_both.filter_blocks = channels / block * taps * block * block;
      of_both.channel_blocks = taps * block * block;
      for (Index t = 0; t < taps; ++t) of_both.taps[static_cast<std::size_t>(t)] = t * block * block;
      all.push_back(of_both);
    }
  }
  return all;
}

Index size_of(const FilterOrderInMemory& order) {
  return order.padded_filters * order.channels * static_cast<Index>(order.taps.size());
}

void expect_copied(const FilterOrderInMemory& from, const FilterOrderInMemory& to) {
  ASSERT_TRUE(can_reorder(from, to));
  const aloni::test::GuardedMemory<float> source(size_of(from)), target(size_of(to));
  for (Index i = 0; i < size_of(from); ++i) source.data()[i] = static_cast<float>(i + 1);
  std::fill(target.data(), target.data() + size_of(to), untouched);
  for (Index part = reorder_parts(to); part-- > 0;) reorder(from, source.data(), to, target.data(), part);
  Index wrong = 0, zeros = 0;
  for (std::size_t t = 0; t < to.taps.size(); ++t)
    for (Index f = 0; f < to.padded_filters; ++f)
      for (Index c = 0; c < to.channels; ++c) {
        const float found = target.data()[to.place_of(f, c) + to.taps[t]];
        const float expected = f < to.filters ? source.data()[from.place_of(f, c) + from.taps[t]] : 0;
        wrong += found != expected;
        zeros += expected == 0;
      }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(zeros, (to.padded_filters - to.filters) * to.channels * static_cast<Index>(to.taps.size()));
}

TEST(FilterReorder, CopiesEveryElementOnce) {
  int orders = 0;
  for (const Index filters : {8, 16, 40, 64})
    for (const Index channels : {8, 16, 48})
      for (const Index taps : {1, 3, 27}) {
        for (const FilterOrderInMemory& to : blocked_orders(filters, taps, channels)) {
          SCOPED_TRACE(std::to_string(filters) + " " + std::to_string(channels) + " " + std::to_string(taps) + " " +
                       std::to_string(to.filter_block) + " " + std::to_string(to.filter));
          const FilterOrderInMemory plain = plain_order(filters, taps, channels);
          expect_copied(plain, to);
          // Flipped filters of a convolution whose filters are these channels.
          expect_copied(flipped_order(channels, taps, filters), to);
          if (to.padded_filters == to.filters) expect_copied(to, plain);
          ++orders;
        }
      }
  EXPECT_GT(orders, 100);
}

TEST(FilterReorder, PlainAndFlippedOrdersAreThoseOfParameters) {
  const FilterOrderInMemory plain = plain_order(4, 9, 6), flipped = flipped_order(4, 9, 6);
  EXPECT_EQ(plain.place_of(2, 5) + plain.taps[7], (2 * 9 + 7) * 6 + 5);
  EXPECT_EQ(flipped.filters, 6);
  EXPECT_EQ(flipped.channels, 4);
  EXPECT_EQ(flipped.place_of(5, 2) + flipped.taps[8 - 7], (2 * 9 + 7) * 6 + 5);
}

TEST(FilterReorder, LeavesOtherSizesToOthers) {
  const FilterOrderInMemory to = blocked_orders(16, 9, 16).front();
  EXPECT_FALSE(can_reorder(plain_order(12, 9, 16), to));  // no whole tiles
  EXPECT_FALSE(can_reorder(plain_order(16, 9, 12), to));
  EXPECT_FALSE(can_reorder(plain_order(32, 9, 16), to));  // other filters
  EXPECT_FALSE(can_reorder(plain_order(16, 4, 16), to));
  FilterOrderInMemory apart = to;
  apart.filter = 2, apart.channel = 16;
  EXPECT_FALSE(can_reorder(plain_order(16, 9, 16), apart));
  apart = to;
  apart.filter_block = 4;
  EXPECT_FALSE(can_reorder(plain_order(16, 9, 16), apart));
}

}  // namespace test_filter_reorder
}  // namespace aloni::nn::local::detail
