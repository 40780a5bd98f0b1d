#pragma once
// Sums of the columns of matrices on a host, whose rows are contiguous: neighbouring columns together. One column after
// the other would read each line of the cache as often as it has elements. Each sum is a double, and adds the rows in
// their order, whatever the block.
//
//   const ColumnBlocks blocks = blocks_of_columns(columns, matrices, exec.concurrency());
//   Kokkos::parallel_for(label, Range<Exec>(exec, 0, blocks.count()), …);   // an index is a block of a matrix
//   ColumnSums sums(blocks.length(i));
//   for (each row of the matrix) sums.add(row + blocks.first(i));
#include <aloni/core/index.hpp>

#include <algorithm>

namespace aloni::nn::local::detail {

/// Least columns for which blocks take less time than single columns.
inline constexpr Index least_columns = 8;

struct ColumnBlocks {
  Index columns, matrices, width;

  Index per_matrix() const { return (columns + width - 1) / width; }
  Index count() const { return matrices * per_matrix(); }
  Index matrix(Index block) const { return block / per_matrix(); }
  Index first(Index block) const { return block % per_matrix() * width; }
  Index length(Index block) const { return std::min(width, columns - first(block)); }
};

class ColumnSums {
 public:
  static constexpr Index most = 512;

  /// @pre 0 ≤ length ≤ most
  explicit ColumnSums(Index length) : length_(length) { std::fill(sums_, sums_ + length, 0.0); }
  template <class T>
  void add(const T* row) {
    for (Index k = 0; k < length_; ++k) sums_[k] += static_cast<double>(row[k]);
  }
  double operator[](Index column) const { return sums_[column]; }

 private:
  Index length_;
  double sums_[most];
};

/// Blocks of at most 512 columns, and of at least a line of the cache: so many that all threads have one.
inline ColumnBlocks blocks_of_columns(Index columns, Index matrices, Index threads) {
  ColumnBlocks blocks{columns, matrices, ColumnSums::most};
  while (blocks.width > 16 && blocks.count() < threads) blocks.width /= 2;
  return blocks;
}

}  // namespace aloni::nn::local::detail
