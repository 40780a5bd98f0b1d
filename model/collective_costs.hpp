#pragma once
// The time of a collective on a machine, and its constants from measurements.
//
// A discrete-event walk over the schedules of all ranks, which are those that the engine runs
// (core/comm/collective_schedules.hpp). The constants are those of the machine's links, sums and copies. A fit
// (Machine::collectives) scales them for one method, with the data in one kind of memory.
//
//   const CollectiveCall call{.operation = OperationKind::all_gather, .method = CollectiveMethod::ring,
//                             .bytes = 1 << 20};
//   collective_seconds(call, machine, 8);                              // walks the schedules of eight ranks
//   const std::vector<CollectiveTime> measured{{1024, 3e-6}, {1 << 20, 4e-4}};
//   machine.collectives = {fit_collective(call, machine, 2, measured)};
//
// The rules. A core takes one action after the other, in the order in which they become ready. A send keeps it busy for
// seconds_per_message. Within a node the message is there after the latency, and the receiving core reads it at
// seconds_per_byte. Between nodes the bytes pass the port of the sender's node, then the port of the receiver's node,
// one message after the other. A core then takes seconds_per_message to receive. Sums take combine_seconds_per_byte,
// and copies the rate of LinkKind::self. A core that combines in the memory of others reads and writes at the rate of
// LinkKind::shared_memory. Data in shared memory are read in place, so that a send ends when they are read.
//
// Use simulate.hpp for a step of a network: it prices sums over ranks by the fits of this file. Pure.
#include <aloni/core/comm/collective_schedules.hpp>
#include <aloni/model/machine.hpp>

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

namespace aloni::model {

struct CollectiveCall {
  comm::OperationKind operation = comm::OperationKind::all_reduce;
  comm::CollectiveMethod method = comm::CollectiveMethod::ring;
  std::size_t bytes = 0;     ///< of the whole operation on one rank: `values`, or `output` of an all-to-all
  int element_bytes = 4;     ///< divides `bytes`
  bool shared_data = false;  ///< the data of all ranks lie in Communicator::shared_memory()
  Index part_elements = 0;   ///< as CollectivePlan::part_elements
};

/// Seconds from the start on all ranks to the end on the last one, on the first `ranks` ranks of the machine. By the
/// fit of this call if the machine has one, of as many ranks if possible; otherwise by the links alone. The time of a
/// walk is proportional to the number of all messages.
/// Throws InvalidArgument as description_of() and collective_schedules(), and for bytes that element_bytes does not
/// divide; Unsupported as collective_schedules().
double collective_seconds(const CollectiveCall& call, const Machine& machine, int ranks);

/// The same by the links alone.
double unfitted_collective_seconds(const CollectiveCall& call, const Machine& machine, int ranks);

/// Times of collectives by the fits of a machine, on any ranks of it. It keeps them: a step has many equal sums.
class FittedCollectives {
 public:
  /// `machine` outlives this object.
  explicit FittedCollectives(const Machine& machine) : machine_(machine) {}

  /// Whether the machine has a fit of any call for exactly as many ranks.
  bool knows(int ranks) const;

  /// As collective_seconds(), on ranks whose nodes are given: nodes[i] is that of rank i. Empty unless the machine has
  /// a fit of this call for exactly as many ranks and nodes. One rank has none. Throws as collective_seconds().
  std::optional<double> seconds(const CollectiveCall& call, const std::vector<int>& nodes);

 private:
  using Key = std::tuple<comm::OperationKind, comm::CollectiveMethod, std::size_t, int, bool, Index, std::vector<int>>;

  const Machine& machine_;
  std::map<Key, double> known_;
};

/// The closed form by the links alone, on ranks of one node. Thakur, Rabenseifner and
/// Gropp 2005, section 4, for all-gather, all-to-all, reduce-scatter and all-reduce, with α = latency
/// + 2 seconds_per_message, β and γ; and the copies of Bruck's algorithms. Of one segment and one part.
/// @pre 1 ≤ ranks. Throws Unsupported for the methods direct and hierarchical, which have none there.
double closed_form_seconds(const CollectiveCall& call, const Machine& machine, int ranks);

/// A measured call.
struct CollectiveTime {
  std::size_t bytes = 0;
  double seconds = 0;

  friend bool operator==(const CollectiveTime&, const CollectiveTime&) = default;
};

/// Constants with which collective_seconds() gives exactly these times. The shortest one decides the time of a call and
/// of its messages. The others decide the factor of all times per byte, each at its size. `call.bytes` does not count.
/// @pre `times` are of ascending sizes above 0 and of positive seconds, and not empty. Throws InvalidArgument; also for
/// a machine with a link between these ranks that has no latency or no bandwidth.
CollectiveFit fit_collective(const CollectiveCall& call, const Machine& machine, int ranks,
                             std::span<const CollectiveTime> times);

/// Largest number of ranks for which calibrate makes fits: each takes some dozens of walks.
inline constexpr int most_fitted_ranks = 64;

}  // namespace aloni::model
