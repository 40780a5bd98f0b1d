#include <aloni/halo/placement/placement.hpp>

#include "support/sanitizer.hpp"

#include <aloni/core/error.hpp>
#include <aloni/halo/placement/decomposition.hpp>
#include <aloni/halo/placement/detail/lower_bound.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <iostream>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace aloni::halo {
namespace test_placement {

using testing::HasSubstr;
using views::Dim;
using views::Distribution;

/// Each rank's block of a tensor of one sample and channel, with a halo of one around it where it is split; corners too.
TrafficMatrix halo_traffic(const std::array<Index, 3>& extents, const char* grid, Boundary boundary,
                           double element_bytes = 4) {
  const auto g = views::ProcessGrid::parse(grid);
  const auto dist = Distribution::block(views::make_extents(1, extents, 1), g, g.size());
  const auto needed = [&](int rank) {
    auto box = dist.owned(rank);
    for (const Dim d : views::spatial_dims)
      if (g[d] > 1) box.set(d, box.lower(d) - 1, box.upper(d) + 1);
    return box;
  };
  return make_traffic_matrix(dist, needed, BoundaryConditions::all(boundary), element_bytes);
}

SquareMatrix table(int n, const std::function<double(int, int)>& f) {
  SquareMatrix m(n);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      if (i != j) m(i, j) = f(i, j);
  return m;
}

// Seconds per byte of the paper's kind of nodes, in units of 1 / (GB/s). What it measured on Summit: 42 GB/s over NVLink in a
// triad of GPUs, 30 over the X-bus between the two, 12.5 to another node.
constexpr double nvlink = 1 / 42., xbus = 1 / 30., nic = 1 / 12.5;

SquareMatrix summit(bool alternating = false) {
  return table(6, [=](int i, int j) { return (alternating ? i % 2 == j % 2 : i / 3 == j / 3) ? nvlink : xbus; });
}
/// Eight GPUs: a cube-mesh of one or two NVLinks of 20 GB/s, PCIe where there is none.
SquareMatrix dgx1() {
  const char* links[8] = {"01122000", "10210200", "12020010", "21200001",
                          "20000112", "02001021", "00101202", "00012120"};
  return table(8, [&](int i, int j) { return links[i][j] == '0' ? 1 / 9. : 1 / (20. * (links[i][j] - '0')); });
}
/// Four GPUs in two pairs, {0, 3} and {1, 2}.
SquareMatrix two_pairs() {
  return table(4, [](int i, int j) { return i + j == 3 ? 1 / 40. : 1 / 10.; });
}
/// Ranks dealt to `hosts` one by one.
SquareMatrix dealt(int n, int hosts, double inside = 1, double between = 10) {
  return table(n, [=](int i, int j) { return i % hosts == j % hosts ? inside : between; });
}

double naive_cost(const TrafficMatrix& traffic, const SquareMatrix& d, const std::vector<int>& rank_of) {
  double sum = 0;
  for (std::size_t i = 0; i < rank_of.size(); ++i)
    for (const auto& s : traffic.sends[i]) sum += s.bytes * d(rank_of[i], rank_of[static_cast<std::size_t>(s.to)]);
  return sum;
}

std::vector<int> identity(int n) {
  std::vector<int> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

double optimum(const TrafficMatrix& traffic, const SquareMatrix& d) {
  auto order = identity(traffic.size());
  double best = std::numeric_limits<double>::infinity();
  do best = std::min(best, naive_cost(traffic, d, order));
  while (std::ranges::next_permutation(order).found);
  return best;
}

/// What holds for every result.
void check(const Placement& p, const TrafficMatrix& traffic, const SquareMatrix& d) {
  ASSERT_TRUE(std::ranges::is_permutation(p.rank_of, identity(traffic.size())));
  const double cost = naive_cost(traffic, d, p.rank_of), trivial = naive_cost(traffic, d, identity(traffic.size()));
  EXPECT_NEAR(p.cost, cost, 1e-9 * cost);
  EXPECT_DOUBLE_EQ(placement_cost(traffic, d, p.rank_of), cost);
  EXPECT_NEAR(p.trivial_cost, trivial, 1e-9 * trivial);
  EXPECT_LE(p.cost, p.trivial_cost);
  EXPECT_LE(p.lower_bound, p.cost);
  EXPECT_GE(p.lower_bound, 0);
}

struct Instance {
  TrafficMatrix traffic;
  SquareMatrix distance;
};

/// Sparse or dense, symmetric or not in either matrix, with flows to oneself and distances to oneself.
Instance random_instance(std::mt19937& random, int n) {
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(random); };
  const int density = pick(2, 10), levels = pick(1, 50);
  SquareMatrix bytes(n), distance(n);
  const bool even_bytes = pick(0, 1) == 1, even_distance = pick(0, 1) == 1;
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      bytes(i, j) = pick(1, 10) <= density ? pick(1, 100) : 0;
      distance(i, j) = pick(0, levels);
      if (even_bytes && j < i) bytes(i, j) = bytes(j, i);
      if (even_distance && j < i) distance(i, j) = distance(j, i);
    }
  Instance instance{.traffic = {}, .distance = distance};
  for (int i = 0; i < n; ++i) {
    auto& sends = instance.traffic.sends.emplace_back();
    for (int j = 0; j < n; ++j)
      if (bytes(i, j) > 0) sends.push_back({j, bytes(i, j)});
  }
  return instance;
}

TEST(Placement, FindsTheOptimumOfNodesWithUnequalLinks) {
  struct Case {
    const char* name;
    SquareMatrix distance;
    std::vector<TrafficMatrix> flows;
  };
  const std::vector<Case> cases{
      {"two pairs",
       two_pairs(),
       {halo_traffic({1, 64, 64}, "h2w2", Boundary::zero), halo_traffic({400, 100, 100}, "d4", Boundary::zero),
        halo_traffic({1, 10, 900}, "h2w2", Boundary::periodic)}},
      {"Summit",
       summit(),
       {halo_traffic({1363, 1363, 1363}, "d3h2", Boundary::zero), halo_traffic({1, 60, 60}, "h2w3", Boundary::periodic),
        halo_traffic({60, 10, 10}, "d6", Boundary::zero)}},
      {"Summit, dealt", summit(true), {halo_traffic({100, 100, 100}, "d3h2", Boundary::periodic)}},
      {"DGX-1",
       dgx1(),
       {halo_traffic({64, 64, 64}, "d2h2w2", Boundary::zero), halo_traffic({64, 64, 64}, "d4h2", Boundary::periodic),
        halo_traffic({1, 8, 64}, "w8", Boundary::periodic)}}};
  for (const auto& c : cases)
    for (const TrafficMatrix& traffic : c.flows) {
      SCOPED_TRACE(std::string(c.name) + ", " + to_string(traffic.grid));
      const double best = optimum(traffic, c.distance);
      const Placement exact = place(traffic, c.distance), swapped = place(traffic, c.distance, {.exact_up_to = 0});
      for (const Placement& p : {exact, swapped}) check(p, traffic, c.distance);
      EXPECT_NEAR(exact.cost, best, 1e-9 * best);
      EXPECT_EQ(exact.lower_bound, exact.cost);
      EXPECT_LE(swapped.cost, 1.02 * best);
      EXPECT_LE(swapped.lower_bound, best * (1 + 1e-9));
    }
}

// Known without a search.
TEST(Placement, PutsAChainAlongTheFastLinks) {
  // Rows in a chain on two pairs: twice a fast link, once a slow one, 100 × 4 bytes each way.
  const TrafficMatrix chain = halo_traffic({400, 1, 100}, "d4", Boundary::zero);
  const Placement p = place(chain, two_pairs());
  EXPECT_DOUBLE_EQ(p.cost, 800 * (2 / 40. + 1 / 10.));
  EXPECT_DOUBLE_EQ(p.trivial_cost, 800 * (1 / 40. + 2 / 10.));
  // A ring of six on two triads, dealt alternately: two borders over the X-bus instead of all six.
  const TrafficMatrix ring = halo_traffic({600, 1, 100}, "d6", Boundary::periodic);
  const Placement q = place(ring, summit(true));
  EXPECT_DOUBLE_EQ(q.cost, 800 * (4 * nvlink + 2 * xbus));
  EXPECT_DOUBLE_EQ(q.trivial_cost, 800 * 6 * xbus);
  // In a DGX-1 double links make a ring of all eight: 0, 3, 2, 1, 5, 6, 7, 4.
  const TrafficMatrix eight = halo_traffic({800, 1, 100}, "d8", Boundary::periodic);
  EXPECT_DOUBLE_EQ(place(eight, dgx1()).cost, 800 * 8 / 40.);
}

TEST(Placement, LeavesTheSlowRankToASubdomainThatSendsLittle) {
  // Of 2 × 3 blocks those in the corners.
  const TrafficMatrix traffic = halo_traffic({1, 300, 300}, "h2w3", Boundary::zero);
  const SquareMatrix d = table(6, [](int i, int j) { return i == 1 || j == 1 ? 5. : 1.; });
  const Placement p = place(traffic, d, {.exact_up_to = 0});
  const auto on_slow = std::ranges::find(p.rank_of, 1) - p.rank_of.begin();
  EXPECT_TRUE(on_slow == 0 || on_slow == 2 || on_slow == 3 || on_slow == 5) << on_slow;
  EXPECT_LT(p.cost, p.trivial_cost);
}

TEST(Placement, AgreesWithAllPermutations) {
  std::mt19937 random(21);
  for (int i = 0; i < test::share_of(120); ++i) {
    SCOPED_TRACE(i);
    const auto [traffic, distance] = random_instance(random, 1 + i % 7);
    const double best = optimum(traffic, distance);
    const Placement p = place(traffic, distance);
    check(p, traffic, distance);
    EXPECT_NEAR(p.cost, best, 1e-9 * best);
    EXPECT_LE(detail::lower_bound(traffic, distance), best * (1 + 1e-9));
  }
}

TEST(Placement, SwapsComeWithinTwoPercentOfTheOptimum) {
  std::mt19937 random(22);
  double worst = 1;
  for (int i = 0; i < test::share_of(300); ++i) {
    SCOPED_TRACE(i);
    const auto [traffic, distance] = random_instance(random, 4 + i % 6);
    const Placement exact = place(traffic, distance);
    const Placement p = place(traffic, distance, {.seed = static_cast<std::uint64_t>(i), .exact_up_to = 0});
    check(p, traffic, distance);
    EXPECT_LE(p.cost, 1.02 * exact.cost);
    EXPECT_GE(p.cost, exact.cost * (1 - 1e-9));
    if (exact.cost > 0) worst = std::max(worst, p.cost / exact.cost);
  }
  RecordProperty("worst", std::to_string(worst));
}

TEST(Placement, IsNeverAboveTheTrivialOrderNorBelowTheBound) {
  std::mt19937 random(23);
  for (int i = 0; i < test::share_of(60); ++i) {
    SCOPED_TRACE(i);
    const auto [traffic, distance] = random_instance(random, 1 + (i * 7) % 40);
    // Without any work, with some, with enough.
    for (const std::int64_t work : {std::int64_t{0}, std::int64_t{20'000}, PlacementOptions{}.work})
      check(place(traffic, distance, {.restarts = 4, .exact_up_to = 0, .work = work}), traffic, distance);
  }
}

TEST(Placement, KeepsTheTrivialOrderWhereNothingBetterIsFound) {
  // The best order of each instance made the trivial one; then there is time for one start only, which is worse.
  std::mt19937 random(26);
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    const TrafficMatrix traffic = random_instance(random, 8).traffic;
    const Placement best = place(traffic, dealt(8, 2));
    const SquareMatrix relabelled = table(8, [&](int a, int b) {
      const auto& f = best.rank_of;
      return dealt(8, 2)(f[static_cast<std::size_t>(a)], f[static_cast<std::size_t>(b)]);
    });
    const Placement p = place(traffic, relabelled, {.exact_up_to = 0, .work = 0});
    check(p, traffic, relabelled);
    EXPECT_NEAR(p.cost, best.cost, 1e-9 * best.cost);
  }
}

TEST(Placement, ReachesItsBoundWhereAllLinksAreEqual) {
  const TrafficMatrix traffic = halo_traffic({60, 50, 40}, "d4h3w2", Boundary::periodic);
  const Placement p = place(traffic, table(24, [](int, int) { return 2.; }));
  EXPECT_NEAR(p.lower_bound, p.cost, 1e-9 * p.cost);
  EXPECT_EQ(p.cost, p.trivial_cost);
  const auto large = halo_traffic({64, 64, 64}, "d8h8w8", Boundary::periodic);  // beyond the assignment problem
  const Placement q = place(large, table(512, [](int, int) { return 2.; }));
  EXPECT_NEAR(q.lower_bound, q.cost, 1e-9 * q.cost);
}

TEST(Placement, AssignsLinearlyAtTheLeastCost) {
  std::mt19937 random(24);
  for (int i = 0; i < 100; ++i) {
    const int n = 1 + i % 6;
    SquareMatrix m(n);
    for (double& x : m.values()) x = std::uniform_int_distribution<int>(0, 20)(random);
    auto order = identity(n);
    double best = std::numeric_limits<double>::infinity();
    do {
      double sum = 0;
      for (int r = 0; r < n; ++r) sum += m(r, order[static_cast<std::size_t>(r)]);
      best = std::min(best, sum);
    } while (std::ranges::next_permutation(order).found);
    EXPECT_DOUBLE_EQ(detail::linear_assignment(m), best);
  }
}

TEST(Placement, IsTheSameForTheSameSeed) {
  std::mt19937 random(25);
  const auto [traffic, distance] = random_instance(random, 30);
  EXPECT_EQ(place(traffic, distance, {.restarts = 3, .seed = 3}), place(traffic, distance, {.restarts = 3, .seed = 3}));
}

/// Bytes from one host to another, counted from the plans of all ranks.
double bytes_over_link(const TrafficMatrix& traffic, const std::vector<int>& rank_of, int hosts) {
  double sum = 0;
  for (std::size_t i = 0; i < rank_of.size(); ++i)
    for (const auto& s : traffic.sends[i])
      if (rank_of[i] % hosts != rank_of[static_cast<std::size_t>(s.to)] % hosts) sum += s.bytes;
  return sum;
}

TEST(Placement, SendsLessThanHalfOverTheLinkWhenRanksAreDealtToTwoHosts) {
  const auto grid =
      decompose(views::make_extents(1, {400, 100, 100}, 1), {Dim::depth, Dim::height, Dim::width}, 2, 2).grid;
  EXPECT_EQ(to_string(grid), "d4");
  for (const Boundary boundary : {Boundary::zero, Boundary::periodic}) {
    const TrafficMatrix traffic = halo_traffic({400, 100, 100}, "d4", boundary);
    const Placement p = place(traffic, dealt(4, 2));
    const double placed = bytes_over_link(traffic, p.rank_of, 2), trivial = bytes_over_link(traffic, identity(4), 2);
    EXPECT_GT(placed, 0);
    EXPECT_LE(2 * placed, trivial) << name(boundary);
    std::cout << name(boundary) << ": " << placed << " instead of " << trivial << " bytes\n";
  }
}

TEST(Placement, GivesNodesBricksAndKeepsUnevenNodesTogether) {
  // Four hosts of four in a 4 × 4 grid: quarters, of which each has two borders of two blocks.
  const TrafficMatrix square = halo_traffic({1, 400, 400}, "h4w4", Boundary::zero, 1);
  const Placement quarters = place(square, dealt(16, 4));
  EXPECT_EQ(bytes_over_link(square, quarters.rank_of, 4), 2 * (2 * 400 + 10));  // and 10 corners
  // Hosts of five and three in a chain of eight: one border between them.
  const TrafficMatrix chain = halo_traffic({1, 800, 10}, "h8", Boundary::zero);
  const auto host = [](int rank) { return rank == 1 || rank == 4 || rank == 6; };
  const SquareMatrix uneven = table(8, [&](int i, int j) { return host(i) == host(j) ? 1. : 7.; });
  const Placement p = place(chain, uneven, {.restarts = 0, .exact_up_to = 0});
  EXPECT_DOUBLE_EQ(p.cost, 2 * 4 * 10 * (6 * 1. + 7.));
}

TEST(Placement, PlacesAThousandRanksInTwoSeconds) {
  const TrafficMatrix traffic = halo_traffic({2048, 1024, 1024}, "d16h8w8", Boundary::periodic);
  const auto d =
      decompose(views::make_extents(1, {2048, 1024, 1024}, 1), {Dim::depth, Dim::height, Dim::width}, 128, 8);
  ASSERT_EQ(d.grid, traffic.grid);
  const SquareMatrix distance = dealt(1024, 128);
  // What the hierarchical decomposition promises: node k has brick k.
  std::vector<int> bricks, ranks(128, 0);
  for (int i = 0; i < 1024; ++i) {
    const int node = node_of(d, i);
    bricks.push_back(node + 128 * ranks[static_cast<std::size_t>(node)]++);
  }
  const double by_bricks = naive_cost(traffic, distance, bricks);

  const std::clock_t start = std::clock();  // of this process, which has one thread: a busy machine doesn't count
  const Placement p = place(traffic, distance);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  check(p, traffic, distance);
  EXPECT_LE(p.cost, by_bricks * (1 + 1e-9));
  EXPECT_LT(p.cost, 0.7 * p.trivial_cost);
  if (!test::sanitized) {
    EXPECT_LT(seconds, 2);
  }
  std::cout << describe(p) << "; bricks " << by_bricks << "; " << seconds << " s\n";

  // The same without a grid that could be split into bricks.
  TrafficMatrix unknown = traffic;
  unknown.grid = {};
  const Placement q = place(unknown, distance);
  check(q, unknown, distance);
  EXPECT_LE(q.cost, 1.06 * by_bricks);
  std::cout << describe(q) << "\n";
}

TEST(Placement, SaysWhatItFound) {
  EXPECT_EQ(describe({.rank_of = {0, 1}, .cost = 1, .lower_bound = 0.8, .trivial_cost = 4}),
            "2 ranks placed at cost 1 s, 75.0 % below the trivial order (4 s); no order is below 0.8 s");
  EXPECT_THAT(describe({.rank_of = {0}, .cost = 1, .lower_bound = 1, .trivial_cost = 1}), HasSubstr("the optimum"));
  EXPECT_THAT(describe({.rank_of = {0}}), HasSubstr("0.0 % below"));
}

TEST(Placement, RefusesWhatIsNoTable) {
  const TrafficMatrix traffic = halo_traffic({1, 1, 64}, "w4", Boundary::zero);
  const SquareMatrix ones(4, 1);
  EXPECT_THROW(place({}, {}), InvalidArgument);
  EXPECT_THROW(place(traffic, SquareMatrix(3, 1)), InvalidArgument);
  for (const double bad : {-1., std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    SquareMatrix wrong = ones;
    wrong(2, 1) = bad;
    EXPECT_THROW(place(traffic, wrong), InvalidArgument);
    TrafficMatrix wrong_flow = traffic;
    wrong_flow.sends[1][0].bytes = bad;
    EXPECT_THROW(place(wrong_flow, ones), InvalidArgument);
  }
  TrafficMatrix beyond = traffic;
  beyond.sends[3].push_back({4, 1});
  EXPECT_THROW(place(beyond, ones), InvalidArgument);
  TrafficMatrix twice = traffic;
  twice.sends[0].push_back(twice.sends[0].back());
  EXPECT_THROW(place(twice, ones), InvalidArgument);
  EXPECT_THROW(place(traffic, ones, {.restarts = -1}), InvalidArgument);
  EXPECT_THROW(place(traffic, ones, {.exact_up_to = 11}), InvalidArgument);
  EXPECT_THROW(place(traffic, ones, {.work = -1}), InvalidArgument);
  EXPECT_THROW(placement_cost(traffic, ones, {0, 1, 2, 2}), InvalidArgument);
  EXPECT_THROW(placement_cost(traffic, ones, {0, 1, 2}), InvalidArgument);
}

}  // namespace test_placement
}  // namespace aloni::halo
