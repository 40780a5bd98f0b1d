#pragma once
// Which rank owns which box of a tensor. A distribution has the global extents and a process grid. Each dimension has
// the borders of its blocks, or a mark that it is replicated. Pure arithmetic; equal on all ranks.
//
//   const auto x = Distribution::block(make_extents(8, {28, 28}, 6), ProcessGrid::parse("h3"), 3);
//   x.owned(0);                                    // rows [0,10): the first 28 mod 3 blocks have one row more
//   x.with_blocks(Dim::height, {20, 8, 0});        // uneven blocks, one of them empty
//   x.with_replicated(Dim::height);                // every rank holds all 28 rows
//
// Replicated means that several ranks own the same indices, with identical values. Either a grid dimension is marked
// replicated, or there are more ranks than blocks: rank r then owns the box of rank r mod grid.size().
#include <aloni/views/box.hpp>
#include <aloni/views/process_grid.hpp>

#include <array>
#include <string>
#include <vector>

namespace aloni::views {

class Distribution {
 public:
  /// One rank that owns the whole tensor.
  Distribution();

  /// Even blocks: the first (extent mod blocks) blocks of a dimension have one element more. If a dimension has fewer
  /// elements than blocks, its last blocks are empty.
  /// @pre extents ≥ 0, the product of those above 0 ≤ max_elements
  /// @pre blocks of the grid ≥ 1, their product ≤ max_blocks
  /// @pre ranks is a positive multiple of grid.size()
  /// Throws InvalidArgument (equal on all ranks).
  static Distribution block(const Extents& extents, const ProcessGrid& grid, int ranks);

  /// `root` owns the whole tensor, the other ranks nothing: the distribution for gather and scatter.
  /// @pre extents as for block(), 0 ≤ root < ranks ≤ max_blocks. Throws InvalidArgument (equal on all ranks).
  static Distribution on_root(const Extents& extents, int ranks, int root);

  /// This distribution with blocks of the given sizes in one dimension.
  /// @pre sizes.size() == grid()[d], sizes ≥ 0, their sum == extents()[d]
  Distribution with_blocks(Dim d, const std::vector<Index>& sizes) const;

  /// This distribution with dimension d replicated: every rank of the grid owns all its indices.
  Distribution with_replicated(Dim d) const;

  const Extents& extents() const { return extents_; }
  const ProcessGrid& grid() const { return grid_; }
  int ranks() const { return ranks_; }
  bool replicated(Dim d) const { return replicated_[position(d)]; }
  /// Number of ranks that own each element (if no block is empty).
  int copies() const;
  /// Borders of the blocks of dimension d: grid()[d] + 1 ascending values from 0 to extents()[d].
  const std::vector<Index>& borders(Dim d) const { return borders_[position(d)]; }
  /// The block of dimension d that contains index i. @pre 0 ≤ i < extents()[d]
  int block_of(Dim d, Index i) const;

  /// The box that a rank owns, all indices of replicated dimensions included. May be empty. @pre 0 ≤ rank < ranks()
  Box owned(int rank) const;
  /// Whether `rank` is the first copy of its indices: no lower rank owns them too. Sums count first copies only.
  bool is_first_copy(int rank) const;

  /// The ranks that own an index of the box, ascending. Copies count.
  std::vector<int> owners(const Box& box) const;

  /// The ranks of the replica of `rank` whose grid coordinates equal those of `rank` in every dimension outside `dims`.
  /// Ascending, `rank` included. With all five dimensions: the whole replica.
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
