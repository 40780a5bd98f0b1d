// Inverses of the factors of K-FAC by the task runtime, on a thread of its own.
#include <aloni/core/config.hpp>
#include <aloni/core/error.hpp>
#include <aloni/tools/factor_solver.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <future>
#include <utility>
#include <vector>

namespace aloni::tools {
namespace test_factor_solver {

/// Positive definite: the diagonal is larger than the sum of a row.
std::vector<double> factor(std::size_t n) {
  std::vector<double> a(n * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j)
      a[i * n + j] = i == j ? static_cast<double>(n) : std::cos(static_cast<double>(i * j));
  return a;
}

TEST(TaskFactorSolver, GivesTheInversesOfTheSerialSolverInAnyNumberOfThreads) {
  if (!config::has_lapack) GTEST_SKIP() << "needs aloni_ENABLE_LAPACK";
  for (const int workers : {1, 2}) {
    const nn::FactorSolver solve = task_factor_solver(workers), again = task_factor_solver(workers);
    std::vector<std::pair<std::size_t, std::future<std::vector<double>>>> inverses;
    for (const std::size_t n : {1, 5, 64, 65, 200, 401})
      inverses.emplace_back(n, solve(factor(n), static_cast<Index>(n)));
    for (auto& [n, future] : inverses) {
      const std::vector<double> inverse = future.get();
      const std::vector<double> expected = nn::serial_factor_solver()(factor(n), static_cast<Index>(n)).get();
      ASSERT_EQ(inverse.size(), expected.size());
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < n; ++j) {
          ASSERT_NEAR(inverse[i * n + j], expected[i * n + j], 1e-13) << n << ": " << i << ", " << j;
          ASSERT_EQ(inverse[i * n + j], inverse[j * n + i]);
        }
      EXPECT_EQ(again(factor(n), static_cast<Index>(n)).get(), inverse);
    }
  }
}

TEST(TaskFactorSolver, ThrowsInTheFutureAndGoesOn) {
  const nn::FactorSolver solve = task_factor_solver(1);
  std::future<std::vector<double>> bad = solve({1, 2, 2, 1}, 2), good = solve({4}, 1);
  if (config::has_lapack) {
    EXPECT_THROW(bad.get(), FactorisationError);
    EXPECT_EQ(good.get(), std::vector<double>{0.25});
  } else {
    EXPECT_THROW(bad.get(), Unsupported);
  }
}

TEST(TaskFactorSolver, DropsMatricesThatItHasNotBegun) {
  std::vector<std::future<std::vector<double>>> inverses;
  {
    const nn::FactorSolver solve = task_factor_solver(1);
    for (int i = 0; i < 20; ++i) inverses.push_back(solve(factor(100), 100));
  }
  int dropped = 0;
  for (auto& inverse : inverses) {
    try {
      inverse.get();
    } catch (const std::future_error&) {
      ++dropped;
    } catch (const Unsupported&) {
    }
  }
  EXPECT_GT(dropped, 0);
}

}  // namespace test_factor_solver
}  // namespace aloni::tools
