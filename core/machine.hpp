#pragma once
// The facts about the machine that a plan needs: which ranks share memory, and how messages make progress. It also has
// the costs by which a planner chooses between equivalent plans. One value, equal on all ranks, without MPI and Kokkos.
// So plans for 4,096 ranks can be made on a laptop. Running ranks fill it in by describe_machine()
// (core/comm/running_machine.hpp).
#include <aloni/core/comm/tuning.hpp>
#include <aloni/core/index.hpp>
#include <aloni/core/measured_implementations.hpp>

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace aloni {

inline constexpr Index default_direct_bytes = 16 * 1024;
inline constexpr Index default_consolidate_below = 16 * 1024;
inline constexpr Index fragment_bytes_over_tcp = 60 * 1024;
/// Of MachineDescription::direct_bytes: nothing is copied.
inline constexpr Index unlimited_bytes = std::numeric_limits<Index>::max();

/// Work of a device's kernels in the time in which one byte moves between the device and its host. The defaults are
/// those of an H100 with PCI Express 5.0: 50 Tflop/s in float, 400 in 16 bits, 3 TB/s in its memory, 50 GB/s to the
/// host. model::work_per_copied_byte() derives them from a measured machine.
struct WorkPerCopiedByte {
  double flops = 1000;         ///< with activations of 32 or 64 bits
  double flops_16_bit = 8000;  ///< with activations of 16 bits
  double traffic = 60;         ///< bytes that kernels read and write

  friend bool operator==(const WorkPerCopiedByte&, const WorkPerCopiedByte&) = default;
};

struct MachineDescription {
  // --- ranks ---
  /// Node of each rank; empty: all ranks are on one node.
  std::vector<int> nodes = {};
  /// Whether ranks of a node copy from each other's memory. Otherwise they send messages.
  bool shared_memory = true;
  /// Least size of the values for one rank, in bytes, that this rank copies from the sender's memory, if they share
  /// memory. Fewer are sent. Two short messages, before and after the copy, take as long as this many bytes.
  /// unlimited_bytes: all are sent, because their messages carry checksums.
  Index direct_bytes = default_direct_bytes;
  /// Two or more messages of a transfer between two nodes are joined into one if their mean length is below this many
  /// bytes; 0: none. The ranks of a node must share memory (halo/node_pairs.hpp). A joined message leaves when all its
  /// values are packed, and takes one network interface. Longer ones leave one by one, by all interfaces.
  Index consolidate_below = default_consolidate_below;
  /// Largest fragment of a message between nodes, in bytes. The default is for TCP: Open MPI sends up to 64 KiB, its
  /// header included, without asking the receiver first. With remote direct memory access it is 1 GiB: asking costs
  /// little, and messages travel whole (TransportOptions::mpi_fragment_bytes).
  Index fragment_bytes = fragment_bytes_over_tcp;
  /// Whether kernels run on the processor cores that also move messages. False for devices.
  bool on_host = true;
  /// Whether a thread makes progress with messages while kernels run (TransportOptions::progress_thread).
  bool progress_thread = false;

  // --- convolutions ---
  /// The interior is computed in a call of its own only if its overhead is at most this share of the pass. Beside
  /// messages it hides the whole exchange. Where the computing cores copy the ghosts themselves, it hides only the wait
  /// for a late neighbour.
  double interior_overhead_beside_messages = 0.05;
  double interior_overhead_beside_copies = 0.01;
  /// Cost of one more call of a kernel, in pixels of its result. Most of it is the reordering of the weights.
  double pixels_per_call = 60;
  /// Cost of copying one element, in multiplications.
  double multiplications_per_copied_element = 135;
  /// Size of the chunks in which partial sums and gathered rows travel, in bytes. They stay in a core's cache from the
  /// kernel to the message.
  double chunk_bytes = 1 << 20;
  int most_chunks = 64;
  /// Size of a slab of the interior, in multiplications. It takes about a millisecond; messages make progress between
  /// slabs. model/step_limits.hpp derives it from a measured machine.
  double multiplications_per_slab = 100e6;
  int most_slabs = 16;

  // --- implementations of convolutions (nn/local/convolution_choice.hpp) ---
  /// Whether the build has oneDNN, and whether oneDNN has kernels for bfloat16 on the processors of all ranks.
  bool onednn = true;
  bool onednn_bfloat16 = true;
  bool kokkos_kernels = true;
  bool cudnn = false;  ///< whether the build has it, and the device's libraries too
  /// Largest gradient of filters whose sums one thread keeps in its second-level cache beside the activations, in
  /// bytes. With smaller ones the direct kernels are faster than oneDNN.
  Index filter_gradient_bytes = 256 * 1024;
  /// Of devices by NVIDIA: 80 for 8.0. Times measured on another one do not count. 0: a host, or not known.
  int compute_capability = 0;
  /// Measured times of convolutions. They decide before the rules on shapes; without them the rules do.
  MeasuredImplementations convolutions = {};

  // --- memory of a process, besides buffers: measured with oneDNN 2.6 on x86-64 ---
  /// Bytes of the pages that a process first touches in the set-up of a network and in its first step. They hold code
  /// and tables of this library, oneDNN, BLAS and MPI.
  Index library_bytes = 6 << 20;
  /// Compiled code and descriptions of one kernel of a convolution: one problem and one pass. In bytes.
  Index kernel_bytes = 96 * 1024;
  /// Code that oneDNN compiles for matrix products, once for all convolutions whose gradients of filters are products
  /// (nn/local/convolution_choice.hpp). In bytes.
  Index product_bytes = 5 << 20;
  /// A node of a plan in the plan, in the steps and in their graphs, in bytes.
  Index node_bytes = 2 * 1024;
  Index page_bytes = 4096;

  // --- offloading (nn/plan/offloading.hpp) ---
  /// By these estimates copies begin early enough to end beside kernels. All are above 0.
  WorkPerCopiedByte work_per_copied_byte = {};

  // --- collectives ---
  /// Least size of the messages in which gradients are summed beside the backward pass, in bytes.
  Index bucket_bytes = Index{1} << 20;
  /// Measured all-reduces. They decide the algorithm and the parts of sums over as many ranks; without them
  /// the size does.
  std::optional<comm::Tuning> tuning = {};

  /// Kernels that are submitted before communication that needs an earlier one starts (ScheduleOptions). On a device
  /// they run while the communication is prepared. On the host a kernel ends before the next action begins.
  int kernels_ahead() const { return on_host ? 0 : 1; }

  /// Whether `a` copies from the memory of `b`. @pre both are ranks of the machine
  bool share_memory(int a, int b) const {
    return a == b || (shared_memory &&
                      (nodes.empty() || nodes[static_cast<std::size_t>(a)] == nodes[static_cast<std::size_t>(b)]));
  }

  friend bool operator==(const MachineDescription&, const MachineDescription&) = default;
};

/// A machine whose nodes have `ranks_per_node` consecutive ranks each; 0: all ranks on one node. @pre ranks ≥ 1
MachineDescription machine_of_nodes(int ranks, int ranks_per_node);

/// Number of nodes. 1 if all ranks are on one node.
int number_of_nodes(const MachineDescription& machine);

/// A field of a MachineDescription.
struct MachineField {
  std::string_view name;  ///< of the member
  std::string_view description;
  std::variant<bool, Index, double> value;
  std::string_view unit;  ///< empty: none
};
/// All fields but `nodes`, in their order.
std::vector<MachineField> fields_of(const MachineDescription& machine);
/// The value, with its unit: "16384 bytes", "yes", "unlimited".
std::string value_text(const MachineField& field);

/// One line per field: description, value, unit. For people.
std::string to_string(const MachineDescription& machine);

}  // namespace aloni
