#include <aloni/halo/placement/traffic_matrix.hpp>

#include <aloni/core/error.hpp>

#include <gtest/gtest.h>

#include <vector>

namespace aloni::halo {
namespace test_traffic_matrix {

using views::Dim;
using views::Distribution;
using views::ProcessGrid;

TEST(TrafficMatrix, IsWhatThePlansSend) {
  const auto dist = Distribution::block(views::make_extents(2, {9, 7}, 3), views::ProcessGrid::parse("n2h3w2"), 24);
  const auto needed = [&](int rank) {
    auto box = dist.owned(rank);
    box.set(Dim::height, box.lower(Dim::height) - 2, box.upper(Dim::height) + 1);
    box.set(Dim::width, box.lower(Dim::width) - 1, box.upper(Dim::width) + 1);
    return box;
  };
  const auto boundaries = BoundaryConditions{}.set(Dim::width, Boundary::periodic);
  const TrafficMatrix traffic = make_traffic_matrix(dist, needed, boundaries, 2.5);
  ASSERT_EQ(traffic.size(), 24);
  for (int rank = 0; rank < 24; ++rank) {
    std::vector<TrafficMatrix::Share> expected;
    for (const auto& m : plan_halo(dist, needed, boundaries, rank).sends)
      expected.push_back({m.peer, 2.5 * static_cast<double>(m.elements)});
    EXPECT_EQ(traffic.sends[static_cast<std::size_t>(rank)], expected) << rank;
    EXPECT_FALSE(expected.empty());
  }
  EXPECT_THROW(make_traffic_matrix(dist, needed, boundaries, 0), InvalidArgument);
}

TEST(TrafficMatrix, OfTwoTensorsIsTheSum) {
  const TrafficMatrix a{.sends = {{{1, 2}}, {{0, 3}, {2, 4}}, {}}, .grid = ProcessGrid::parse("h3")};
  const TrafficMatrix b{.sends = {{{2, 5}}, {{2, 6}}, {{0, 7}}}, .grid = ProcessGrid::parse("w1")};
  const TrafficMatrix sum{.sends = {{{1, 2}, {2, 5}}, {{0, 3}, {2, 10}}, {{0, 7}}}, .grid = a.grid};
  EXPECT_EQ(a + b, sum);
  EXPECT_EQ(b + a, sum);
  EXPECT_THROW(a + TrafficMatrix{}, InvalidArgument);
}

}  // namespace test_traffic_matrix
}  // namespace aloni::halo
