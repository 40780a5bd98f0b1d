#pragma once
// Measures the machine on which this job runs, for the cost model: processors, memory, links, sums over ranks. Kernels
// are measured apart (kernel_measurement.hpp).
//
//   const model::Machine machine = measure_machine(comm, quick_measurement());
//
// Fields that this job cannot measure are 0, "not known": links between nodes on one node, links between ranks with one
// rank, bfloat16 without fast kernels, float16 on a host.
//
// Method. Arithmetic: the best rate of matrix products, and of convolutions for types of 16 bits, on one core while the
// others wait. Bandwidths: core/memory_probes.hpp. Messages: core/comm/link_probe.hpp. Copies between ranks: halo
// exchanges of two sizes, in shared memory. Sums: comm::calibrate().
#include <aloni/core/comm/communicator.hpp>
#include <aloni/model/machine.hpp>

#include <cstddef>
#include <string>

namespace aloni::tools {

struct MachineMeasurementOptions {
  double seconds_per_probe = 0.5;                         ///< there are about 10; sums take some seconds more
  std::size_t largest_sum_bytes = std::size_t{32} << 20;  ///< of the sums over ranks
  /// Sums are not larger than a message that takes this long on the slowest link, but for 64 KiB.
  double longest_message_seconds = 0.1;
};

/// Takes less than 20 s on two ranks, also between two hosts with 1 Gbit/s.
inline MachineMeasurementOptions quick_measurement() {
  return {.seconds_per_probe = 0.1, .largest_sum_bytes = std::size_t{4} << 20, .longest_message_seconds = 2e-3};
}

/// The largest message, halo exchange or collective to be measured on these links, in bytes: largest_sum_bytes, halved
/// as often as needed.
std::size_t largest_measured_bytes(const model::Machine& machine, const MachineMeasurementOptions& options);

/// The model of this host's processor, or of the device on which kernels run; empty if the system does not tell.
std::string processor_name();

/// The place where kernels run.
struct KernelPlace {
  bool on_host = true;
  int threads = 1;                   ///< of this rank
  double memory_bytes = 0;           ///< of one rank: its share of the node, or of its device; the least; 0: not known
  double host_memory_bytes = 0;      ///< of one rank: its share of the node; the least; 0: not known
  MachineDescription planning = {};  ///< of this job, with the costs of this build
};
/// `threads` may differ between ranks. Collective. Throws as comm::describe_machine().
KernelPlace kernel_place(const comm::Communicator& comm);

/// The number of ranks that pass the same text as this one, itself included. Collective.
int ranks_with_equal(const comm::Communicator& comm, const std::string& text);

/// Median seconds of a halo exchange of two ranks, with one ghost row of `bytes` bytes on each; `direct_bytes`: as
/// halo::ExchangeOptions. Collective over `pair`.
double halo_exchange_seconds(const comm::Communicator& pair, std::size_t bytes, std::size_t direct_bytes, int runs);

/// A MachineDescription::consolidate_below: the geometric mean of two sizes of values from rank to rank. If all smaller
/// ones are joined and no larger ones, the product of all measured times is the least. 0: joining saves less than 5 %
/// of one of them. In these exchanges each rank gets values of all others, at most `runs` times. Collective over
/// `group`.
/// @pre the ranks of the group are on several nodes, and those of one of them share memory; runs ≥ 7
Index longest_to_consolidate(const comm::Communicator& group, int runs);

/// "measured on 2026-11-25 with 2 ranks"
std::string provenance_of(const comm::Communicator& comm);

/// Equal on all ranks. Collective. Throws PeerFailed, CommunicationError.
model::Machine measure_machine(const comm::Communicator& comm, const MachineMeasurementOptions& options = {});

}  // namespace aloni::tools
