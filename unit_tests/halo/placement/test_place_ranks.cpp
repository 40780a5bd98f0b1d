#include <aloni/halo/placement/place_ranks.hpp>

#include "support/transport.hpp"

#include <aloni/core/error.hpp>
#include <aloni/halo/placement/link_table.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace aloni::halo {
namespace test_place_ranks {

class PlaceRanks : public testing::Test {
 protected:
  comm::Communicator comm = test::make_communicator();
  const int rank = comm.rank(), size = comm.size();
};

TEST_F(PlaceRanks, MakesTheHolderOfASubdomainItsRank) {
  std::mt19937 random(31);
  for (int i = 0; i < 5; ++i) {
    Placement p;
    p.rank_of.resize(static_cast<std::size_t>(size));
    std::iota(p.rank_of.begin(), p.rank_of.end(), 0);
    std::ranges::shuffle(p.rank_of, random);
    const auto placed = place_ranks(comm, p);
    ASSERT_EQ(placed.size(), size);
    EXPECT_EQ(p.rank_of[static_cast<std::size_t>(placed.rank())], rank);
    const auto holders = placed.all_gather(std::int64_t{rank});
    EXPECT_TRUE(std::ranges::equal(holders, p.rank_of));
    EXPECT_EQ(comm.rank(), rank);
    EXPECT_EQ(comm.all_reduce(std::int64_t{1}, comm::Reduction::sum), size);
  }
}

// From the machine to the communicator: what is measured is placed.
TEST_F(PlaceRanks, FollowsWhatWasMeasured) {
  const auto grid = views::ProcessGrid::parse("h" + std::to_string(size));
  const auto x = views::Distribution::block(views::make_extents(1, {100, 20}, 2), grid, size);
  const auto needed = [&](int r) {
    auto box = x.owned(r);
    box.set(views::Dim::height, box.lower(views::Dim::height) - 1, box.upper(views::Dim::height) + 1);
    return box;
  };
  const auto links = measure_links(comm, {.bytes = 1 << 14, .repetitions = 2});
  const Placement p = place(make_traffic_matrix(x, needed, {}, sizeof(float)), links.seconds_per_byte);
  EXPECT_LE(p.cost, p.trivial_cost);
  const auto placed = place_ranks(comm, p);  // throws if ranks had found different ones
  EXPECT_EQ(p.rank_of[static_cast<std::size_t>(placed.rank())], rank);
}

TEST_F(PlaceRanks, RefusesOnAllRanks) {
  Placement p;
  p.rank_of.resize(static_cast<std::size_t>(size));
  std::iota(p.rank_of.begin(), p.rank_of.end(), 0);
  Placement twice = p;
  twice.rank_of.front() = size - 1 == 0 ? 1 : size - 1;
  EXPECT_THROW(place_ranks(comm, twice), InvalidArgument);
  EXPECT_THROW(place_ranks(comm, {}), InvalidArgument);
  if (size > 1) {
    Placement other = p;
    if (rank == 1) std::swap(other.rank_of[0], other.rank_of[1]);
    EXPECT_THROW(place_ranks(comm, other), InvalidArgument);
    if (rank == 1) other.rank_of.pop_back();
    EXPECT_THROW(place_ranks(comm, other), InvalidArgument);
  }
  EXPECT_EQ(place_ranks(comm, p).rank(), rank);
}

}  // namespace test_place_ranks
}  // namespace aloni::halo
