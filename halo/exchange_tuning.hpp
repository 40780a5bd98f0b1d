#pragma once
// Which method of an exchange is the fastest, measured with the Views themselves, or estimated from the links between ranks.
//
//   const auto times = measure_methods(comm, queue, fields);     // fastest first
//   const Exchange<> exchange(comm, queue, fields, times.front().method);
//   to_string(times);                                            // what was tried, for people
#include <aloni/halo/exchange.hpp>
#include <aloni/halo/placement/link_table.hpp>

#include <string>
#include <vector>

namespace aloni::halo {

struct MethodTime {
  ExchangeMethod method;
  double seconds = 0;  ///< of one exchange, on the slowest rank
};

/// A line for each: "38.2 us: fused, all neighbours at once".
std::string to_string(const std::vector<MethodTime>& times);

/// Collective; equal on all ranks, fastest first. Makes the exchange by each method that can serve these Views, runs it so many times and
/// counts the median; what differs by less than 2 % of the simplest (the default) counts as that. Their ghosts are overwritten, by what
/// belongs there. Methods: fused or not, of several Views; by dimension, where more than one has ghosts; consolidated or not, where some
/// node has two ranks.
/// @pre repetitions ≥ 1, equal on all ranks. Throws as Exchange does, InvalidArgument on all ranks.
template <class Exec>
std::vector<MethodTime> measure_methods(const comm::Communicator& comm, const Queue<Exec>& queue,
                                        const std::vector<Field<typename Exec::memory_space>>& fields,
                                        const TransferOptions& options = {.label = "exchange"}, int repetitions = 11);

/// Collective; the same from a table of links, without running anything: each message takes its time per message and per byte, those of one
/// rank one after the other, steps add up, and the slowest rank counts (Hockney's model). Copies aren't counted, consolidation isn't
/// judged.
/// @pre links are of this communicator, equal on all ranks. Throws as Exchange does, InvalidArgument on all ranks.
template <class MemorySpace>
std::vector<MethodTime> estimate_methods(const comm::Communicator& comm, const std::vector<Field<MemorySpace>>& fields,
                                         const LinkTable& links);

}  // namespace aloni::halo
