#pragma once
// The machine that the cost model prices: processors, links, measured and learned times of kernels. One value without
// MPI and Kokkos. `aloni calibrate` measures it, machine_file.hpp reads and writes it, and machines/ has some.
//
//   const Machine machine = read_machine("machine.json");          // machine_file.hpp
//   const MachineKernels kernels(machine);                         // kernel_times.hpp
//   simulate(network, layers, machine, kernels).seconds;           // simulate.hpp
//
// Units: seconds, bytes, floating-point operations (flops). An addition and a multiplication count as one each.
// Zero means "not known" for every measured field; the model then uses the next source.
#include <aloni/core/comm/tuning.hpp>
#include <aloni/core/machine.hpp>
#include <aloni/model/collective_fit.hpp>
#include <aloni/model/kernel.hpp>
#include <aloni/model/learned_kernel.hpp>
#include <aloni/model/link_kind.hpp>
#include <aloni/model/transfer_fit.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace aloni::model {

/// A message of n bytes arrives `latency + n · seconds_per_byte` after its send was posted (Hockney's model; Thakur,
/// Rabenseifner and Gropp 2005). The sender and the receiver are each busy for `seconds_per_message`.
struct LinkCosts {
  double latency = 0;
  double seconds_per_byte = 0;
  double seconds_per_message = 0;

  friend bool operator==(const LinkCosts&, const LinkCosts&) = default;
};

/// The processor of one rank, and the memory that the ranks of a node share. A core is the unit on a host. On a device
/// it is the whole device, and `cores_per_node` counts devices.
struct Processor {
  std::string name = {};
  int cores_per_node = 1;
  /// Peak rates of one core by type of elements, in flops per second.
  double float32_flops = 0, float64_flops = 0, bfloat16_flops = 0, float16_flops = 0;
  /// Bandwidth of main memory for one core, and for all cores of a node together, in bytes per second. Reads and writes
  /// count alike.
  double core_bandwidth = 0, node_bandwidth = 0;
  /// Cache of one core, and the cache that the cores of a node share, in bytes; and their bandwidths for one core.
  double core_cache_bytes = 0, node_cache_bytes = 0;
  double core_cache_bandwidth = 0, node_cache_bandwidth = 0;
  /// Between a device and the memory of its host, in one direction, in bytes per second; 0: not known, or a host.
  double host_bandwidth = 0;
  /// Time of a kernel without work: its call, or its launch on a device.
  double kernel_seconds = 0;
  /// Share of the peak rate that kernels of a kind reach where arithmetic limits them; 0: the default of the library.
  std::map<KernelKind, double> efficiency = {};

  friend bool operator==(const Processor&, const Processor&) = default;
};

/// The measured time of a kernel problem (kernel.hpp).
struct MeasuredKernel {
  double seconds = 0;  ///< median of `runs`
  double spread = 0;   ///< half the difference of the quartiles, divided by the median
  int runs = 0;

  friend bool operator==(const MeasuredKernel&, const MeasuredKernel&) = default;
};

/// Kernels measured in one layout of processes. All ranks of the node computed at the same time, as in a step.
struct KernelTable {
  int ranks_per_node = 1, threads_per_rank = 1;
  std::map<std::string, MeasuredKernel> times = {};  ///< by KernelProblem::key

  friend bool operator==(const KernelTable&, const KernelTable&) = default;
};

/// Implementations of convolutions measured in one layout of processes, as above, on one kind of device. Planners
/// choose by them (nn/local/convolution_choice.hpp).
struct ConvolutionTable {
  int ranks_per_node = 1, threads_per_rank = 1;
  int compute_capability = 0;  ///< MachineDescription::compute_capability
  /// By nn::local::numbers_of(ConvolutionCase), with the limit of the workspace.
  MeasuredImplementations measured = {};

  friend bool operator==(const ConvolutionTable&, const ConvolutionTable&) = default;
};

/// Source of the figures of a part of the machine: "measured on 2026-11-25 with 2 ranks", or a publication with its
/// title and page.
struct Provenance {
  std::string part = {};  ///< "processor", "links.between_nodes", …
  std::string text = {};

  friend bool operator==(const Provenance&, const Provenance&) = default;
};

struct Machine {
  std::string name = {};
  std::vector<Provenance> provenance = {};
  // --- layout of processes ---
  int ranks_per_node = 1, threads_per_rank = 1;
  int most_nodes = 0;       ///< 0: as many as a user asks for
  double memory_bytes = 0;  ///< of one rank
  /// Costs and limits of planners. `nodes`: the node of each rank of a running job; the machine then is one for exactly
  /// as many ranks. Empty, as in all files: consecutive ranks fill the nodes.
  MachineDescription planning = {};
  // --- costs ---
  Processor processor = {};
  std::array<LinkCosts, link_kinds> links = {};  ///< by LinkKind
  double combine_seconds_per_byte = 0;           ///< of a sum over ranks, for each byte added by a rank
  double exchange_seconds = 0;                  ///< of starting and finishing a transfer or a sum, besides its messages
  std::vector<comm::Tuning> all_reduces = {};   ///< measured, each for one number of ranks and nodes
  std::vector<CollectiveFit> collectives = {};  ///< constants of collectives (collective_costs.hpp)
  std::vector<TransferFit> transfers = {};      ///< constants of messages and halo exchanges (transfer_costs.hpp)
  std::vector<KernelTable> kernels = {};
  std::vector<ConvolutionTable> convolutions = {};
  std::vector<LearnedKernel> learned = {};

  const LinkCosts& link(LinkKind kind) const { return links[static_cast<std::size_t>(kind)]; }

  friend bool operator==(const Machine&, const Machine&) = default;
};

/// The part of the machine that `ranks` ranks use, as planners see it: with its tuning, its measured convolutions, and
/// its work_per_copied_byte().
/// `rank_of`: the place of each rank, as the number of a rank of the machine; each number once (rank_placement.hpp).
/// Empty: each rank has its own place.
/// Throws InvalidArgument if ranks < 1, or if the machine has fewer. Also if Machine::planning names the nodes of
/// another number of ranks, and for places that are no permutation of the ranks.
MachineDescription description_of(const Machine& machine, int ranks, const std::vector<int>& rank_of = {});

/// Rates of the roofline for convolutions and for traffic, divided by Processor::host_bandwidth. The value of
/// `machine.planning` for a host, and if the bandwidth or a rate is not known.
WorkPerCopiedByte work_per_copied_byte(const Machine& machine);

/// The link between two ranks. @pre both are ranks of `description`
LinkKind link_between(const MachineDescription& description, int a, int b);

/// The table for this layout of processes; null if there is none.
const KernelTable* table_for(const Machine& machine, int ranks_per_node, int threads_per_rank);

/// The table for the layout of processes of the machine itself; a new one if there is none.
KernelTable& own_kernels(Machine& machine);

/// The measured convolutions for `ranks` ranks; null if there are none. They have the threads per rank and the device
/// of the machine. Of several tables it is the one whose number of ranks per node is nearest, since neighbours slow
/// all implementations down alike.
const ConvolutionTable* convolutions_for(const Machine& machine, int ranks);

/// A machine with round figures for one core or device of no particular kind. For tests, and where nothing is measured.
Machine generic_machine();

}  // namespace aloni::model
