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
/// Least rows of a share: the sums of shares are memory that is written and read again.
inline constexpr Index least_rows_of_share = 8;

/// The number of shares of `rows` rows; at least 1 if there are rows.
constexpr Index channel_shares(Index rows, Index most = most_channel_shares) {
  return rows == 0 ? 0 : std::clamp<Index>(rows / least_rows_of_share, 1, most);
}

/// Doubles that the shares of `rows` rows write: two sums for each channel.
constexpr Index partial_sums(Index rows, Index channels) { return 2 * channels * channel_shares(rows); }

}  // namespace aloni::nn::local
