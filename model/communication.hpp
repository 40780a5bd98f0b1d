#pragma once
// The cost of a transfer or a sum over ranks for one rank of a machine: how long its core is busy, and for which
// messages it waits. simulate.hpp adds these to the times of kernels.
//
// Transfers follow halo/transfer.hpp. The start packs values and posts messages. The finish waits for the messages, and
// unpacks them. Between ranks that share memory, long values are not packed: an empty message allows the receiver to
// copy them, and an empty answer tells the sender that it has. The constants are those of the links, or of a fit
// (transfer_costs.hpp) by the bytes for one rank. Messages that are joined for a whole node (halo/node_pairs.hpp) cost
// empty messages within both nodes, and one message of all their bytes between the relays.
//
// Sums over ranks follow the algorithm of the plan. On a host the first source that knows a sum gives its time:
//   1. the fit of its algorithm and memory for as many ranks and nodes (collective_costs.hpp);
//   2. the measured all-reduces in private memory;
//   3. the closed form by the links (Thakur, Rabenseifner and Gropp, Optimization of collective communication
//      operations in MPICH, 2005, section 4).
// Devices: the ring and the double tree of NCCL, the faster one (paper performance-models, equation 1; NCCL 2.4 release
// notes).
#include <aloni/halo/node_pairs.hpp>
#include <aloni/model/collective_costs.hpp>
#include <aloni/model/machine.hpp>
#include <aloni/nn/plan/step_plan.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace aloni::model {

/// Where the time of a sum or a transfer comes from.
enum class CommunicationSource : std::uint8_t {
  fit,       ///< constants that were fitted to measured times: Machine::collectives, Machine::transfers
  measured,  ///< Machine::all_reduces
  links      ///< Machine::links
};
inline constexpr std::size_t communication_sources = 3;
std::string_view name(CommunicationSource source);

struct TransferCost {
  /// A message to this rank. It arrives `latency + wire` after the end of the peer's start. `wire` is the time of all
  /// bytes that reach this rank over this kind of link up to this message.
  struct Arrival {
    int peer = 0;
    double latency = 0, wire = 0;
    bool between_nodes = false;
  };
  double start = 0;   ///< the core packs, copies within the rank, and posts messages
  double finish = 0;  ///< after the last arrival: the core unpacks, or copies from the memory of peers
  std::vector<Arrival> arrivals = {};
  std::vector<int> readers = {};  ///< ranks that copy from this rank's memory; their answers end the transfer
  double answer = 0;              ///< latency of an answer
  /// Values from other nodes arrive in messages for the whole node, and are there with the last byte of these. `wire`
  /// of their arrivals is the time of this rank's bytes alone.
  bool consolidated = false;
  CommunicationSource source = CommunicationSource::links;  ///< `fit`: of all values for other ranks and from them

  bool crosses_nodes() const;
};

/// `consolidated`: the pairs of nodes whose messages this transfer joins, in its forward direction, at least those in
/// which the rank of the plan takes part.
/// @pre `work` is of a node of `plan`; `description` describes all its ranks
TransferCost transfer_cost(const nn::StepPlan& plan, const nn::TransferWork& work, const Machine& machine,
                           const MachineDescription& description, std::span<const halo::NodePair> consolidated = {});

/// The values for, or from, one rank.
struct TransferParcel {
  double bytes = 0, boxes = 0;
};
/// By rank: the values that this rank sends, or receives, in the direction of `work`.
std::map<int, TransferParcel> parcels_of(const nn::StepPlan& plan, const nn::TransferWork& work, bool outgoing);

struct ReductionCost {
  double start = 0;   ///< the core posts the operation
  double flight = 0;  ///< from the start of the last member to the end; kernels can run meanwhile
  double wire = 0;    ///< part of the flight in which its bytes occupy the slowest link; sums take turns there
  double finish = 0;  ///< the core adds values, after the flight
  CommunicationSource source = CommunicationSource::links;
};

/// Whether the values of a sum lie in memory that the ranks of a node share. Gradients do (nn::Parameters), and so do
/// buffers that transfers read. @pre `work` is of a node of `plan`
bool sums_shared_values(const nn::StepPlan& plan, const nn::ReductionWork& work);

/// `fits`: those of `machine`. @pre as above
ReductionCost reduction_cost(const nn::StepPlan& plan, const nn::ReductionWork& work, const Machine& machine,
                             const MachineDescription& description, FittedCollectives& fits);

/// The time of an all-reduce in two parts. On a device kernels run beside all of it. The cores of a host add the values
/// and move them within the node, and no kernel runs meanwhile; only the network works beside kernels.
struct AllReduceParts {
  double flight = 0, busy = 0;
};
AllReduceParts parts_of_all_reduce(double seconds, double bytes, int nodes, const Machine& machine, bool on_host);

/// Seconds of an all-reduce of `bytes` bytes on `ranks` ranks in `nodes` nodes, by the closed form of the algorithm.
/// @pre 1 ≤ nodes ≤ ranks
double all_reduce_seconds(comm::AllReduceAlgorithm algorithm, double bytes, int ranks, int nodes,
                          const Machine& machine);

/// The same on devices.
double device_all_reduce_seconds(double bytes, int ranks, int nodes, const Machine& machine);

/// The all-reduces by which all ranks choose their algorithm: measured ones for as many ranks and nodes.
/// A machine that was measured with other numbers gets the closed forms of its links instead. Empty: no all-reduce was
/// measured, so the links may be no fits either; or a device's library adds.
std::optional<comm::Tuning> all_reduces_of(const Machine& machine, const MachineDescription& description, int ranks);

/// Of the algorithms that the machine has, the fastest one by these closed forms.
double fastest_all_reduce_seconds(double bytes, int ranks, int nodes, const Machine& machine);

/// A sum whose algorithm is not chosen yet, on nodes with equal numbers of its members.
struct GroupSum {
  double bytes = 0;  ///< of float values
  int members = 1, nodes = 1;
  bool shared_data = false;  ///< the values lie in memory that the ranks of a node share
};
/// Seconds of the sum by its fastest algorithm, from the first source that knows sums of so many members and nodes, as
/// in reduction_cost(). `fits`: those of `machine`. @pre 1 ≤ nodes ≤ members
double fastest_sum_seconds(const GroupSum& sum, const Machine& machine, FittedCollectives& fits);

}  // namespace aloni::model
