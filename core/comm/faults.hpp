#pragma once
// What goes wrong with the messages of a rank: for tests, by a FaultyTransport around any transport (faulty_transport.hpp) or around
// those of a whole family of communicators (TransportOptions::faults).
#include <cstdint>
#include <limits>

namespace aloni::comm {

/// None by default. Probabilities are of each fragment, below 1. The first two harm nothing but the time it takes.
struct Faults {
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  std::uint64_t seed = 0;
  double delay = 0;                  ///< leaves only some polls later; others overtake it
  int longest_delay = 20;            ///< in polls; positive
  double no_room = 0;                ///< is refused at first
  double truncate = 0;               ///< arrives with a part of its bytes
  double corrupt = 0;                ///< arrives with a bit flipped, which only checksums find
  double lose = 0;                   ///< never arrives
  std::uint64_t dies_after = never;  ///< fragments sent; then nothing leaves or arrives

  bool any() const {
    return delay > 0 || no_room > 0 || truncate > 0 || corrupt > 0 || lose > 0 || dies_after != never;
  }
};

}  // namespace aloni::comm
