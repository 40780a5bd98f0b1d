#pragma once
// The mini-batches of one data set on one rank, read ahead. Pure.
#include <aloni/nn/data/host_batch.hpp>
#include <aloni/nn/data/prefetcher.hpp>
#include <aloni/nn/data/sample_order.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

namespace aloni::nn {

template <class T>
class BatchReader {
 public:
  struct Options {
    Index batch = 1;                        ///< samples of a full mini-batch
    bool shuffles = true;                   ///< in each epoch; otherwise samples keep the order of the set
    AugmentationOptions augmentation = {};  ///< of each sample, drawn from the seed and the epoch
    std::uint64_t seed = 0;
  };

  /// @pre `set` outlives this object
  BatchReader(const Dataset& set, const Options& options) : set_(set), options_(options) {}

  /// `part` of the mini-batch of an epoch that starts at sample `first`; valid until the next call. It was read ahead
  /// if the calls go through the epochs in order. Any other call reads anew from there. The thread does not know
  /// the part of an incomplete mini-batch before it is first asked for. So it is not read ahead in the first epoch.
  /// `part` is equal in all calls for mini-batches of one size. Throws as read_batch(); such a call may be repeated.
  const HostBatch<T>& read(std::uint64_t epoch, Index first, const BatchPart& part) {
    const Position wanted{epoch, first};
    parts_[size_at(wanted)] = part;
    const HostBatch<T>* batch = ahead_ && next_ == wanted ? ahead_->next() : nullptr;
    if (batch == nullptr) {
      start(wanted);
      batch = ahead_->next();
    }
    next_ = after(wanted);
    return *batch;
  }

 private:
  struct Position {
    std::uint64_t epoch = 0;
    Index first = 0;
    bool operator==(const Position&) const = default;
  };

  MiniBatches batches() const { return {set_.size(), options_.batch}; }
  Index size_at(const Position& p) const { return batches().size(p.first / options_.batch); }
  Position after(const Position& p) const {
    const Index next = p.first + size_at(p);
    return next < set_.size() ? Position{p.epoch, next} : Position{p.epoch + 1, 0};
  }

  void start(const Position& from) {
    ahead_.reset();  // its thread ends before the next one begins
    ahead_ = std::make_unique<Prefetcher<HostBatch<T>>>(
        [this, at = from, parts = parts_, order = std::vector<Index>{}](std::int64_t, HostBatch<T>& batch) mutable {
          const auto part = parts.find(size_at(at));
          if (part == parts.end()) return false;
          if (order.empty() || at.first == 0) set_order(order, at.epoch);
          const AugmentationDraws draws{options_.augmentation, options_.seed, at.epoch};
          read_batch(set_, draws, batches().of(order, at.first / options_.batch), part->second, batch);
          at = after(at);
          return true;
        });
  }

  void set_order(std::vector<Index>& order, std::uint64_t epoch) const {
    if (options_.shuffles) return epoch_order(order, set_.size(), options_.seed, epoch);
    order.resize(static_cast<std::size_t>(set_.size()));
    std::iota(order.begin(), order.end(), Index{0});
  }

  const Dataset& set_;
  const Options options_;
  std::map<Index, BatchPart> parts_;  ///< by the number of samples of the mini-batch
  Position next_;
  std::unique_ptr<Prefetcher<HostBatch<T>>> ahead_;  // last: its thread uses the other members
};

}  // namespace aloni::nn
