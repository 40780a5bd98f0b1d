#include <aloni/tasks/detail/tile_kernels.hpp>

#include <aloni/core/blas_functions.hpp>
#include <aloni/tasks/detail/instantiate.hpp>
#include <aloni/tasks/detail/pivots.hpp>
#include <aloni/tasks/detail/solve_columns.hpp>

#include <cmath>

namespace aloni::tasks::detail {

namespace {

/// As trsm, where a is n × n and b is m × n (side R) or n × m (side L). Halves are solved one after the other, and a
/// matrix product updates the second. The trsm of OpenBLAS 0.3.21 multiplies in a slower kernel: of 256 × 256 doubles
/// it does 28 GFLOP/s on one core of an EPYC, this 38, and gemm 43. Blocks of 24 and 32 are the fastest ones.
template <class T>
void solve_triangle(char side, char triangle, char op, char diagonal, int m, int n, const T* a, int lda, T* b,
                    int ldb) {
  const bool is_upper = (triangle == 'L') == (op == 'T');
  const bool has_own_kernel = side == 'R' && is_upper;
  const int smallest = has_own_kernel ? 24 : 32;
  if (n <= smallest) {
    if (has_own_kernel) {
      const Index row = op == 'T' ? lda : 1, column = op == 'T' ? 1 : lda;
      return solve_columns<T>({m, n, a, row, column, diagonal == 'U', b, ldb});
    }
    const bool left = side == 'L';
    blas::trsm(side, triangle, op, diagonal, left ? n : m, left ? m : n, a, lda, b, ldb);
    return;
  }
  const int n1 = (n / 2 + smallest - 1) / smallest * smallest, n2 = n - n1;
  const auto column = [](auto* data, int j, int stride) { return data + static_cast<Index>(j) * stride; };
  const T* const off = triangle == 'L' ? a + n1 : column(a, n1, lda);  // the block beside the diagonal
  T* const b2 = side == 'L' ? b + n1 : column(b, n1, ldb);
  const bool first_half_first = (side == 'L') == ((triangle == 'L') == (op == 'N'));
  const auto solve1 = [&] { solve_triangle(side, triangle, op, diagonal, m, n1, a, lda, b, ldb); };
  const auto solve2 = [&] {
    solve_triangle(side, triangle, op, diagonal, m, n2, column(a, n1, lda) + n1, lda, b2, ldb);
  };
  first_half_first ? solve1() : solve2();
  T* const solved = first_half_first ? b : b2;
  T* const other = first_half_first ? b2 : b;
  const int rows = first_half_first ? n2 : n1, inner = n - rows;  // of the other half
  if (side == 'L') {
    blas::gemm(op, 'N', rows, m, inner, T(-1), off, lda, solved, ldb, T(1), other, ldb);
  } else {
    blas::gemm('N', op, m, rows, inner, T(-1), solved, ldb, off, lda, T(1), other, ldb);
  }
  first_half_first ? solve2() : solve1();
}

/// Returns the first column whose pivot is 0 or not finite, or -1. LAPACK has no factorisation without pivoting, so
/// halves are factorised and BLAS does the rest, as in Toledo, "Locality of reference in LU decomposition with partial
/// pivoting", SIAM Journal on Matrix Analysis and Applications 18 (1997).
template <class T>
int factorise(T* a, int n, int stride) {
  constexpr int smallest = 16;
  if (n <= smallest) {
    for (int k = 0; k < n; ++k) {
      const T pivot = a[k * stride + k];
      if (pivot == T(0) || !std::isfinite(pivot)) return k;
      for (int i = k + 1; i < n; ++i) a[k * stride + i] /= pivot;
      for (int j = k + 1; j < n; ++j) {
        const T factor = a[j * stride + k];
        for (int i = k + 1; i < n; ++i) a[j * stride + i] -= a[k * stride + i] * factor;
      }
    }
    return -1;
  }
  const int n1 = (n / 2 + smallest - 1) / smallest * smallest, n2 = n - n1;
  T* const right = a + static_cast<Index>(n1) * stride;
  if (const int column = factorise(a, n1, stride); column >= 0) return column;
  solve_triangle('L', 'L', 'N', 'U', n2, n1, a, stride, right, stride);
  solve_triangle('R', 'U', 'N', 'N', n2, n1, a, stride, a + n1, stride);
  blas::gemm('N', 'N', n2, n2, n1, T(-1), a + n1, stride, right, stride, T(1), right + n1, stride);
  const int column = factorise(right + n1, n2, stride);
  return column < 0 ? column : n1 + column;
}

}  // namespace

void check_kernels(const char*) {}

template <class T>
void potrf(const char* operation, TileBlock<T> a, const views::Tile& tile, Index first_column) {
  const int columns = blas::potrf('L', a.columns, a.data, a.stride);
  check_cholesky_pivots<T>(operation, tile, first_column, a.columns, columns,
                           [&](int j) { return a.data[static_cast<Index>(j) * a.stride + j]; });
}

template <class T>
void getrf(const char* operation, TileBlock<T> a, const views::Tile& tile, Index first_column) {
  const int column = factorise(a.data, a.columns, a.stride);
  if (column >= 0)
    refuse_pivot(operation, tile, first_column + column, a.data[static_cast<Index>(column) * a.stride + column],
                 "a matrix that needs no pivoting, with pivots other than 0 and finite");
}

template <class T>
void trsm(char side, char triangle, char op, char diagonal, ConstBlock<T> a, TileBlock<T> b) {
  const bool left = side == 'L';
  solve_triangle(side, triangle, op, diagonal, left ? b.columns : b.rows, left ? b.rows : b.columns, a.data, a.stride,
                 b.data, b.stride);
}

template <class T>
void subtract_square(ConstBlock<T> a, TileBlock<T> c) {
  blas::syrk('L', 'N', c.columns, a.columns, T(-1), a.data, a.stride, T(1), c.data, c.stride);
}

template <class T>
void subtract_product(char op_a, ConstBlock<T> a, char op_b, ConstBlock<T> b, TileBlock<T> c) {
  blas::gemm(op_a, op_b, c.rows, c.columns, op_a == 'N' ? a.columns : a.rows, T(-1), a.data, a.stride, b.data, b.stride,
             T(1), c.data, c.stride);
}

#define INSTANTIATE(T)                                                        \
  template void potrf(const char*, TileBlock<T>, const views::Tile&, Index);  \
  template void getrf(const char*, TileBlock<T>, const views::Tile&, Index);  \
  template void trsm<T>(char, char, char, char, ConstBlock<T>, TileBlock<T>); \
  template void subtract_square<T>(ConstBlock<T>, TileBlock<T>);              \
  template void subtract_product<T>(char, ConstBlock<T>, char, ConstBlock<T>, TileBlock<T>);
ALONI_INSTANTIATE_ELEMENTS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::tasks::detail
