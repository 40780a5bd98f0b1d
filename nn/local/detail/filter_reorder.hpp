#pragma once
// Copies filters between orders in memory: that of parameters (filters, taps, channels), and those of the kernels of
// oneDNN, which have blocks of filters, of channels, or of both. Square tiles of filters and channels are transposed in
// registers. For 256 × 256 filters of 27 taps that takes 0.5 ms, and reordering by oneDNN 2.6 takes 1.4 ms: where
// channels are a multiple of 64 its loops use a few sets of the caches only.
//
//   const FilterOrderInMemory from = plain_order(filters, taps, channels), to = …;
//   if (can_reorder(from, to)) for (Index part = 0; part < reorder_parts(to); ++part) reorder(from, x, to, y, part);
//
// Pure functions over pointers. Parts are independent of each other, for threads.
#include <aloni/core/index.hpp>

#include <vector>

namespace aloni::nn::local::detail {

/// The place of filter f, channel c and tap t, in elements: f / filter_block * filter_blocks + f % filter_block *
/// filter, the same for c, and taps[t].
struct FilterOrderInMemory {
  Index filters = 0, channels = 0;
  Index padded_filters = 0;  ///< those beyond `filters` are zeros
  Index filter_block = 1, channel_block = 1;
  Index filter = 0, channel = 0;                ///< from one element of a block to the next
  Index filter_blocks = 0, channel_blocks = 0;  ///< from one block to the next
  std::vector<Index> taps = {};

  Index place_of(Index f, Index c) const {
    return f / filter_block * filter_blocks + f % filter_block * filter + c / channel_block * channel_blocks +
           c % channel_block * channel;
  }
};

/// (filters, taps, channels): that of parameters.
FilterOrderInMemory plain_order(Index filters, Index taps, Index channels);
/// The plain order seen by a pass that multiplies flipped filters: filters and channels change places, and taps are in
/// reverse order. `filters`, `channels`: of the plain order.
FilterOrderInMemory flipped_order(Index filters, Index taps, Index channels);

/// Whether reorder() can copy between them: filters, channels and blocks are multiples of 8, and both orders have
/// neighbouring filters or neighbouring channels. They are of the same filters.
bool can_reorder(const FilterOrderInMemory& from, const FilterOrderInMemory& to);

/// Number of parts of reorder(), each for some filters.
Index reorder_parts(const FilterOrderInMemory& to);
/// Copies all channels and taps of the filters of a part. Filters of `to` behind the last one become zeros.
/// @pre can_reorder(from, to); 0 ≤ part < reorder_parts(to)
void reorder(const FilterOrderInMemory& from, const float* source, const FilterOrderInMemory& to, float* target,
             Index part);

}  // namespace aloni::nn::local::detail
