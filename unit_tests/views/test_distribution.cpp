#include <aloni/views/distribution.hpp>
#include <aloni/views/ghost_widths.hpp>

#include <aloni/core/error.hpp>

#include <support/experiment.hpp>
#include <support/random_cases.hpp>

#include <gmock/gmock.h>

#include <array>
#include <limits>
#include <optional>
#include <random>

namespace aloni::views {
namespace test_distribution {

using testing::ElementsAre;

Distribution rows(Index height, int blocks) {
  ProcessGrid grid;
  grid[Dim::height] = blocks;
  return Distribution::block(make_extents(2, {height, 4}, 3), grid, blocks);
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "no error";
}

TEST(Distribution, GivesTheFirstBlocksOneElementMore) {
  EXPECT_THAT(rows(28, 3).borders(Dim::height), ElementsAre(0, 10, 19, 28));
  EXPECT_EQ(rows(28, 3).owned(1), (Box{{0, 0, 10, 0, 0}, {2, 1, 19, 4, 3}}));
}

TEST(Distribution, LeavesTheLastBlocksEmptyIfElementsAreTooFew) {
  const auto d = rows(2, 4);
  EXPECT_THAT(d.borders(Dim::height), ElementsAre(0, 1, 2, 2, 2));
  EXPECT_TRUE(d.owned(3).empty());
  EXPECT_EQ(d.block_of(Dim::height, 1), 1);
}

TEST(Distribution, FindsTheBlockOfAnIndexBehindEmptyBlocks) {
  const auto d = rows(5, 5).with_blocks(Dim::height, {0, 2, 0, 0, 3});
  EXPECT_EQ(d.block_of(Dim::height, 0), 1);
  EXPECT_EQ(d.block_of(Dim::height, 2), 4);
  EXPECT_EQ(d.block_of(Dim::height, 4), 4);
}

TEST(Distribution, GivesEveryRankAllIndicesOfAReplicatedDimension) {
  const auto d =
      Distribution::block(make_extents(4, {8, 8}, 2), ProcessGrid::parse("n2h2"), 8).with_replicated(Dim::height);
  for (int r = 0; r < 8; ++r) {
    EXPECT_EQ(d.owned(r).extent(Dim::height), 8);
    EXPECT_EQ(d.owned(r).extent(Dim::sample), 2);
  }
  EXPECT_EQ(d.copies(), 4);
  std::vector<int> first;
  for (int r = 0; r < 8; ++r)
    if (d.is_first_copy(r)) first.push_back(r);
  EXPECT_THAT(first, ElementsAre(0, 2));
}

TEST(Distribution, GivesTheRootTheWholeTensor) {
  const auto d = Distribution::on_root(make_extents(3, {4}, 2), 4, 2);
  for (int r = 0; r < 4; ++r) EXPECT_EQ(d.owned(r).size(), r == 2 ? 24 : 0);
  EXPECT_EQ(d.copies(), 1);
}

TEST(Distribution, GroupsRanksByCoordinatesWithinAReplica) {
  const auto d = Distribution::block(make_extents(4, {8, 8}, 2), ProcessGrid::parse("n2h2w2"), 16);
  EXPECT_THAT(d.group(5, {Dim::height, Dim::width}), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(d.group(5, {Dim::sample}), ElementsAre(1, 5));
  EXPECT_THAT(d.group(13, {Dim::sample}), ElementsAre(9, 13));
  EXPECT_THAT(d.group(13, {all_dims.begin(), all_dims.end()}), ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
}

TEST(Distribution, FindsTheOwnersOfABox) {
  const auto d = Distribution::block(make_extents(4, {8, 8}, 2), ProcessGrid::parse("n2h2w2"), 16);
  Box box = whole(d.extents());
  box.set(Dim::height, 3, 5);
  box.set(Dim::width, 4, 9);  // an index outside the tensor has no owner
  EXPECT_THAT(d.owners(box), ElementsAre(1, 3, 5, 7, 9, 11, 13, 15));
  EXPECT_THAT(d.with_replicated(Dim::width).owners(box), testing::SizeIs(16));
  EXPECT_THAT(d.owners({}), testing::IsEmpty());
  const auto uneven = Distribution::block(make_extents(1, {5, 1}, 1), ProcessGrid::parse("h4"), 4)
                          .with_blocks(Dim::height, {2, 0, 3, 0});
  EXPECT_THAT(uneven.owners(whole(uneven.extents())), ElementsAre(0, 2));
}

TEST(Distribution, CoversEachElementOncePerCopy) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(random); };
    ProcessGrid grid;
    Extents extents;
    for (Dim d : all_dims) {
      grid[d] = pick(1, 3);
      extents[d] = pick(0, 5);
    }
    Distribution dist = Distribution::block(extents, grid, grid.size() * pick(1, 2));
    for (Dim d : all_dims)
      if (pick(0, 3) == 0) dist = dist.with_replicated(d);
    const Box box{{pick(-1, 2), pick(-1, 2), pick(-1, 2), pick(-1, 2), pick(-1, 2)},
                  {pick(0, 6), pick(0, 6), pick(0, 6), pick(0, 6), pick(0, 6)}};
    std::vector<int> owners;
    for (int r = 0; r < dist.ranks(); ++r)
      if (!intersect(dist.owned(r), box).empty()) owners.push_back(r);
    EXPECT_EQ(dist.owners(box), owners);
    std::vector<int> holders(static_cast<std::size_t>(extents.size())), first(holders.size());
    for (int r = 0; r < dist.ranks(); ++r) {
      const Box b = dist.owned(r);
      for (Index n = b.lo[0]; n < b.hi[0]; ++n)
        for (Index z = b.lo[1]; z < b.hi[1]; ++z)
          for (Index y = b.lo[2]; y < b.hi[2]; ++y)
            for (Index x = b.lo[3]; x < b.hi[3]; ++x)
              for (Index c = b.lo[4]; c < b.hi[4]; ++c) {
                const auto i = static_cast<std::size_t>(
                    (((n * extents.values[1] + z) * extents.values[2] + y) * extents.values[3] + x) *
                        extents.values[4] +
                    c);
                ++holders[i];
                first[i] += dist.is_first_copy(r) ? 1 : 0;
              }
    }
    EXPECT_THAT(holders, testing::Each(dist.copies()));
    EXPECT_THAT(first, testing::Each(1));
  }
}

TEST(Distribution, RefusesWrongArgumentsAndNamesThem) {
  const Extents extents = make_extents(2, {28, 28}, 1);
  EXPECT_EQ(message_of([&] { Distribution::block(extents, ProcessGrid::parse("h3"), 4); }),
            "aloni::views::Distribution::block: ranks = 4: expected a positive multiple of the 3 blocks of grid h3");
  EXPECT_EQ(message_of([&] { Distribution::on_root(extents, 4, 4); }),
            "aloni::views::Distribution::on_root: root = 4: expected a rank from 0 to 3");
  EXPECT_EQ(message_of([&] {
              rows(28, 3).with_blocks(Dim::height, {10, 18});
            }),
            "aloni::views::Distribution::with_blocks, height: sizes.size() = 2: expected 3, the blocks of grid h3");
  EXPECT_EQ(
      message_of([&] {
        rows(28, 3).with_blocks(Dim::height, {10, 9, 10});
      }),
      "aloni::views::Distribution::with_blocks, height: sum of sizes = 29: expected 28, the extent of the tensor");
  EXPECT_EQ(message_of([&] {
              rows(28, 3).with_blocks(Dim::height, {30, -1, -1});
            }),
            "aloni::views::Distribution::with_blocks, height: sizes = -1: expected at least 0");
}

TEST(Distribution, RefusesGridsAndExtentsBeyondTheirBounds) {
  EXPECT_THAT(message_of([] {
                Distribution::block(Extents{}, ProcessGrid{{1, 1, 65536, 65536, 1}}, 1);
              }),
              testing::HasSubstr("65536"));
  const Index large = Index{1} << 32;
  EXPECT_THAT(message_of([&] { Distribution::block(make_extents(large, {large}, 1), {}, 1); }),
              testing::HasSubstr("4294967296x1x1x4294967296x1"));
  EXPECT_THAT(message_of([&] {
                Distribution::on_root(make_extents(0, {large, large}, 1), 1, 0);
              }),
              testing::HasSubstr("0x1x4294967296x4294967296x1"))
      << "although the tensor is empty: a part of the product overflows";
  const Index most = std::numeric_limits<Index>::max();
  EXPECT_THAT(message_of([&] {
                rows(2, 3).with_blocks(Dim::height, {most, most, 4});  // 2 modulo 2^64
              }),
              testing::HasSubstr("sum of sizes"));
}

using Wide = __int128;
constexpr Index bound = Index{1} << 58;  // of elements
constexpr Wide most_blocks = Wide{1} << 30;

/// The exact number of indices of a box, and nothing if it is above the bound of tensors.
std::optional<Index> exact_size(const Box& b) {
  Wide product = 1;
  for (int i = 0; i < num_dims; ++i) {
    const Wide extent = Wide{b.hi[i]} - b.lo[i];
    if (extent <= 0) return 0;
    if (product <= bound) product *= extent;
  }
  return product <= bound ? std::optional(static_cast<Index>(product)) : std::nullopt;
}

/// Numbers at which products, sums and differences of 64 bits overflow.
Index edge_value(std::mt19937_64& random) {
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(random); };
  if (pick(0, 9) == 0)
    return std::array{std::numeric_limits<Index>::max(), std::numeric_limits<Index>::min()}[random() % 2];
  return (Index{1} << pick(0, 62)) + pick(-1, 1);
}

TEST(Box, CountsItsIndicesOrThrowsAtEverySize) {
  test::Experiment experiment("bounds/boxes");
  for (int seed = 0; seed < test::random_cases(20'000); ++seed) {
    const test::Experiment::Trial trial(experiment);
    std::mt19937_64 random(static_cast<unsigned>(seed));
    Box box{{0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}};
    for (Dim d : all_dims) {
      if (random() % 2 == 0) box.set(d, 0, edge_value(random));
      if (random() % 8 == 0) box.set(d, -edge_value(random) / 2, box.upper(d));
    }
    const std::optional<Index> size = exact_size(box);
    ASSERT_EQ(box.empty(), size == std::optional<Index>(0)) << to_string(box) << ", seed " << seed;
    try {
      ASSERT_EQ(box.size(), size) << to_string(box) << ", seed " << seed;
    } catch (const InvalidArgument&) {
      ASSERT_EQ(size, std::nullopt) << to_string(box) << ", seed " << seed;
    }
  }
}

TEST(Distribution, IsExactOrRefusedForExtentsAndGridsOfEverySize) {
  int accepted = 0, refused = 0;
  test::Experiment experiment("bounds/distributions");
  for (int seed = 0; seed < test::random_cases(5'000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(static_cast<unsigned>(seed));
    Extents extents;
    ProcessGrid grid;
    Wide product = 1, blocks = 1;
    bool valid = true;
    for (Dim d : all_dims) {
      if (random() % 2 == 0) extents[d] = edge_value(random);
      if (random() % 4 == 0) grid[d] = static_cast<int>(edge_value(random));
      if (random() % 4 != 0 && grid[d] > 4096) grid[d] %= 64;
      valid &= extents[d] >= 0 && grid[d] >= 1;
      if (valid && product <= bound) product *= std::max<Index>(extents[d], 1);
      if (valid && blocks <= most_blocks) blocks *= grid[d];
    }
    valid = valid && product <= bound && blocks <= most_blocks;
    if (valid && blocks > (1 << 16)) continue;  // would take long: the borders of all blocks are stored
    const int ranks = valid ? static_cast<int>(blocks) : 1;
    const test::Experiment::Trial trial(experiment);
    try {
      const Distribution d = Distribution::block(extents, grid, ranks);
      ++accepted;
      ASSERT_TRUE(valid) << to_string(d);
      Wide sum = 0;
      for (int r = 0; r < ranks; ++r) sum += d.owned(r).size();
      ASSERT_TRUE(sum == extents.size()) << to_string(d);
    } catch (const InvalidArgument& error) {
      ++refused;
      ASSERT_FALSE(valid) << error.what();
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
}

TEST(Box, IntersectsHullsAndContains) {
  const Box a{{0, 0, 0, 0, 0}, {2, 1, 4, 4, 3}}, b{{1, 0, 3, -2, 0}, {3, 1, 9, 2, 3}}, none{};
  EXPECT_EQ(intersect(a, b), (Box{{1, 0, 3, 0, 0}, {2, 1, 4, 2, 3}}));
  EXPECT_EQ(hull(a, b), (Box{{0, 0, 0, -2, 0}, {3, 1, 9, 4, 3}}));
  EXPECT_EQ(hull(a, none), a);
  EXPECT_EQ(hull(none, a), a);
  EXPECT_TRUE(contains(a, none));
  EXPECT_TRUE(contains(hull(a, b), b));
  EXPECT_FALSE(contains(a, b));
  EXPECT_EQ(to_string(b), "[1,3)x[0,1)x[3,9)x[-2,2)x[0,3)");
}

TEST(GhostWidths, CoverTheNeededBoxAndNoMore) {
  const Box owned{{0, 0, 10, 0, 0}, {2, 1, 20, 8, 3}}, needed{{0, 0, 8, 2, 0}, {2, 1, 21, 7, 3}};
  const GhostWidths g = widths_to_cover(owned, needed);
  EXPECT_EQ(g(Dim::height, Side::low), 2);
  EXPECT_EQ(g(Dim::height, Side::high), 1);
  EXPECT_EQ(g(Dim::width, Side::low), 0);
  EXPECT_TRUE(contains(grow(owned, g), needed));
  EXPECT_EQ(widths_to_cover(owned, Box{}), GhostWidths{});
}

}  // namespace test_distribution
}  // namespace aloni::views
