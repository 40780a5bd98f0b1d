#pragma once
// The check of the pivots of a factorised diagonal tile, on a host and on a device.
#include <aloni/core/error.hpp>
#include <aloni/core/index.hpp>
#include <aloni/views/tile_distribution.hpp>

#include <cmath>
#include <string>

namespace aloni::tasks::detail {

template <class T>
[[noreturn]] void refuse_pivot(const char* operation, const views::Tile& tile, Index column, T pivot,
                               const char* expectation) {
  throw FactorisationError(operation, "tile " + to_string(tile) + ", column " + std::to_string(column),
                           "pivot " + std::to_string(pivot), expectation);
}

/// Throws FactorisationError for the first pivot of L that is not above 0 and finite. `columns`: result of LAPACK's
/// potrf, the number of the first column whose pivot is not positive, counted from 1; 0: none. `pivot(j)` reads the
/// diagonal of the result. LAPACKs differ for NaN: some take its root for a pivot, so all are looked at.
template <class T, class F>
void check_cholesky_pivots(const char* operation, const views::Tile& tile, Index first_column, int size, int columns,
                           const F& pivot) {
  constexpr const char* expectation = "a positive definite matrix, whose pivots are above 0 and finite";
  for (int j = 0; j < (columns > 0 ? columns - 1 : size); ++j)
    if (!std::isfinite(pivot(j))) refuse_pivot<T>(operation, tile, first_column + j, pivot(j), expectation);
  if (columns > 0) refuse_pivot<T>(operation, tile, first_column + columns - 1, pivot(columns - 1), expectation);
}

}  // namespace aloni::tasks::detail
