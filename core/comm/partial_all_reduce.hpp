#pragma once
// All-reduces that don't wait for the slowest rank: a round begins when enough ranks have given something; what a late rank gives goes into
// the next round. Nothing is lost and nothing counted twice, and the result of a round is the same bits on all ranks; which
// contributions are in it depends on time. (Majority all-reduce of eager-SGD, in the paper on collective communication;
// there a rank drawn by lot begins a round, here it is counted who has given.)
//
//   PartialAllReduce<float> reduction(comm, gradients.size());
//   for (…) {
//     compute(gradients);
//     int given = reduction.reduce(gradients);   // now the sum of round i; `given` contributions are in it
//   }
//   reduction.flush(rest);                       // what was left over, on all ranks
//
// A late rank takes part in rounds while it computes, with nothing or with what it gave too late for the round before. That needs
// progress there: TransportOptions::progress_thread, or Communicator::progress() called in between.
#include <aloni/core/comm/collectives.hpp>
#include <aloni/core/comm/communicator.hpp>

#include <cstddef>
#include <memory>
#include <span>

namespace aloni::comm {

/// Equal on all ranks.
struct PartialOptions {
  int quorum = 0;   ///< ranks that must have given before a round begins; 0: more than half
  int max_lag = 4;  ///< no rank's result is ever more than so many rounds old when it takes it; memory for as many
  CollectiveOptions all_reduce = {};
};

/// T: float, double. Belongs to the thread that its communicator's family belongs to.
template <class T>
class PartialAllReduce {
 public:
  /// Collective. Throws InvalidArgument (equal on all ranks): a quorum that isn't 0 to size(), a lag below 1.
  PartialAllReduce(const Communicator& comm, std::size_t count, const PartialOptions& options = {});
  PartialAllReduce(const PartialAllReduce&) = delete;
  PartialAllReduce& operator=(const PartialAllReduce&) = delete;
  /// Collective, waits for the other ranks, unless the communicator has failed. What was given and not flushed is dropped.
  ~PartialAllReduce();

  /// Gives `values` and takes the result of this rank's next round, which may have happened already: the same i-th call gives the same
  /// result on all ranks. Returns how many contributions are in it: one of each rank that came in time, and late ones.
  /// All ranks make the same calls. Throws InvalidArgument when values.size() isn't `count`; PeerFailed, CommunicationError.
  int reduce(std::span<T> values);
  /// Waits for all ranks: takes the sum of what hasn't been in any round yet, and gives nothing new. Returns how many contributions.
  int flush(std::span<T> values);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace aloni::comm
