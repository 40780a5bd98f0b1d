#pragma once
// The costs of messages between two ranks.
//
//   const comm::Communicator pair = comm.subgroup({0, 1});   // on these two ranks
//   const LinkProbe link = comm::probe_link(pair);
//
// Ping-pong gives the time of one message: the sender posts it, it travels, and the receiver takes it. A row of short
// messages gives the time that each message keeps the sender and the receiver busy. The latency is the rest.
//
// Switches and shaped links let the first bytes after a pause pass faster (a token bucket). They cancel in the slope
// between two large sizes. The time per byte is this slope, or the time per byte of the smaller size if that is larger.
#include <aloni/core/comm/communicator.hpp>

#include <cstddef>

namespace aloni::comm {

struct LinkProbeOptions {
  std::size_t large_bytes = std::size_t{1} << 20;  ///< and four times as many
  int messages = 64;                               ///< of a row
  int repetitions = 200;                           ///< of short messages; a tenth for large ones
};

/// A message of n bytes arrives `latency + n seconds_per_byte` after its send was posted.
struct LinkProbe {
  double latency = 0, seconds_per_byte = 0, seconds_per_message = 0;
};

/// Equal on both ranks; medians. Collective. Throws InvalidArgument unless `pair` has two ranks, and for options
/// below 1.
LinkProbe probe_link(const Communicator& pair, const LinkProbeOptions& options = {});

}  // namespace aloni::comm
