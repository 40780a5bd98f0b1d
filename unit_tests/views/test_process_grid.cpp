#include <aloni/views/process_grid.hpp>

#include <aloni/core/error.hpp>

#include <gmock/gmock.h>

#include <set>

namespace aloni::views {
namespace test_process_grid {

TEST(ProcessGrid, ReadsLettersAndCountsInAnyOrder) {
  const ProcessGrid grid = ProcessGrid::parse("h3n2");
  EXPECT_EQ(grid, (ProcessGrid{{2, 1, 3, 1, 1}}));
  EXPECT_EQ(to_string(grid), "n2h3");
  EXPECT_EQ(grid.size(), 6);
  EXPECT_EQ(grid.spatial_size(), 3);
  EXPECT_EQ(ProcessGrid::parse("1"), ProcessGrid{});
  EXPECT_EQ(to_string(ProcessGrid{}), "1");
  EXPECT_EQ(ProcessGrid::parse("d2h3w4c5n6"), (ProcessGrid{{6, 2, 3, 4, 5}}));
}

TEST(ProcessGrid, RefusesOtherTextsWithTheExpectedForm) {
  for (const char* text :
       {"", "0", "2", "h", "h0", "h-1", "x2", "h2h3", "h2 w2", "2h", "H2", "h99999999999", "n99999h99999"})
    EXPECT_THROW(ProcessGrid::parse(text), InvalidArgument) << text;
  try {
    ProcessGrid::parse("h2h3");
    FAIL();
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(
        e.what(),
        "aloni::views::ProcessGrid::parse: text = \"h2h3\": expected each letter at most once, but h occurs again");
  }
}

TEST(ProcessGrid, NumbersRanksWithTheChannelFastest) {
  const ProcessGrid grid = ProcessGrid::parse("n2h3c2");
  EXPECT_EQ(grid.coordinate(1), (std::array<int, 5>{0, 0, 0, 0, 1}));
  EXPECT_EQ(grid.coordinate(2), (std::array<int, 5>{0, 0, 1, 0, 0}));
  EXPECT_EQ(grid.coordinate(6), (std::array<int, 5>{1, 0, 0, 0, 0}));
  for (int rank = 0; rank < grid.size(); ++rank) EXPECT_EQ(grid.rank_of(grid.coordinate(rank)), rank);
  EXPECT_EQ(grid.coordinate(12 + 7), grid.coordinate(7)) << "ranks beyond the grid repeat it";
}

TEST(ProcessGrid, ListsTheRanksOfGivenCoordinates) {
  const ProcessGrid grid = ProcessGrid::parse("n2h3c2");
  EXPECT_THAT(grid.ranks_of({{{0, 1}, {0}, {1, 2}, {0}, {1}}}), testing::ElementsAre(3, 5, 9, 11));
  EXPECT_THAT(grid.ranks_of({{{0, 1}, {0}, {}, {0}, {1}}}), testing::IsEmpty());
}

TEST(ProcessGrid, RefusesASizeThatIsNoNumberOfRanks) {
  for (const ProcessGrid& grid : {ProcessGrid{{1, 1, 65536, 65536, 1}}, ProcessGrid{{1, 1, 46341, 46341, 1}},
                                  ProcessGrid{{1, 0, 1, 1, 1}}, ProcessGrid{{1, -2, -2, 1, 1}}}) {
    EXPECT_THROW((void)grid.size(), InvalidArgument) << to_string(grid);
    EXPECT_THROW((void)grid.spatial_size(), InvalidArgument) << to_string(grid);
  }
  EXPECT_EQ((ProcessGrid{{1, 1, 32768, 32768, 1}}.size()), 1 << 30);
}

TEST(ProcessGrid, ListsEachGridOfASizeOnce) {
  const auto grids = all_grids(12, {Dim::sample, Dim::height, Dim::width});
  std::set<std::string> texts;
  for (const auto& g : grids) {
    EXPECT_EQ(g.size(), 12);
    EXPECT_EQ(g[Dim::depth], 1);
    texts.insert(to_string(g));
  }
  EXPECT_EQ(texts.size(), grids.size());
  EXPECT_EQ(grids.size(), 18U);  // ordered factorisations of 12 = 2·2·3 into three factors: C(4,2) · C(3,2)
  EXPECT_EQ(all_grids(5, {Dim::height}).size(), 1U);
  EXPECT_THAT(all_grids(2, {}), testing::IsEmpty());
}

}  // namespace test_process_grid
}  // namespace aloni::views
