#pragma once
// How many blocks each dimension is split into, and which rank holds which block.
//
// The text form names the split dimensions with their counts: "n2h2" is 2 blocks of samples times 2 blocks of rows;
// letters are n, d, h, w, c in any order, each at most once; "1" is the grid without any split.
//
//   const ProcessGrid grid = ProcessGrid::parse("n2h2");
//   grid.size();                       // 4
//   grid.coordinate(3);                // sample block 1, height block 1
//
// Ranks are numbered row-major: the channel coordinate varies fastest, the sample coordinate slowest, so that the
// ranks that share a sample, and exchange its halos, are neighbours in rank. With more ranks than `size()`, rank r
// holds the same block as rank r mod size(): the tensor is replicated ranks / size() times.
#include <aloni/views/extents.hpp>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace aloni::views {

struct ProcessGrid {
  std::array<int, num_dims> blocks{1, 1, 1, 1, 1};

  /// @pre the text form above. Throws InvalidArgument (equal on all ranks).
  static ProcessGrid parse(std::string_view text);

  constexpr int operator[](Dim d) const { return blocks[position(d)]; }
  constexpr int& operator[](Dim d) { return blocks[position(d)]; }
  constexpr int size() const { return blocks[0] * blocks[1] * blocks[2] * blocks[3] * blocks[4]; }
  /// Product of the depth, height and width blocks: how many ranks share one sample.
  constexpr int spatial_size() const { return blocks[1] * blocks[2] * blocks[3]; }

  /// The block that a rank (≥ 0, replicas included) holds, per dimension.
  std::array<int, num_dims> coordinate(int rank) const;
  /// The rank in [0, size()) that holds the block. @pre 0 ≤ coordinate < blocks
  int rank_of(const std::array<int, num_dims>& coordinate) const;

  friend constexpr bool operator==(const ProcessGrid&, const ProcessGrid&) = default;
};

/// The text form, in the order n, d, h, w, c, counts of 1 left out; "1" when nothing is split.
std::string to_string(const ProcessGrid& g);

/// All grids over `dims` (the other dimensions unsplit) whose size is `ranks`.
std::vector<ProcessGrid> all_grids(int ranks, const std::vector<Dim>& dims);

}  // namespace aloni::views
