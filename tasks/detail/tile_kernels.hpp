#pragma once
// The kernels of tasks on tiles of one rank, through BLAS and LAPACK on the calling thread. Builds without
// aloni_ENABLE_LAPACK have no_tile_kernels.cpp instead, where each throws Unsupported.
#include <aloni/tasks/tile_matrix.hpp>

#include <type_traits>

namespace aloni::tasks::detail {

/// A column-major matrix: element (i, j) is data[j * stride + i].
template <class T>
struct TileBlock {
  T* data = nullptr;
  int rows = 0, columns = 0, stride = 1;

  operator TileBlock<const T>() const requires(!std::is_const_v<T>) { return {data, rows, columns, stride}; }
};

/// @pre a.has({i, j})
template <class T>
TileBlock<T> block(TileMatrix<T>& a, Index i, Index j) {
  const int rows = static_cast<int>(a.distribution().height(i));
  return {a.tile({i, j}), rows, static_cast<int>(a.distribution().width(j)), rows};
}
template <class T>
TileBlock<const T> block(const TileMatrix<T>& a, Index i, Index j) {
  const int rows = static_cast<int>(a.distribution().height(i));
  return {a.tile({i, j}), rows, static_cast<int>(a.distribution().width(j)), rows};
}

/// `count` rows of a block from row `first` on. @pre first + count ≤ a.rows
template <class T>
TileBlock<T> rows_of(TileBlock<T> a, int first, int count) {
  return {a.data + first, count, a.columns, a.stride};
}
/// The rows from row `first` on, perhaps none. @pre first ≤ a.rows
template <class T>
TileBlock<T> rows_below(TileBlock<T> a, int first) {
  return rows_of(a, first, a.rows - first);
}

template <class T>
using ConstBlock = std::type_identity_t<TileBlock<const T>>;

/// Throws Unsupported in builds without the kernels.
void check_kernels(const char* operation);

/// The lower triangle of a = L Lᵀ. Throws FactorisationError, with the name of the tile and `first_column` plus the
/// column in the tile.
template <class T>
void potrf(const char* operation, TileBlock<T> a, const views::Tile& tile, Index first_column);
/// a = L U without pivoting. Throws as potrf.
template <class T>
void getrf(const char* operation, TileBlock<T> a, const views::Tile& tile, Index first_column);
/// b = op(a)⁻¹ b or b op(a)⁻¹, with the letters of BLAS: side, triangle, op, diagonal.
template <class T>
void trsm(char side, char triangle, char op, char diagonal, ConstBlock<T> a, TileBlock<T> b);
/// The lower triangle of c = c - a aᵀ.
template <class T>
void subtract_square(ConstBlock<T> a, TileBlock<T> c);
/// c = c - op(a) op(b); op: 'N' or 'T'.
template <class T>
void subtract_product(char op_a, ConstBlock<T> a, char op_b, ConstBlock<T> b, TileBlock<T> c);

}  // namespace aloni::tasks::detail
