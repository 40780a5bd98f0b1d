#pragma once
// Which samples form which mini-batch. Equal on all ranks: it depends on the seed, the epoch and the numbers only. The
// samples of a rank are those of its box of the mini-batch.
//
//   const std::vector<Index> order = epoch_order(set.size(), seed, epoch);
//   const MiniBatches batches{set.size(), 64};
//   for (Index k = 0; k < batches.count(); ++k) train_on(batches.of(order, k));
#include <aloni/core/index.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace aloni::nn {

/// The numbers 0 … samples - 1 in the order of an epoch, by the shuffle of Fisher and Yates. Each epoch has another
/// order. Source: Knuth, "The art of computer programming", volume 2, algorithm 3.4.2P.
std::vector<Index> epoch_order(Index samples, std::uint64_t seed, std::uint64_t epoch);
/// The same into `order`, whose memory is used again.
void epoch_order(std::vector<Index>& order, Index samples, std::uint64_t seed, std::uint64_t epoch);

/// An epoch in mini-batches: all full except the last one, which takes the rest.
struct MiniBatches {
  Index samples = 0;  ///< of the epoch
  Index batch = 1;    ///< samples of a full mini-batch; at least 1

  Index count() const { return ceil_div(samples, batch); }
  Index first(Index k) const { return k * batch; }  ///< position of its first sample in the order
  Index size(Index k) const { return std::min(batch, samples - first(k)); }
  /// The samples of mini-batch `k`. @pre order.size() = samples, 0 ≤ k < count()
  std::span<const Index> of(std::span<const Index> order, Index k) const {
    return order.subspan(static_cast<std::size_t>(first(k)), static_cast<std::size_t>(size(k)));
  }
};

}  // namespace aloni::nn
