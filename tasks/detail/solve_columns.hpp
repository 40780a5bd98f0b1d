#pragma once
// Triangular solves with few columns and many rows. BLAS is made for large triangles: a solve of 816 × 136 elements in
// blocks takes 1.7 times as long if OpenBLAS 0.3.21 solves the blocks (docs/experiments/cholesky.md).
#include <aloni/core/index.hpp>

#include <vector>

namespace aloni::tasks::detail {

inline constexpr int most_solved_columns = 32;

/// b := b U⁻¹ for an upper triangle U of n × n elements; element (k, j) of U is u[k * row + j * column]. b has m rows
/// and n columns, with ldb elements from column to column.
template <class T>
struct SolvedColumns {
  int m = 0, n = 0;  ///< n ≤ most_solved_columns
  const T* u = nullptr;
  Index row = 0, column = 0;
  bool unit = false;  ///< the diagonal of U is 1, whatever its memory has
  T* b = nullptr;
  int ldb = 0;
};

/// Multiplies by the inverse of each element of the diagonal, as BLAS does. A zero there gives values that are not
/// finite. With the best instructions of this processor.
template <class T>
void solve_columns(const SolvedColumns<T>& columns);

/// The same functions for other instructions of this processor. For tests.
template <class T>
std::vector<void (*)(const SolvedColumns<T>&)> all_column_solvers();

}  // namespace aloni::tasks::detail
