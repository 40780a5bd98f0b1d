#pragma once
// Which rank owns which box of a tensor: the global extents, a process grid, and for each dimension either the
// borders of its blocks or the word that it is replicated. Pure arithmetic; the same value on every rank.
//
//   const auto x = Distribution::block(make_extents(8, {28, 28}, 6), ProcessGrid::parse("h3"), 3);
//   x.owned(0);                                    // rows [0,10): the first 28 mod 3 blocks have one row more
//   x.with_blocks(Dim::height, {20, 8, 0});        // uneven blocks, an empty one too
//   x.with_replicated(Dim::height);                // every rank holds all 28 rows
//
// Replicated means identical values on all holders. There are two sources: a grid dimension that is marked
// replicated, and ranks beyond the size of the grid (rank r holds what rank r mod grid.size() holds).
#include <aloni/views/box.hpp>
#include <aloni/views/process_grid.hpp>

#include <array>
#include <string>
#include <vector>

namespace aloni::views {

class Distribution {
 public:
  /// One rank that owns all.
  Distribution();

  /// Even blocks: the first (extent mod blocks) blocks of a dimension have one element more; with fewer elements than
  /// blocks the last ones are empty.
  /// @pre extents ≥ 0
  /// @pre ranks is a positive multiple of grid.size()
  /// Throws InvalidArgument (equal on all ranks).
  static Distribution block(const Extents& extents, const ProcessGrid& grid, int ranks);

  /// Everything on `root`, nothing elsewhere: the distribution of gather and scatter.
  /// @pre 0 ≤ root < ranks
  static Distribution on_root(const Extents& extents, int ranks, int root);

  /// The same with blocks of the given sizes in one dimension.
  /// @pre sizes.size() == grid()[d], sizes ≥ 0, their sum == extents()[d]
  Distribution with_blocks(Dim d, const std::vector<Index>& sizes) const;

  /// The same with every rank of the grid holding all of dimension d.
  Distribution with_replicated(Dim d) const;

  const Extents& extents() const { return extents_; }
  const ProcessGrid& grid() const { return grid_; }
  int ranks() const { return ranks_; }
  bool replicated(Dim d) const { return replicated_[position(d)]; }
  /// How many ranks hold each element (when no block is empty).
  int copies() const;
  /// Borders of the blocks of dimension d: grid()[d] + 1 ascending values from 0 to extents()[d].
  const std::vector<Index>& borders(Dim d) const { return borders_[position(d)]; }
  /// The block of dimension d that holds index i. @pre 0 ≤ i < extents()[d]
  int block_of(Dim d, Index i) const;

  /// What a rank holds; for replicated dimensions all of them. May be empty. @pre 0 ≤ rank < ranks()
  Box owned(int rank) const;
  /// One holder per element: like owned(), but empty on all ranks of a replicated set except the lowest.
  bool is_first_copy(int rank) const;

  /// The ranks, ascending and including `rank`, whose grid coordinates equal those of `rank` in every dimension
  /// outside `dims`, in the same replica. With all five dimensions it is one whole replica.
  std::vector<int> group(int rank, const std::vector<Dim>& dims) const;

  friend bool operator==(const Distribution&, const Distribution&) = default;

 private:
  Distribution(const Extents& extents, const ProcessGrid& grid, int ranks);

  Extents extents_;
  ProcessGrid grid_;
  int ranks_ = 1;
  std::array<bool, num_dims> replicated_{};
  std::array<std::vector<Index>, num_dims> borders_;
};

/// "8x1x28x28x6 over h3 (3 ranks)".
std::string to_string(const Distribution& d);

}  // namespace aloni::views
