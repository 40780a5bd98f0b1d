#pragma once
// The memory of a reduction over the rows of a tensor, for plans. A row is one (sample, depth, height). Pure.
//
//   const Index doubles = partial_sums(rows, channels);   // workspace of BatchNormReduction
#include <aloni/core/index.hpp>

#include <algorithm>

namespace aloni::nn::local {

/// Most shares into which a reduction splits the rows: enough for the threads of every host. On a device each channel
/// is a thread too.
inline constexpr Index most_channel_shares = 64;

/// Doubles that the shares of `rows` rows write: two sums for each channel.
constexpr Index partial_sums(Index rows, Index channels) { return 2 * channels * std::min(most_channel_shares, rows); }

}  // namespace aloni::nn::local
