#pragma once
// A trace of all ranks on one clock.
//
//   const std::int64_t offset = comm::clock_offset(comm);      // near the times that are traced: clocks drift
//   …                                                          // add it to the times of this rank
//   const std::string file = comm::gather_trace(comm, trace);  // on rank 0
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/trace.hpp>

#include <cstdint>
#include <span>
#include <string>

namespace aloni::comm {

/// One question to another rank and its answer. Nanoseconds: `sent` and `received` of the own clock, `answered` of the
/// other clock.
struct ClockSample {
  std::int64_t sent = 0, answered = 0, received = 0;
};

/// Nanoseconds to add to the own clock to get the clock of the other rank: from the sample with the shortest round
/// trip. The error is at most half of this round trip. 0 if the clocks agree within the error, as clocks of one machine
/// do. @pre there is a sample
std::int64_t clock_offset(std::span<const ClockSample> samples);

/// Nanoseconds to add to trace_now() on this rank to get trace_now() on rank 0. Each rank sends 20 messages to rank 0,
/// with the tag Communicator::max_tag.
/// Collective.
std::int64_t clock_offset(const Communicator& comm);

/// The file (trace_file()) with the events of all ranks on rank 0; empty on the other ranks. The times of all ranks are
/// of one clock; time 0 of the file is the earliest start of a slice. Uses messages with the tag Communicator::max_tag.
/// Collective.
std::string gather_trace(const Communicator& comm, const Trace& mine, std::span<const TraceArgument> about = {});

}  // namespace aloni::comm
