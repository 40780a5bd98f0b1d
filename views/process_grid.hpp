#pragma once
// The number of blocks in each dimension, and which rank owns which block.
//
// The text form is the split dimensions with their counts: "n2h2" is 2 blocks of samples times 2 blocks of rows. The
// letters are n, d, h, w, c in any order, each at most once; "1" is the grid without a split.
//
//   const ProcessGrid grid = ProcessGrid::parse("n2h2");
//   grid.size();                       // 4
//   grid.coordinate(3);                // sample block 1, height block 1
//
// Ranks are numbered row-major: the channel coordinate varies fastest, the sample coordinate slowest. So the ranks that
// share a sample, and exchange its halos, have consecutive numbers. With more ranks than size(), rank r owns the block
// of rank r mod size(): the tensor is replicated ranks / size() times.
#include <aloni/views/extents.hpp>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace aloni::views {

/// Bound of the number of blocks of a grid, and of the ranks of a distribution.
inline constexpr int max_blocks = 1 << 30;

struct ProcessGrid {
  std::array<int, num_dims> blocks{1, 1, 1, 1, 1};

  /// @pre the text form above. Throws InvalidArgument (equal on all ranks).
  static ProcessGrid parse(std::string_view text);

  constexpr int operator[](Dim d) const { return blocks[position(d)]; }
  constexpr int& operator[](Dim d) { return blocks[position(d)]; }
  /// Number of blocks. Throws InvalidArgument if a count is below 1, or the product above max_blocks.
  constexpr int size() const { return product(0, num_dims); }
  /// Number of ranks that share one sample: the product of the depth, height and width blocks. Throws as size().
  constexpr int spatial_size() const { return product(1, 4); }

  /// The coordinate of a rank's block in each dimension. @pre rank ≥ 0; ranks beyond size() are replicas
  std::array<int, num_dims> coordinate(int rank) const;
  /// The rank in [0, size()) that owns the block. @pre 0 ≤ coordinate < blocks
  int rank_of(const std::array<int, num_dims>& coordinate) const;

  /// The ranks in [0, size()) with one of the given coordinates in each dimension. Ascending, if the coordinates are.
  std::vector<int> ranks_of(const std::array<std::vector<int>, num_dims>& coordinates) const;

  friend constexpr bool operator==(const ProcessGrid&, const ProcessGrid&) = default;

 private:
  [[noreturn]] void refuse_size() const;
  constexpr int product(int first, int last) const {
    Index n = 1;
    for (int i = first; i < last; ++i) {
      n *= blocks[i];
      if (blocks[i] < 1 || n > max_blocks) refuse_size();
    }
    return static_cast<int>(n);
  }
};

/// The text form, in the order n, d, h, w, c, without counts of 1; "1" if no dimension is split.
std::string to_string(const ProcessGrid& g);

/// All grids of size `ranks` that split only dimensions in `dims`.
std::vector<ProcessGrid> all_grids(int ranks, const std::vector<Dim>& dims);

}  // namespace aloni::views
