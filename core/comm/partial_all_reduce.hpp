#pragma once
// All-reduces that do not wait for the slowest rank. A round begins when enough ranks have contributed. The
// contribution of a late rank goes into the next round. No contribution is lost or counted twice. The result of a round
// has the same bits on all ranks; which contributions it contains depends on timing.
// Source: majority all-reduce of eager-SGD (the paper on collective communication). There a randomly drawn rank begins
// a round; here rank 0 counts the contributions.
//
//   PartialAllReduce<float> reduction(comm, gradients.size());
//   for (…) {
//     compute(gradients);
//     int contributions = reduction.reduce(gradients);   // `gradients` is now the sum of round i
//   }
//   reduction.flush(rest);                               // the contributions that no round has used; on all ranks
//
// A late rank takes part in rounds while it computes: with zeros, or with a contribution that missed the round before.
// For this it must make progress: TransportOptions::progress_thread, or calls of Communicator::progress().
#include <aloni/core/comm/collectives.hpp>
#include <aloni/core/comm/communicator.hpp>

#include <cstddef>
#include <memory>
#include <span>

namespace aloni::comm {

/// Options, equal on all ranks.
struct PartialOptions {
  int quorum = 0;   ///< contributing ranks that begin a round; 0: more than half
  int max_lag = 4;  ///< maximal rounds that a rank may be late; each rank keeps max_lag + 1 results in memory
  CollectiveOptions all_reduce = {};
};

/// T: float or double. Used by the thread that uses the communicator's family.
template <class T>
class PartialAllReduce {
 public:
  /// `count`: number of elements. Collective. Throws InvalidArgument on all ranks if the quorum is not in 0 … size() or
  /// max_lag is below 1.
  PartialAllReduce(const Communicator& comm, std::size_t count, const PartialOptions& options = {});
  PartialAllReduce(const PartialAllReduce&) = delete;
  PartialAllReduce& operator=(const PartialAllReduce&) = delete;
  /// Drops contributions that were not flushed. Waits for the other ranks, unless the communicator has failed. During
  /// the unwinding of an exception it poisons the communicator instead. Collective.
  ~PartialAllReduce();

  /// Contributes `values` and replaces them by the sum of this rank's next round, which may already be complete. The
  /// i-th calls return the same result on all ranks. Returns the number of contributions in the sum, late ones
  /// included. All ranks make the same sequence of calls.
  /// Throws InvalidArgument if values.size() is not `count`; PeerFailed, CommunicationError.
  int reduce(std::span<T> values);
  /// Replaces `values` by the sum of all contributions that no round has used. Contributes nothing. Waits for all
  /// ranks. Returns the number of contributions in the sum. Throws like reduce().
  int flush(std::span<T> values);

  /// Bytes of this rank's memory.
  std::size_t bytes() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace aloni::comm
