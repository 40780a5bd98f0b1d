#pragma once
// The memory of a reduction over the rows of a tensor, for plans. A row is one (sample, depth, height). Pure.
//
//   const Index doubles = partial_sums(rows, channels, on_host);   // workspace of BatchNormReduction
#include <aloni/core/index.hpp>

#include <algorithm>

namespace aloni::nn::local {

/// Most shares into which a reduction splits the rows: enough for the threads of every host.
inline constexpr Index most_channel_shares = 64;
/// The same on a device, for few channels. Each share is a team of threads, or several if there are many channels.
inline constexpr Index most_device_shares = 512;
constexpr Index most_shares(bool on_host, Index channels) {
  constexpr Index sums_of_device = 1 << 17;
  return on_host || channels == 0 ? most_channel_shares
                                  : std::clamp(sums_of_device / channels, most_channel_shares, most_device_shares);
}
/// Least rows of a share: the sums of shares are memory that is written and read again.
inline constexpr Index least_rows_of_share = 8;

/// The number of shares of `rows` rows; at least 1 if there are rows.
constexpr Index channel_shares(Index rows, Index most = most_channel_shares) {
  return rows == 0 ? 0 : std::clamp<Index>(rows / least_rows_of_share, 1, most);
}

/// Doubles that the shares of `rows` rows write: two sums for each channel.
constexpr Index partial_sums(Index rows, Index channels, bool on_host) {
  return 2 * channels * channel_shares(rows, most_shares(on_host, channels));
}

}  // namespace aloni::nn::local
