#include <aloni/halo/flow.hpp>

#include <aloni/core/error.hpp>

#include <gtest/gtest.h>

#include <vector>

namespace aloni::halo {
namespace {

using views::Dim;
using views::Distribution;
using views::ProcessGrid;

TEST(Flow, IsWhatThePlansSend) {
  const auto dist = Distribution::block(views::make_extents(2, {9, 7}, 3), views::ProcessGrid::parse("n2h3w2"), 24);
  const auto needed = [&](int rank) {
    auto box = dist.owned(rank);
    box.set(Dim::height, box.lower(Dim::height) - 2, box.upper(Dim::height) + 1);
    box.set(Dim::width, box.lower(Dim::width) - 1, box.upper(Dim::width) + 1);
    return box;
  };
  const auto boundaries = BoundaryConditions{}.set(Dim::width, Boundary::periodic);
  const Flow flow = make_flow(dist, needed, boundaries, 2.5);
  ASSERT_EQ(flow.size(), 24);
  for (int rank = 0; rank < 24; ++rank) {
    std::vector<Flow::Share> expected;
    for (const auto& m : plan_halo(dist, needed, boundaries, rank).sends)
      expected.push_back({m.peer, 2.5 * static_cast<double>(m.elements)});
    EXPECT_EQ(flow.sends[static_cast<std::size_t>(rank)], expected) << rank;
    EXPECT_FALSE(expected.empty());
  }
  EXPECT_THROW(make_flow(dist, needed, boundaries, 0), InvalidArgument);
}

TEST(Flow, OfTwoTensorsIsTheSum) {
  const Flow a{.sends = {{{1, 2}}, {{0, 3}, {2, 4}}, {}}, .grid = ProcessGrid::parse("h3")};
  const Flow b{.sends = {{{2, 5}}, {{2, 6}}, {{0, 7}}}, .grid = ProcessGrid::parse("w1")};
  const Flow sum{.sends = {{{1, 2}, {2, 5}}, {{0, 3}, {2, 10}}, {{0, 7}}}, .grid = a.grid};
  EXPECT_EQ(a + b, sum);
  EXPECT_EQ(b + a, sum);
  EXPECT_THROW(a + Flow{}, InvalidArgument);
}

}  // namespace
}  // namespace aloni::halo
