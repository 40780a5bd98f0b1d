// The kernel for few columns and many rows, with each set of instructions of this processor. Values are integers and
// powers of two, so results are exact.
#include <aloni/tasks/detail/solve_columns.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <vector>

namespace aloni::tasks {
namespace test_solve_columns {

using detail::most_solved_columns;
using detail::SolvedColumns;

template <class T>
class SolveColumns : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(SolveColumns, Types);

/// The matrices of x U = b for random x and U, and the place of U in memory.
template <class T>
struct Case {
  int m, n, ldb;
  bool unit, by_rows;
  std::vector<T> u, x, b;

  Case(int rows, int columns, std::mt19937& random)
      : m(rows),
        n(columns),
        ldb(rows + pick(random, 0, 3)),
        unit(pick(random, 0, 1)),
        by_rows(pick(random, 0, 1)),
        u(static_cast<std::size_t>(n + 1) * static_cast<std::size_t>(n + 2), T(guard)),
        x(static_cast<std::size_t>(ldb) * static_cast<std::size_t>(n), T(guard)),
        b(x) {
    for (int k = 0; k < n; ++k)
      for (int j = k; j < n; ++j)
        u[at_u(k, j)] = j > k ? static_cast<T>(pick(random, -1, 1)) : unit ? T(guard) : T(1 << pick(random, 0, 2));
    for (int j = 0; j < n; ++j)
      for (int i = 0; i < m; ++i) {
        x[at(i, j)] = static_cast<T>(pick(random, -3, 3));
        T sum = x[at(i, j)] * (unit ? T(1) : u[at_u(j, j)]);
        for (int k = 0; k < j; ++k) sum += x[at(i, k)] * u[at_u(k, j)];
        b[at(i, j)] = sum;
      }
  }
  Index row() const { return by_rows ? n + 1 : 1; }
  Index column() const { return by_rows ? 1 : n + 1; }
  std::size_t at(int i, int j) const { return static_cast<std::size_t>(j * ldb + i); }
  std::size_t at_u(int k, int j) const { return static_cast<std::size_t>(k * row() + j * column()); }
  SolvedColumns<T> arguments() { return {m, n, u.data(), row(), column(), unit, b.data(), ldb}; }

  static constexpr int guard = 77;
  static int pick(std::mt19937& random, int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  }
};

TYPED_TEST(SolveColumns, GivesTheExactSolutionWithAllInstructions) {
  std::mt19937 random(5);
  const auto solvers = detail::all_column_solvers<TypeParam>();
  ASSERT_FALSE(solvers.empty());
  for (int n = 1; n <= most_solved_columns; ++n)
    for (const int m : {1, 7, 8, 31, 32, 33, 64, 100})
      for (std::size_t s = 0; s < solvers.size(); ++s) {
        Case<TypeParam> c(m, n, random);
        solvers[s](c.arguments());
        EXPECT_EQ(c.b, c.x) << m << " x " << n << ", solver " << s << (c.unit ? ", unit" : "")
                            << (c.by_rows ? ", by rows" : ", by columns");
      }
}

TYPED_TEST(SolveColumns, TakesTheBestInstructions) {
  std::mt19937 random(6);
  Case<TypeParam> c(50, 24, random), same = c;
  detail::solve_columns(c.arguments());
  detail::all_column_solvers<TypeParam>().back()(same.arguments());
  EXPECT_EQ(c.b, c.x);
  EXPECT_EQ(c.b, same.b);
}

}  // namespace test_solve_columns
}  // namespace aloni::tasks
