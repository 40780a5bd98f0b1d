#pragma once
// Borders of even blocks: the first (extent mod blocks) blocks have one element more. Distribution::block() splits
// dimensions so; other arithmetic on thousands of blocks needs no list of all borders.
//
//   even_border(28, 3, 1);      // 10: block 1 is [10, 19)
//   even_block_of(28, 3, 18);   // 1
#include <aloni/core/index.hpp>

#include <algorithm>

namespace aloni::views {

/// First element of block i; the extent for i == blocks. @pre extent ≥ 0, 0 ≤ i ≤ blocks, blocks ≥ 1
constexpr Index even_border(Index extent, int blocks, int i) {
  return i * (extent / blocks) + std::min<Index>(i, extent % blocks);
}

/// The block that contains element i. @pre 0 ≤ i < extent
constexpr int even_block_of(Index extent, int blocks, Index i) {
  const Index length = extent / blocks, longer = extent % blocks;
  const Index in_longer = longer * (length + 1);
  return static_cast<int>(i < in_longer ? i / (length + 1) : longer + (i - in_longer) / length);
}

}  // namespace aloni::views
