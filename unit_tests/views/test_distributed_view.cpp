#include <aloni/views/distributed_view.hpp>

#include <aloni/core/config.hpp>

#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <set>
#include <type_traits>

namespace aloni::views {
namespace test_distributed_view {

using testing::ElementsAre;
using Exec = Kokkos::DefaultExecutionSpace;
using Memory = Exec::memory_space;
using View2 = DistributedView<float, 2>;

const Distribution thirds = Distribution::block(make_extents(2, {28, 6}, 3), ProcessGrid::parse("h3"), 3);

GhostWidths rows_around(Index below, Index above) {
  GhostWidths g;
  g(Dim::height, Side::low) = below;
  g(Dim::height, Side::high) = above;
  return g;
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

template <class View>
std::vector<std::size_t> extents(const View& v) {
  std::vector<std::size_t> e;
  for (std::size_t i = 0; i < View::rank(); ++i) e.push_back(v.extent(i));
  return e;
}

struct NumberCells {
  View2::view_type view;
  GlobalIndex<2> global;
  KOKKOS_FUNCTION void operator()(Index n, Index h, Index w, Index c) const {
    const auto g = global(n, h, w, c);
    view(n, h, w, c) = static_cast<float>(g[3] + 10 * (g[2] + 10 * (g[1] + 100 * g[0])));
  }
};

// Sets every owned cell to its global number.
void number(const View2& x) {
  const Exec exec;
  Kokkos::parallel_for("aloni::test: number", x.owned_policy(exec), NumberCells{x.owned(), x.global_index()});
  exec.fence("aloni::test: numbered");
}

template <class View>
auto on_host(const View& v) {
  const auto mirror = create_mirror(Kokkos::HostSpace{}, v);
  deep_copy(Exec{}, mirror, v);
  Kokkos::DefaultHostExecutionSpace{}.fence("aloni::test: before reading");
  Exec{}.fence("aloni::test: before reading");
  return mirror;
}

TEST(DistributedView, OwnsItsBlockAndGhostsChannelsLast) {
  const View2 x(Exec{}, "x", thirds, 1, rows_around(2, 1));
  EXPECT_EQ(x.owned_box(), (Box{{0, 0, 10, 0, 0}, {2, 1, 19, 6, 3}}));
  EXPECT_EQ(x.box_with_ghosts(), (Box{{0, 0, 8, 0, 0}, {2, 1, 20, 6, 3}}));
  EXPECT_THAT(extents(x.owned()), ElementsAre(2, 9, 6, 3));
  EXPECT_THAT(extents(x.with_ghosts_unchecked()), ElementsAre(2, 12, 6, 3));
  EXPECT_EQ(x.with_ghosts_unchecked().stride(3), 1U);
  EXPECT_EQ(x.owned().data(), x.with_ghosts_unchecked().data() + 2 * 6 * 3);
  EXPECT_THAT(extents(x.ghost(Dim::height, Side::low)), ElementsAre(2, 2, 6, 3));
  EXPECT_THAT(extents(x.ghost(Dim::height, Side::high)), ElementsAre(2, 1, 6, 3));
  EXPECT_THAT(extents(x.ghost(Dim::width, Side::high)), ElementsAre(2, 12, 0, 3));
  EXPECT_THAT(extents(x.local_unchecked()), ElementsAre(2, 1, 12, 6, 3));
  EXPECT_THAT(extents(x.local_owned()), ElementsAre(2, 1, 9, 6, 3));
  EXPECT_TRUE(is_dense(x.local_unchecked()));
  EXPECT_EQ(x.label(), "x");
}

TEST(DistributedView, ExistsForOneToThreeSpatialDimensions) {
  const auto line = Distribution::block(make_extents(2, {9}, 3), ProcessGrid::parse("w2"), 2);
  EXPECT_THAT(extents(DistributedView<double, 1>(Exec{}, "x", line, 1).owned()), ElementsAre(2, 4, 3));
  EXPECT_THAT(extents(DistributedView<double, 1>(Exec{}, "x", line, 1).local()), ElementsAre(2, 1, 1, 4, 3));
  const auto volume = Distribution::block(make_extents(2, {4, 5, 6}, 3), ProcessGrid::parse("d2"), 2);
  EXPECT_THAT(extents(DistributedView<float, 3>(Exec{}, "x", volume, 1).owned()), ElementsAre(2, 2, 5, 6, 3));
  EXPECT_EQ(message_of([&] { DistributedView<float, 2>(Exec{}, "x", volume, 1); }),
            "aloni::views::DistributedView: extent of depth = 4: expected 1 without ghosts, because a View of 2 "
            "spatial dimensions has no depth");
}

TEST(DistributedView, KeepsThePositionOfAnEmptyBlock) {
  const View2 x(Exec{}, "x", thirds.with_blocks(Dim::height, {28, 0, 0}), 1, rows_around(2, 0));
  EXPECT_TRUE(x.owned_box().empty());
  EXPECT_EQ(x.box_with_ghosts().lower(Dim::height), 26);
  EXPECT_THAT(extents(x.owned()), ElementsAre(2, 0, 6, 3));
  EXPECT_THAT(extents(x.ghost(Dim::height, Side::low)), ElementsAre(2, 2, 6, 3));
}

TEST(DistributedView, GivesGlobalIndicesToKernels) {
  const View2 x(Exec{}, "x", thirds, 1, rows_around(2, 1));
  number(x);
  const auto host = on_host(x).with_ghosts_unchecked();
  EXPECT_EQ(host(1, 2, 3, 2), 2 + 10 * (3 + 10 * (10 + 100)));
  EXPECT_EQ(host(0, 1, 0, 1), 0) << "the kernel does not write ghosts";
}

TEST(DistributedView, SplitsIntoInteriorAndDisjointBorder) {
  const auto d = Distribution::block(make_extents(2, {5, 6, 7}, 3), ProcessGrid{}, 1);
  for (Index reach = 0; reach < 5; ++reach) {
    GhostWidths widths;
    widths(Dim::depth, Side::low) = reach;
    widths(Dim::height, Side::low) = 1;
    widths(Dim::height, Side::high) = reach;
    widths(Dim::width, Side::high) = 2;
    const DistributedView<float, 3> x(Exec{}, "x", d, 0);
    auto boxes = x.boundary(widths);
    boxes.push_back(x.interior(widths));
    Index cells = 0;
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      EXPECT_TRUE(contains(x.owned_box(), boxes[i]));
      cells += boxes[i].size();
      for (std::size_t j = 0; j < i; ++j) EXPECT_TRUE(intersect(boxes[i], boxes[j]).empty());
    }
    EXPECT_EQ(cells, x.owned_box().size());
    EXPECT_EQ(x.interior(widths).size(), 2 * (5 - reach) * std::max<Index>(0, 5 - reach) * 5 * 3);
  }
}

TEST(DistributedView, WrapsMemoryOfAnyLayoutWithoutCopy) {
  const auto check = [](const auto& user) {
    const auto x = View2::wrap(user, thirds, 1, rows_around(2, 1));
    EXPECT_EQ(x.with_ghosts_unchecked().data(), user.data());
    number(x);
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, user);
    EXPECT_EQ(host(1, 2 + 4, 3, 2), 2 + 10 * (3 + 10 * (14 + 100)));
  };
  check(Kokkos::View<float****, Kokkos::LayoutRight, Memory>("user", 2, 12, 6, 3));
  check(Kokkos::View<float****, Kokkos::LayoutLeft, Memory>("user", 2, 12, 6, 3));
}

TEST(DistributedView, WrapsOtherOrdersOfAxes) {
  const Kokkos::View<float****, Kokkos::LayoutRight, Memory> nchw("user", 2, 3, 12, 6);
  const auto x =
      View2::wrap_permuted(nchw, {Dim::sample, Dim::channel, Dim::height, Dim::width}, thirds, 1, rows_around(2, 1));
  number(x);
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, nchw);
  EXPECT_EQ(host(1, 2, 2 + 4, 3), 2 + 10 * (3 + 10 * (14 + 100)));
}

TEST(DistributedView, WrapsViewsWithFewerAxes) {
  const auto scalars = Distribution::block(make_extents(1, {28, 6}, 1), ProcessGrid::parse("h3"), 3);
  const auto check = [&](const auto& user) {
    const auto x = View2::wrap_permuted(user, {Dim::height, Dim::width}, scalars, 1, rows_around(2, 1));
    EXPECT_EQ(x.with_ghosts_unchecked().data(), user.data());
    number(x);
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, user);
    EXPECT_EQ(host(2 + 4, 3), 10 * (3 + 10 * 14));
  };
  check(Kokkos::View<float**, Kokkos::LayoutRight, Memory>("user", 12, 6));
  check(Kokkos::View<float**, Kokkos::LayoutLeft, Memory>("user", 12, 6));
  const Kokkos::View<float**, Memory> user("user", 12, 6);
  EXPECT_EQ(
      message_of([&] {
        View2::wrap_permuted(user, {Dim::height, Dim::width}, thirds, 1, rows_around(2, 1));
      }),
      "aloni::views::DistributedView::wrap: extent of sample = 1: expected 2: 2 owned by rank 1 and 0 + 0 ghosts");
}

TEST(DistributedView, KeepsAWrappedViewAlive) {
  Kokkos::View<float****, Memory> user("user", 2, 12, 6, 3);
  const auto x = View2::wrap(user, thirds, 1, rows_around(2, 1));
  EXPECT_EQ(user.use_count(), 2);
  EXPECT_EQ(x.label(), "user");
}

TEST(DistributedView, NamesTheWrongArgument) {
  const Kokkos::View<float****, Memory> user("user", 2, 11, 6, 3);
  EXPECT_EQ(
      message_of([&] { View2::wrap(user, thirds, 1, rows_around(2, 1)); }),
      "aloni::views::DistributedView::wrap: extent of height = 11: expected 12: 9 owned by rank 1 and 2 + 1 ghosts");
  EXPECT_EQ(
      message_of([&] {
        View2::wrap_permuted(user, {Dim::sample, Dim::height, Dim::height, Dim::channel}, thirds, 1, rows_around(1, 1));
      }),
      "aloni::views::DistributedView::wrap: order[2] = height: expected a dimension of the View, each at most once");
  EXPECT_EQ(message_of([&] { View2(Exec{}, "x", thirds, 3); }),
            "aloni::views::DistributedView: rank = 3: expected a rank of the distribution, from 0 to 2");
  EXPECT_EQ(message_of([&] { View2(Exec{}, "x", thirds, 0, rows_around(-1, 0)); }),
            "aloni::views::DistributedView: ghosts, height = -1: expected at least 0");
  const View2 x(Exec{}, "x", thirds, 1);
  EXPECT_EQ(message_of([&] {
              x.subview(Box{{0, 0, 9, 0, 0}, {2, 1, 12, 6, 3}});
            }),
            "aloni::views::DistributedView::subview: global = [0,2)x[0,1)x[9,12)x[0,6)x[0,3): expected a box inside "
            "the owned box and ghosts of rank 1, [0,2)x[0,1)x[10,19)x[0,6)x[0,3)");
}

TEST(DistributedView, RefusesStaleGhostsInBuildsWithDebugChecks) {
  const View2 x(Exec{}, "x", thirds, 1, rows_around(2, 1));
  const View2 copy = x;
  const std::string expected =
      config::debug_checks
          ? "aloni::views::DistributedView::with_ghosts: ghosts of \"x\" = stale: expected an exchange after the owned "
            "values changed; with_ghosts_unchecked() and local_unchecked() skip this check"
          : "no error";
  EXPECT_EQ(message_of([&] { x.with_ghosts(); }), expected);
  copy.mark_fresh();
  EXPECT_EQ(x.ghost_state(), GhostState::fresh) << "copies of a handle share the state";
  EXPECT_EQ(message_of([&] { x.with_ghosts(); }), "no error");
  x.mark_stale();
  EXPECT_EQ(message_of([&] { copy.local(); }) == "no error", !config::debug_checks);
  EXPECT_EQ(View2(Exec{}, "x", thirds, 1).ghost_state(), GhostState::fresh) << "a tensor without ghosts is fresh";
}

TEST(DistributedView, CopiesBetweenLayoutsAndGhostWidths) {
  const View2 x(Exec{}, "x", thirds, 1, rows_around(2, 1));
  number(x);
  x.mark_fresh();
  const Kokkos::View<float****, Kokkos::LayoutLeft, Memory> user("user", 2, 9, 6, 3);
  const auto y = View2::wrap(user, thirds, 1);
  deep_copy(Exec{}, y, x);
  const View2 z(Exec{}, "z", thirds, 1, rows_around(2, 1));
  deep_copy(Exec{}, z, x);
  EXPECT_EQ(z.ghost_state(), GhostState::fresh) << "ghosts of equal widths are copied with their state";
  deep_copy(Exec{}, z, y);
  EXPECT_EQ(z.ghost_state(), GhostState::stale);
  Exec{}.fence("aloni::test: before reading");
  const auto a = on_host(x).owned(), b = on_host(y).owned(), c = on_host(z).owned();
  for (int n = 0; n < 2; ++n)
    for (int h = 0; h < 9; ++h)
      for (int w = 0; w < 6; ++w)
        for (int k = 0; k < 3; ++k) {
          ASSERT_EQ(a(n, h, w, k), k + 10 * (w + 10 * (10 + h + 100 * n)));
          ASSERT_EQ(b(n, h, w, k), a(n, h, w, k));
          ASSERT_EQ(c(n, h, w, k), a(n, h, w, k));
        }
  EXPECT_EQ(message_of([&] { deep_copy(Exec{}, View2(Exec{}, "x", thirds, 0), x); }),
            "aloni::views::deep_copy: rank of the source = 1: expected 0, the rank of the destination");
  const auto other = thirds.with_blocks(Dim::height, {9, 10, 9});
  EXPECT_EQ(message_of([&] { deep_copy(Exec{}, View2(Exec{}, "x", other, 1), x); }),
            "aloni::views::deep_copy: distribution of the source = 2x1x28x6x3 over h3 (3 ranks): expected 2x1x28x6x3 "
            "over h3 (3 ranks), the distribution of the destination; use halo::Redistribution between distributions");
}

TEST(DistributedView, CreatesMirrorsAsKokkosDoes) {
  const View2 x(Exec{}, "x", thirds, 1, rows_around(2, 1));
  const auto mirror = create_mirror_view(x);
  constexpr bool one_space = std::is_same_v<Memory, Kokkos::HostSpace>;
  EXPECT_EQ(static_cast<const void*>(mirror.owned().data()) == x.owned().data(), one_space);
  EXPECT_NE(static_cast<const void*>(create_mirror(Kokkos::HostSpace{}, x).owned().data()), x.owned().data());
}

TEST(DistributedView, RefusesMoreMemoryThanTheBoundOfTensors) {
  const Exec exec;
  const auto one = Distribution::block(make_extents(1, {4, 4}, 1), {}, 1);
  GhostWidths ghosts;
  ghosts(Dim::height, Side::low) = ghosts(Dim::width, Side::high) = Index{1} << 32;
  EXPECT_THAT(message_of([&] { View2(exec, "x", one, 0, ghosts); }), testing::HasSubstr("4294967300"));
  ghosts(Dim::height, Side::low) = std::numeric_limits<Index>::max();
  EXPECT_THAT(message_of([&] { View2(exec, "x", one, 0, ghosts); }), testing::HasSubstr("ghosts, height"));
}

}  // namespace test_distributed_view
}  // namespace aloni::views
