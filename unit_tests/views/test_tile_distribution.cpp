#include <aloni/views/tile_distribution.hpp>

#include <aloni/core/error.hpp>
#include <aloni/views/process_grid.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace aloni::views {
namespace test_tile_distribution {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(TileDistribution, KnowsTheSizesOfBorderTiles) {
  struct Case {
    Index rows, columns, tile, tile_rows, tile_columns, last_height, last_width;
  };
  for (const Case& c : {Case{1000, 1000, 256, 4, 4, 232, 232}, Case{1024, 512, 256, 4, 2, 256, 256},
                        Case{5, 7, 10, 1, 1, 5, 7}, Case{10, 1, 3, 4, 1, 1, 1}, Case{3, 4, 1, 3, 4, 1, 1}}) {
    const TileDistribution d(c.rows, c.columns, c.tile);
    EXPECT_EQ(d.tile_rows(), c.tile_rows) << to_string(d);
    EXPECT_EQ(d.tile_columns(), c.tile_columns) << to_string(d);
    EXPECT_EQ(d.height(c.tile_rows - 1), c.last_height) << to_string(d);
    EXPECT_EQ(d.width(c.tile_columns - 1), c.last_width) << to_string(d);
    EXPECT_EQ(d.height(0), std::min(c.tile, c.rows)) << to_string(d);
  }
}

TEST(TileDistribution, TilesMayBeTallerOrWiderThanSquares) {
  const TileDistribution tall(100, 70, {40, 10}, {2, 3});
  EXPECT_EQ(tall.tile_rows(), 3);
  EXPECT_EQ(tall.tile_columns(), 7);
  EXPECT_EQ(tall.height(2), 20);
  EXPECT_EQ(tall.width(6), 10);
  EXPECT_EQ(tall.first_row(2), 80);
  EXPECT_EQ(tall.first_column(6), 60);
  EXPECT_EQ(tall.owner({1, 4}), 4);
  const TileDistribution wide(100, 70, {10, 40});
  EXPECT_EQ(wide.tile_rows(), 10);
  EXPECT_EQ(wide.width(1), 30);
  EXPECT_EQ(to_string(tall), "100x70 in tiles of 40x10 over 2x3 ranks");
}

TEST(TileDistribution, KnowsWhichTilesReachTheDiagonal) {
  for (const TileShape shape : {TileShape(10), TileShape(40, 10), TileShape(10, 40), TileShape(15, 10)}) {
    const TileDistribution d(100, 100, shape);
    for (Index j = 0; j < d.tile_columns(); ++j) {
      EXPECT_EQ(d.diagonal_row(j), d.first_column(j) / shape.rows);
      for (Index i = 0; i < d.tile_rows(); ++i) {
        const bool has_lower_element = d.first_row(i) + d.height(i) - 1 >= d.first_column(j);
        EXPECT_EQ(d.is_lower({i, j}), has_lower_element) << i << " " << j << " of " << to_string(d);
      }
    }
  }
}

TEST(TileDistribution, DealsTilesToTheGridCyclically) {
  const TileDistribution d(70, 50, 10, {2, 3});
  const int owners[7][5] = {{0, 1, 2, 0, 1}, {3, 4, 5, 3, 4}, {0, 1, 2, 0, 1}, {3, 4, 5, 3, 4},
                            {0, 1, 2, 0, 1}, {3, 4, 5, 3, 4}, {0, 1, 2, 0, 1}};
  for (Index i = 0; i < 7; ++i)
    for (Index j = 0; j < 5; ++j) EXPECT_EQ(d.owner({i, j}), owners[i][j]) << i << " " << j;
  EXPECT_THAT(d.tiles_of(5), ElementsAre(Tile{1, 2}, Tile{3, 2}, Tile{5, 2}));
  EXPECT_THAT(d.tiles_of(3), ElementsAre(Tile{1, 0}, Tile{3, 0}, Tile{5, 0}, Tile{1, 3}, Tile{3, 3}, Tile{5, 3}));
}

TEST(TileDistribution, RanksOwnEachTileOnceInTheOrderOfPositions) {
  for (const TileGrid& grid : {TileGrid{1, 1}, TileGrid{2, 3}, TileGrid{4, 1}, TileGrid{3, 5},
                               TileGrid{1, 2, {0, 1, 0}}, TileGrid{2, 3, {2, 0, 0, 1, 0}}, TileGrid{1, 3, {0, 2}}})
    for (const Index rows : {0, 1, 31, 40})
      for (const Index columns : {1, 20, 33}) {
        const TileDistribution d(rows, columns, 10, grid);
        Index tiles = 0;
        for (int rank = 0; rank < d.ranks(); ++rank) {
          const std::vector<Tile> own = d.tiles_of(rank);
          EXPECT_EQ(static_cast<Index>(own.size()), d.tile_rows_of(rank) * d.tile_columns_of(rank));
          for (std::size_t i = 0; i < own.size(); ++i) {
            EXPECT_TRUE(d.contains(own[i]));
            EXPECT_EQ(d.owner(own[i]), rank);
            EXPECT_EQ(d.position(own[i]), static_cast<Index>(i)) << to_string(d) << " " << to_string(own[i]);
          }
          tiles += static_cast<Index>(own.size());
        }
        EXPECT_EQ(tiles, d.tile_rows() * d.tile_columns()) << to_string(d);
      }
}

TEST(TileDistribution, RanksBeyondTheTilesOwnNothing) {
  const TileDistribution d(10, 10, 10, {2, 2});
  EXPECT_EQ(d.tiles_of(0).size(), 1U);
  for (int rank = 1; rank < 4; ++rank) EXPECT_THAT(d.tiles_of(rank), IsEmpty());
  EXPECT_FALSE(d.contains({1, 0}));
  EXPECT_FALSE(d.contains({0, -1}));
}

TEST(TileDistribution, ChoosesTheSquarestGrid) {
  const std::pair<int, TileGrid> cases[] = {{1, {1, 1}}, {2, {1, 2}},  {6, {2, 3}},
                                            {7, {1, 7}}, {16, {4, 4}}, {24, {4, 6}}};
  for (const auto& [ranks, grid] : cases) EXPECT_EQ(squarest_grid(ranks), grid) << ranks;
  EXPECT_THROW(squarest_grid(0), InvalidArgument);
}

TEST(TileDistribution, DealsTileColumnsByTheCycle) {
  const TileDistribution d(20, 70, 10, {2, 2, {0, 1, 0}});
  const int owners[2][7] = {{0, 1, 0, 0, 1, 0, 0}, {2, 3, 2, 2, 3, 2, 2}};
  for (Index i = 0; i < 2; ++i)
    for (Index j = 0; j < 7; ++j) EXPECT_EQ(d.owner({i, j}), owners[i][j]) << i << " " << j;
  EXPECT_THAT(d.tiles_of(3), ElementsAre(Tile{1, 1}, Tile{1, 4}));
  EXPECT_EQ(to_string(d), "20x70 in tiles of 10 over 2x2 ranks (columns 0 1 0)");
  EXPECT_NE(d, TileDistribution(20, 70, 10, {2, 2}));
}

TEST(TileDistribution, GivesFasterRanksMoreTileColumns) {
  const auto cycle_of = [](std::vector<double> speeds) { return grid_by_speed(speeds).column_cycle; };
  EXPECT_THAT(cycle_of({2, 1}), ElementsAre(0, 0, 1));
  EXPECT_THAT(cycle_of({10, 20}), ElementsAre(1, 0, 1));
  EXPECT_THAT(cycle_of({1, 1, 2}), ElementsAre(2, 0, 1, 2));
  EXPECT_THAT(cycle_of({1, 1.04}), IsEmpty());
  EXPECT_EQ(grid_by_speed(std::vector{3.0, 3.0, 3.0}), (TileGrid{1, 3}));
  for (const auto& speeds : {std::vector{3.0, 2.0, 0.7, 0.7}, {1.0, 0.1}, {5.0, 4.0}, {1.0, 1.0, 1.0, 0.9, 0.5}}) {
    const std::vector<int> cycle = cycle_of(speeds);
    double all = 0, longest = 0;
    for (const double speed : speeds) all += speed;
    for (std::size_t r = 0; r < speeds.size(); ++r) {
      const auto columns = static_cast<double>(std::ranges::count(cycle, static_cast<int>(r)));
      EXPECT_GE(columns, 1);
      longest = std::max(longest, columns / speeds[r]);
    }
    EXPECT_LE(longest * all, 1.05 * static_cast<double>(cycle.size())) << cycle.size();
  }
  EXPECT_THROW(cycle_of({}), InvalidArgument);
  EXPECT_THROW(cycle_of({1, 0}), InvalidArgument);
  EXPECT_THROW(cycle_of({1, std::numeric_limits<double>::quiet_NaN()}), InvalidArgument);
  EXPECT_THROW(cycle_of({100, 1}), InvalidArgument);
  EXPECT_EQ(cycle_of({31, 1}).size(), 32U);
  EXPECT_THROW(cycle_of(std::vector<double>(33, 1)), InvalidArgument);
}

TEST(TileDistribution, RefusesWrongSizesWithTheirNames) {
  EXPECT_THROW(TileDistribution(-1, 4, 2), InvalidArgument);
  EXPECT_THROW(TileDistribution(Index{1} << 40, Index{1} << 40, 2), InvalidArgument);
  EXPECT_THROW(TileDistribution(4, 4, {2, 0}), InvalidArgument);
  EXPECT_THROW(TileDistribution(4, 4, 2, {0, 1}), InvalidArgument);
  EXPECT_THROW(TileDistribution(4, 4, 2, {1 << 20, 1 << 20}), InvalidArgument);
  EXPECT_THROW(TileDistribution(4, 4, 2, {1, 2, {0, 2}}), InvalidArgument);
  EXPECT_THROW(TileDistribution(4, 4, 2, {1, 2, {0, -1}}), InvalidArgument);
  try {
    TileDistribution(4, 4, 0);
    FAIL();
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(), "aloni::views::TileDistribution: tile = 0: expected at least 1 row and column");
  }
  EXPECT_EQ(to_string(TileDistribution(1000, 1000, 256, {2, 3})), "1000x1000 in tiles of 256 over 2x3 ranks");
}

}  // namespace test_tile_distribution
}  // namespace aloni::views
