#pragma once
// Faults of the messages of a rank, for tests. A FaultyTransport makes them around one transport
// (faulty_transport.hpp), or around the transports of a family of communicators (TransportOptions::faults).
#include <chrono>
#include <cstdint>
#include <limits>

namespace aloni::comm {

/// No faults by default. A probability applies to each fragment and is below 1. Delays, missing room and a slow rank
/// change no result: they only take time. The other faults end in an exception.
struct Faults {
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  std::uint64_t seed = 0;
  double delay = 0;                  ///< the fragment leaves some polls later, and later fragments overtake it
  int longest_delay = 20;            ///< in polls; positive
  double no_room = 0;                ///< the transport refuses the fragment for now
  double truncate = 0;               ///< only a part of the bytes arrives
  double corrupt = 0;                ///< one bit arrives flipped; only checksums notice
  double lose = 0;                   ///< the fragment never arrives
  std::uint64_t dies_after = never;  ///< number of fragments sent; afterwards nothing leaves or arrives
  int slow_rank = -1;                ///< rank that makes slow progress, in the communicator of from_mpi(); -1: none
  /// Time between two looks of the slow rank at its messages; meanwhile it neither sends nor receives. Each wait for
  /// this rank gets longer by this time, or by a few times this time: keep it well below TransportOptions::stuck_after.
  /// With longer pauses all ranks give up, and a rank that waits for the slow rank may be blamed.
  std::chrono::microseconds slow_by{0};

  bool any() const {
    return delay > 0 || no_room > 0 || truncate > 0 || corrupt > 0 || lose > 0 || dies_after != never ||
           slow_by.count() > 0;
  }
  /// The faults of one rank: only the slow rank is slow.
  Faults of_rank(int rank) const {
    Faults own = *this;
    if (rank != slow_rank) own.slow_by = std::chrono::microseconds(0);
    return own;
  }
};

}  // namespace aloni::comm
