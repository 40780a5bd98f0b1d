#pragma once
// Finds the fastest method of a halo exchange: measured with the Views themselves, or estimated from a table of links.
//
//   const auto times = measure_methods(comm, queue, fields);     // fastest first
//   const Exchange<> exchange(comm, queue, fields, times.front().method);
//   to_string(times);                                            // methods and times as text
#include <aloni/halo/exchange.hpp>
#include <aloni/halo/placement/link_table.hpp>

#include <string>
#include <vector>

namespace aloni::halo {

struct MethodTime {
  ExchangeMethod method;
  double seconds = 0;  ///< time of one exchange on the slowest rank
};

/// One line per method: "38.2 us: fused, all neighbours at once".
std::string to_string(const std::vector<MethodTime>& times);

/// The median time of each method that these Views support, over `repetitions` runs. Fastest first, equal on all ranks.
/// The default method comes first if no other method is more than 2 % faster. The methods are fused or not, if there
/// are several Views. They go by dimension or not, if several dimensions have ghosts. They are consolidated or not, if
/// there are several nodes and a node has several ranks. Each run fills the Views' ghosts with their right values.
/// Collective.
/// @pre repetitions ≥ 1, equal on all ranks. Throws InvalidArgument on all ranks. Throws as Exchange does.
template <class Exec>
std::vector<MethodTime> measure_methods(const comm::Communicator& comm, const Queue<Exec>& queue,
                                        const std::vector<Field<typename Exec::memory_space>>& fields,
                                        const TransferOptions& options = {.label = "exchange"}, int repetitions = 11);

/// The times by Hockney's model, from a table of links, without an exchange. A message takes its time per message plus
/// its time per byte. Messages of one rank run one after another, the slowest rank counts, and dimensions add up. The
/// model ignores copies and does not compare consolidation. Fastest first, equal on all ranks.
/// Collective.
/// @pre links were measured for this communicator, equal on all ranks. Throws InvalidArgument on all ranks. Throws as
/// Exchange does.
template <class MemorySpace>
std::vector<MethodTime> estimate_methods(const comm::Communicator& comm, const std::vector<Field<MemorySpace>>& fields,
                                         const LinkTable& links);

}  // namespace aloni::halo
