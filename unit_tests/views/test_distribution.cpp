#include <aloni/views/distribution.hpp>
#include <aloni/views/ghost_widths.hpp>

#include <aloni/core/error.hpp>

#include <gmock/gmock.h>

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

TEST(Distribution, LeavesTheLastBlocksEmptyWhenThereAreTooFewElements) {
  const auto d = rows(2, 4);
  EXPECT_THAT(d.borders(Dim::height), ElementsAre(0, 1, 2, 2, 2));
  EXPECT_TRUE(d.owned(3).empty());
  EXPECT_EQ(d.block_of(Dim::height, 1), 1);
}

TEST(Distribution, FindsTheBlockBehindEmptyOnes) {
  const auto d = rows(5, 5).with_blocks(Dim::height, {0, 2, 0, 0, 3});
  EXPECT_EQ(d.block_of(Dim::height, 0), 1);
  EXPECT_EQ(d.block_of(Dim::height, 2), 4);
  EXPECT_EQ(d.block_of(Dim::height, 4), 4);
}

TEST(Distribution, HoldsAllOfAReplicatedDimensionOnEveryRank) {
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

TEST(Distribution, PutsAllOnOneRoot) {
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

TEST(Distribution, CoversEveryElementAsOftenAsThereAreCopies) {
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

TEST(Distribution, RefusesWhatDoesNotFitAndSaysWhat) {
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

TEST(GhostWidths, CoverWhatIsNeededAndNoMore) {
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
