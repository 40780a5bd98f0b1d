#include <aloni/halo/placement/decomposition.hpp>

#include <aloni/core/error.hpp>
#include <aloni/views/box.hpp>

#include <gmock/gmock.h>

#include <map>
#include <random>
#include <string>
#include <vector>

namespace aloni::halo {
namespace test_decomposition {

using views::Dim;
using views::make_extents;

const std::vector<Dim> spatial{Dim::depth, Dim::height, Dim::width};

std::string grid_of(const views::Extents& extents, int ranks) {
  return to_string(decompose(extents, spatial, ranks).grid);
}

TEST(Decomposition, SplitsTheLongestDimensionByTheLargestPrimeFactorFirst) {
  const auto cube = make_extents(1, {1024, 1024, 1024}, 1);
  EXPECT_EQ(grid_of(cube, 1), "1");
  EXPECT_EQ(grid_of(cube, 2), "d2");
  EXPECT_EQ(grid_of(cube, 6), "d3h2");
  EXPECT_EQ(grid_of(cube, 8), "d2h2w2");
  EXPECT_EQ(grid_of(cube, 12), "d3h2w2");
  EXPECT_EQ(grid_of(cube, 30), "d5h3w2");
  EXPECT_EQ(grid_of(cube, 7), "d7");
  EXPECT_EQ(grid_of(cube, 64), "d4h4w4");
  EXPECT_EQ(grid_of(make_extents(1, {400, 100, 100}, 1), 4), "d4");
  EXPECT_EQ(grid_of(make_extents(1, {100, 400, 100}, 1), 8), "d2h4");
  EXPECT_EQ(grid_of(make_extents(1, {6, 100, 100}, 1), 18), "h6w3");
  // With the smallest factor first it would be h6w2: blocks of 167 × 500 instead of 333 × 250.
  EXPECT_EQ(grid_of(make_extents(1, {1, 1000, 1000}, 1), 12), "h3w4");
}

TEST(Decomposition, DoesNotRoundLengths) {
  // 10 / 3 is more than 3: rows are split again, not the 3 columns.
  EXPECT_EQ(to_string(decompose(make_extents(1, {10, 3}, 1), {Dim::width, Dim::height}, 6).grid), "h6");
}

TEST(Decomposition, SplitsTheFirstOfEquallyLongDimensions) {
  const auto square = make_extents(1, {64, 64}, 1);
  EXPECT_EQ(to_string(decompose(square, {Dim::height, Dim::width}, 2).grid), "h2");
  EXPECT_EQ(to_string(decompose(square, {Dim::width, Dim::height}, 2).grid), "w2");
}

TEST(Decomposition, SplitsForNodesBeforeRanks) {
  const auto cube = make_extents(1, {1024, 1024, 1024}, 1);
  const auto d = decompose(cube, spatial, 2, 6);
  EXPECT_EQ(to_string(d.nodes), "d2");
  EXPECT_EQ(to_string(d.grid), "d2h3w2");
  EXPECT_EQ(to_string(decompose(cube, spatial, 12).grid), "d3h2w2");  // without nodes the 3 splits the depth
  const auto many = decompose(make_extents(1, {2048, 1024, 1024}, 1), spatial, 128, 8);
  EXPECT_EQ(to_string(many.nodes), "d8h4w4");
  EXPECT_EQ(to_string(many.grid), "d16h8w8");
}

TEST(Decomposition, ComparesLengthsInHaloWidths) {
  DecompositionOptions options;
  options.halo[views::position(Dim::height)] = 4;
  EXPECT_EQ(to_string(decompose(make_extents(1, {300, 100}, 1), {Dim::height, Dim::width}, 2, options).grid), "w2");
  EXPECT_EQ(to_string(decompose(make_extents(1, {500, 100}, 1), {Dim::height, Dim::width}, 2, options).grid), "h2");
}

TEST(Decomposition, GivesEveryNodeABrickOfBlocks) {
  std::mt19937 random(20);
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(random); };
  for (int i = 0; i < 200; ++i) {
    const auto extents = make_extents(pick(1, 9), {pick(1, 300), pick(1, 300), pick(1, 300)}, pick(1, 9));
    const int nodes = pick(1, 40), ranks = pick(1, 12);
    const auto d = decompose(extents, {Dim::sample, Dim::height, Dim::width}, nodes, ranks);
    ASSERT_EQ(d.nodes.size(), nodes);
    ASSERT_EQ(d.grid.size(), nodes * ranks);
    EXPECT_EQ(d.grid[Dim::depth] * d.grid[Dim::channel], 1);
    std::map<int, views::Box> bricks;
    std::map<int, int> blocks;
    for (int b = 0; b < d.grid.size(); ++b) {
      const auto c = d.grid.coordinate(b);
      const views::Box cell{{c[0], c[1], c[2], c[3], c[4]}, {c[0] + 1, c[1] + 1, c[2] + 1, c[3] + 1, c[4] + 1}};
      auto& brick = bricks[node_of(d, b)];
      brick = hull(brick, cell);
      ++blocks[node_of(d, b)];
    }
    ASSERT_EQ(static_cast<int>(bricks.size()), nodes) << to_string(d.grid) << " on " << to_string(d.nodes);
    for (const auto& [node, brick] : bricks) {
      EXPECT_GE(node, 0);
      EXPECT_LT(node, nodes);
      EXPECT_EQ(blocks[node], ranks);
      EXPECT_EQ(brick.size(), ranks);  // their hull contains no other blocks
    }
  }
}

TEST(Decomposition, RefusesInvalidArguments) {
  const auto extents = make_extents(1, {8, 8}, 1);
  const std::vector<Dim> rows{Dim::height};
  EXPECT_THROW(decompose(extents, {}, 1, 1), InvalidArgument);
  EXPECT_THROW(decompose(extents, {Dim::height, Dim::width, Dim::height}, 1, 1), InvalidArgument);
  EXPECT_THROW(decompose(extents, rows, 0, 1), InvalidArgument);
  EXPECT_THROW(decompose(extents, rows, 1, 0), InvalidArgument);
  EXPECT_THROW(decompose(extents, rows, -1), InvalidArgument);
  EXPECT_THROW(decompose(extents, rows, 65536, 65536), InvalidArgument);  // 0 modulo 2^32
  DecompositionOptions options;
  options.halo[views::position(Dim::height)] = 0;
  EXPECT_THROW(decompose(extents, rows, 2, options), InvalidArgument);
}

}  // namespace test_decomposition
}  // namespace aloni::halo
