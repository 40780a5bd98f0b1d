#include <aloni/model/assignment.hpp>

#include <aloni/core/error.hpp>

#include <gmock/gmock.h>
#include <support/random_cases.hpp>

#include <chrono>
#include <optional>
#include <random>
#include <utility>

namespace aloni::model {
namespace test_assignment {

using Edges = std::vector<std::pair<int, int>>;

enum class Shape { chain, residual, dense, u_shaped, general };

/// Edges of a network with `n` layers.
Edges edges_of(Shape shape, int n, std::mt19937& random) {
  Edges edges;
  for (int l = 1; l < n; ++l) edges.push_back({l - 1, l});
  switch (shape) {
    case Shape::chain:
      break;
    case Shape::residual:  // a sum after every second layer
      for (int l = 2; l < n; l += 2) edges.push_back({l - 2, l});
      break;
    case Shape::dense:  // a concatenation reads the one before and the layer behind that
      for (int l = 3; l < n; l += 3) edges.push_back({l - 3, l});
      for (int l = 2; l < n; l += 3) edges.push_back({l - 2, l});
      break;
    case Shape::u_shaped:
      for (int l = 0; l < n / 2 - 1; ++l) edges.push_back({l, n - 1 - l});
      break;
    case Shape::general:
      for (int l = 2; l < n; ++l)
        for (int k = 0; k < l - 1; ++k)
          if (random() % 3 == 0) edges.push_back({k, l});
      edges.push_back(edges.front());  // two edges between the same layers
      break;
  }
  return edges;
}

AssignmentProblem random_problem(Shape shape, int layers, int most_options, std::mt19937& random) {
  // Few different values, so that ties occur.
  const auto value = [&] { return static_cast<double>(random() % 20); };
  AssignmentProblem problem;
  for (int l = 0; l < layers; ++l) {
    problem.layers.emplace_back();
    const unsigned options = 1 + random() % static_cast<unsigned>(most_options);
    for (unsigned o = 0; o < options; ++o) problem.layers.back().push_back({value(), value()});
  }
  for (const auto& [from, to] : edges_of(shape, layers, random)) {
    problem.edges.push_back({from, to, static_cast<int>(problem.costs.size())});
    AssignmentCosts costs;
    const std::size_t size =
        problem.layers[static_cast<std::size_t>(from)].size() * problem.layers[static_cast<std::size_t>(to)].size();
    const bool has_bytes = random() % 2 == 0;
    for (std::size_t i = 0; i < size; ++i) {
      costs.seconds.push_back(value());
      if (has_bytes) costs.bytes.push_back(value());
    }
    problem.costs.push_back(std::move(costs));
  }
  return problem;
}

/// Calls f(options) for all choices.
template <class F>
void for_each_choice(const AssignmentProblem& problem, const F& f) {
  std::vector<int> options(problem.layers.size(), 0);
  for (;;) {
    f(options);
    std::size_t l = 0;
    while (l < options.size() && ++options[l] == static_cast<int>(problem.layers[l].size())) options[l++] = 0;
    if (l == options.size()) return;
  }
}

/// The least seconds within the limit; none if no choice is.
std::optional<double> least_seconds(const AssignmentProblem& problem) {
  std::optional<double> least;
  for_each_choice(problem, [&](const std::vector<int>& options) {
    const AssignmentOption sum = price(problem, options);
    if (sum.bytes <= problem.most_bytes && (!least || sum.seconds < *least)) least = sum.seconds;
  });
  return least;
}

double least_bytes(const AssignmentProblem& problem) {
  double least = std::numeric_limits<double>::infinity();
  for_each_choice(problem,
                  [&](const std::vector<int>& options) { least = std::min(least, price(problem, options).bytes); });
  return least;
}

class AssignmentOf : public testing::TestWithParam<Shape> {
 protected:
  template <class F>
  void for_random_problems(const F& f) {
    const unsigned seed = std::random_device()();
    std::mt19937 random(seed);
    for (int i = 0; i < aloni::test::random_cases(100); ++i) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", case " + std::to_string(i));
      f(random_problem(GetParam(), 2 + static_cast<int>(random() % 6), 4, random), random);
      if (HasFatalFailure()) return;
    }
  }
};

TEST_P(AssignmentOf, HasTheLeastSecondsOfAllChoices) {
  for_random_problems([](const AssignmentProblem& problem, std::mt19937&) {
    const Assignment found = assign(problem);
    EXPECT_TRUE(found.feasible);
    EXPECT_TRUE(found.exact);
    EXPECT_DOUBLE_EQ(found.seconds, *least_seconds(problem));
    EXPECT_DOUBLE_EQ(found.least_seconds, found.seconds);
    EXPECT_DOUBLE_EQ(price(problem, found.options).seconds, found.seconds);
    EXPECT_DOUBLE_EQ(price(problem, found.options).bytes, found.bytes);
  });
}

TEST_P(AssignmentOf, HasTheLeastSecondsWithinALimitOfBytes) {
  for_random_problems([](AssignmentProblem problem, std::mt19937& random) {
    const double least = least_bytes(problem);
    const double most = std::max(least, assign(problem).bytes);
    problem.most_bytes = least + std::floor((most - least) * static_cast<double>(random() % 100) / 100);
    const Assignment found = assign(problem);
    ASSERT_TRUE(found.feasible);
    EXPECT_TRUE(found.exact);
    EXPECT_LE(found.bytes, problem.most_bytes);
    EXPECT_DOUBLE_EQ(found.seconds, *least_seconds(problem));
    EXPECT_DOUBLE_EQ(price(problem, found.options).bytes, found.bytes);
  });
}

TEST_P(AssignmentOf, TellsTheLeastBytesWhereNoChoiceFits) {
  for_random_problems([](AssignmentProblem problem, std::mt19937&) {
    const double least = least_bytes(problem);
    problem.most_bytes = least - 1;
    const Assignment found = assign(problem);
    EXPECT_FALSE(found.feasible);
    EXPECT_TRUE(found.exact);
    EXPECT_DOUBLE_EQ(found.bytes, least);
  });
}

TEST_P(AssignmentOf, FollowsLongestPathsWhereTablesWouldBeTooLarge) {
  for_random_problems([](AssignmentProblem problem, std::mt19937& random) {
    const AssignmentLimits limits{.largest_table = 1 + random() % 16};
    const Assignment found = assign(problem, limits);
    const double least = *least_seconds(problem);
    if (found.exact) {
      EXPECT_DOUBLE_EQ(found.seconds, least);
    } else {
      EXPECT_GE(found.seconds, least);
      EXPECT_EQ(found.least_seconds, 0);
    }
    EXPECT_DOUBLE_EQ(price(problem, found.options).seconds, found.seconds);

    problem.most_bytes = least_bytes(problem) * 1.2;
    const Assignment within = assign(problem, limits);
    EXPECT_EQ(within.feasible, within.bytes <= problem.most_bytes);
    if (within.feasible) {
      EXPECT_GE(within.seconds, *least_seconds(problem));
    }
  });
}

TEST_P(AssignmentOf, KeepsTheLimitAndABoundWhenItStopsEarly) {
  for_random_problems([](AssignmentProblem problem, std::mt19937&) {
    const double least = least_bytes(problem);
    problem.most_bytes = least + (assign(problem).bytes - least) / 2;
    if (problem.most_bytes < least) return;
    const Assignment found = assign(problem, {.most_steps = 1});
    EXPECT_TRUE(found.feasible);
    EXPECT_LE(found.bytes, problem.most_bytes);
    EXPECT_GE(found.seconds, *least_seconds(problem));
    EXPECT_LE(found.least_seconds, *least_seconds(problem) * (1 + 1e-9));
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, AssignmentOf,
                         testing::Values(Shape::chain, Shape::residual, Shape::dense, Shape::u_shaped, Shape::general));

TEST(Assignment, PaysForAnEdgeOnlyIfTheLayerGainsMore) {
  AssignmentProblem problem;
  problem.layers = {{{.seconds = 3}, {.seconds = 1}}, {{.seconds = 1}, {.seconds = 2}}};
  problem.costs = {{.seconds = {0, 4, 4, 0}}};
  problem.edges = {{.from = 0, .to = 1, .costs = 0}};
  EXPECT_THAT(assign(problem).options, testing::ElementsAre(1, 1));
  problem.layers[1][1].seconds = 20;
  EXPECT_THAT(assign(problem).options, testing::ElementsAre(0, 0));
}

TEST(Assignment, LongestPathsComeCloseOnDenseGraphs) {
  // Twelve layers that all read all earlier ones: no small table.
  std::mt19937 random(7);
  AssignmentProblem problem = random_problem(Shape::chain, 12, 1, random);
  for (auto& options : problem.layers) options = {{9, 1}, {5, 2}, {7, 3}};
  problem.costs = {{.seconds = {0, 3, 3, 3, 0, 3, 3, 3, 0}}};
  problem.edges.clear();
  for (int l = 1; l < 12; ++l)
    for (int k = 0; k < l; ++k) problem.edges.push_back({k, l, 0});
  const Assignment found = assign(problem, {.largest_table = 100});
  EXPECT_FALSE(found.exact);
  EXPECT_DOUBLE_EQ(found.seconds, 60) << "all layers have the fastest option, and no edge costs";
}

TEST(Assignment, IsFastForHundredsOfLayersWithManyOptions) {
  std::mt19937 random(3);
  AssignmentProblem problem = random_problem(Shape::residual, 500, 1, random);
  problem.costs.assign(1, {});
  for (int i = 0; i < 64 * 64; ++i) problem.costs[0].seconds.push_back(static_cast<double>(random() % 1000));
  for (auto& options : problem.layers) {
    options.clear();
    for (int o = 0; o < 64; ++o)
      options.push_back({static_cast<double>(random() % 1000), static_cast<double>(random() % 1000)});
  }
  for (AssignmentEdge& e : problem.edges) e.costs = 0;
  const Assignment fast = assign(problem);
  EXPECT_TRUE(fast.exact);
  problem.most_bytes = fast.bytes * 0.8;
  const auto start = std::chrono::steady_clock::now();
  const Assignment within = assign(problem, {.most_steps = 100});
  EXPECT_TRUE(within.feasible);
  EXPECT_LT(within.seconds, within.least_seconds * 1.01) << "the bound is close";
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  EXPECT_LT(time.count(), 60 * (aloni::test::share_of(100) < 100 ? 10 : 1)) << "no product over all layers";
}

TEST(Assignment, RefusesProblemsThatMakeNoSense) {
  const AssignmentProblem good{.layers = {{{1, 1}}, {{1, 1}}}, .edges = {{0, 1, 0}}, .costs = {{.seconds = {1}}}};
  EXPECT_NO_THROW(assign(good));
  AssignmentProblem p = good;
  p.layers[1].clear();
  EXPECT_THROW(assign(p), InvalidArgument);
  p = good;
  p.edges[0] = {1, 0, 0};
  EXPECT_THROW(assign(p), InvalidArgument);
  p = good;
  p.edges[0].costs = 1;
  EXPECT_THROW(assign(p), InvalidArgument);
  p = good;
  p.costs[0].seconds.push_back(1);
  EXPECT_THROW(assign(p), InvalidArgument);
  p = good;
  p.costs[0].bytes = {1, 2};
  EXPECT_THROW(assign(p), InvalidArgument);
  p = good;
  p.layers[0][0].seconds = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(assign(p), InvalidArgument);
}

TEST(Assignment, HasNoLayersInANetworkWithoutLayers) { EXPECT_TRUE(assign({}).options.empty()); }

}  // namespace test_assignment
}  // namespace aloni::model
