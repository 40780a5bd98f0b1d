#pragma once
// TileMatrix: the tiles of a matrix that this rank owns. Each tile lies in one piece of memory, column-major: a kernel
// then touches few pages, and a tile is one message.
//
//   TileMatrix<double> a(TileDistribution(n, n, 256), TilePart::lower);
//   a.fill([&](Index i, Index j) { return kernel(i, j); });
//   cholesky(a, {.workers = 2});
//
//   TileMatrix<double> part(comm, TileDistribution(n, n, 256, squarest_grid(comm.size())), TilePart::lower);
//
// The second matrix lies in memory that the ranks of a node share. They read each other's tiles there, without a copy.
//
// Instantiated for float and double.
#include <aloni/tasks/owned_tiles.hpp>

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <vector>

namespace aloni::comm {
class Communicator;
}

namespace aloni::tasks {

template <class T>
class TileMatrix : public OwnedTiles {
 public:
  /// All elements are 0. `rank`: whose tiles to keep.
  /// @pre 0 ≤ rank < distribution.ranks(); rows and columns of a tile < 2^31, since BLAS counts in int
  /// @pre for TilePart::lower as many rows as columns
  /// Throws InvalidArgument, and std::bad_alloc. Not collective.
  explicit TileMatrix(const views::TileDistribution& distribution, TilePart part = TilePart::whole, int rank = 0);
  /// The tiles of this rank of `comm`, in Communicator::shared_memory(): ranks of a node read them in place.
  /// @pre distribution.ranks() == comm.size(); the rest as above
  /// Throws InvalidArgument, CommunicationError if the system refuses the memory, std::bad_alloc. Not collective.
  TileMatrix(const comm::Communicator& comm, const views::TileDistribution& distribution,
             TilePart part = TilePart::whole);

  /// The elements of a tile: (i, j) is tile(t)[j * height + i], where height is distribution().height(t.row).
  /// @pre has(t)
  T* tile(const views::Tile& t) { return data_.get() + offset(t); }
  const T* tile(const views::Tile& t) const { return data_.get() + offset(t); }
  /// Bytes of all tiles of this rank.
  Index bytes() const { return elements_ * static_cast<Index>(sizeof(T)); }

  /// Sets each element that has memory to f(row, column), counted in the whole matrix.
  template <class F>
  void fill(F&& f) {
    for_each_block([&](const views::Tile& t, Index first_row, Index first_column, Index rows, Index columns) {
      T* const elements = tile(t);
      for (Index j = 0; j < columns; ++j)
        for (Index i = 0; i < rows; ++i) elements[j * rows + i] = static_cast<T>(f(first_row + i, first_column + j));
    });
  }

  /// Copies from a column-major matrix of the whole shape. The upper triangle inside diagonal tiles is copied too.
  /// @pre stride ≥ rows of the matrix
  void copy_from(const T* matrix, Index stride);
  /// Copies all tiles. @pre equal distribution, part and rank. Throws InvalidArgument.
  void copy_from(const TileMatrix& other);
  /// Copies the elements that have memory to a column-major matrix of the whole shape. Others are left as they are.
  void copy_to(T* matrix, Index stride) const;

 private:
  static constexpr std::size_t alignment = 64;  // a cache line, and the widest vector
  struct Free {
    std::shared_ptr<std::pmr::memory_resource> memory{};
    std::size_t bytes = 0, alignment = TileMatrix::alignment;

    void operator()(T* data) const { memory->deallocate(data, bytes, alignment); }
  };

  TileMatrix(const views::TileDistribution& distribution, TilePart part, int rank,
             std::shared_ptr<std::pmr::memory_resource> shared);

  Index offset(const views::Tile& t) const { return offsets_[static_cast<std::size_t>(distribution().position(t))]; }
  /// f(tile, first row, first column, rows, columns) for each tile with memory.
  template <class F>
  void for_each_block(F&& f) const {
    const views::TileDistribution& d = distribution();
    for_each_tile([&](const views::Tile& t) {
      f(t, d.first_row(t.row), d.first_column(t.column), d.height(t.row), d.width(t.column));
    });
  }

  std::vector<Index> offsets_;  ///< by TileDistribution::position
  Index elements_ = 0;
  std::unique_ptr<T, Free> data_;
};

}  // namespace aloni::tasks
