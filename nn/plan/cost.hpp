#pragma once
// The cost of the nodes of a step plan: arithmetic, memory traffic, messages, workspace. Pure arithmetic on the plan:
// nothing is measured, and no time is predicted.
//
//   const StepPlan step = plan_step(net, layers, rank, StepKind::training, machine);
//   const StepCost all = cost(step, machine);
//   all.total().flops;                                  // of this rank in one step
//   all.of(find_layer(net, "conv1")).transfers.bytes_sent;
//
// Flops. An addition, a multiplication, a division, a comparison and a function (exp, log, root) count as one each. So
// a multiplication with its addition counts as two. Convolutions count as local::flops of their calls. Padding counts
// as data. A bias or ReLU that the kernel of a convolution computes does not count. A bias with a node of its own
// counts. Where dL/dx is gathered, by forward kernels, each of its pixels counts with all taps; a border counts again
// where the interior covers it. The sum over ranks may therefore exceed the flops of one rank without a split. Random
// numbers of dropout do not count.
//
// Bytes. bytes_read and bytes_written are the regions of the node, each once; caches are not considered.
//
// Messages. bytes_sent is payload, whether it travels in a message or the receiver copies it from the sender's memory.
// A transfer has one message for each rank that it sends to, also if several tensors travel. If the receiver copies
// the values, this message is empty, and an empty answer follows the copy (MachineDescription::direct_bytes). Adjoint
// transfers swap sends and receives. Messages that are joined between nodes (halo/node_pairs.hpp) count one by one: the
// plans of other ranks decide which ones are joined, see messages_of_ranks(). Communicator::traffic_by_peer counts the
// same messages and bytes.
// A reduction has the messages of the algorithm that the engine chooses without tuning on the nodes of the machine
// (core/comm/all_reduce_traffic.hpp). In shared memory its messages are empty. Then the values that other ranks read
// from this rank count as sent, and so do the results that it writes into their memory. Device libraries (NCCL) choose
// their own algorithms; those of the engine are counted. In a partial all-reduce each rank also sends a word to rank 0,
// and gets one back.
#include <aloni/core/machine.hpp>
#include <aloni/nn/plan/step_plan.hpp>

#include <array>
#include <vector>

namespace aloni::nn {

/// The cost of one node on one rank, or a sum of costs.
struct NodeCost {
  double flops = 0;
  Index bytes_read = 0, bytes_written = 0;   ///< of buffers
  Index bytes_sent = 0, bytes_received = 0;  ///< payload to and from other ranks
  Index messages_sent = 0, messages_received = 0;
  /// Bytes of buffers and packed messages. Buffers: those with role workspace or partial_sums that the node uses.
  /// Messages: those to and from ranks whose memory this rank cannot read. In a sum: the largest of its nodes.
  Index workspace = 0;

  NodeCost& operator+=(const NodeCost& other);
  friend bool operator==(const NodeCost&, const NodeCost&) = default;
};

/// @pre `node` is a node of `plan`; `machine` describes all its ranks
NodeCost cost(const StepPlan& plan, const PlanNode& node, const MachineDescription& machine = {});

/// The part of it that follows from the regions of the node: bytes_read, bytes_written, and workspace in buffers.
NodeCost cost_of_regions(const StepPlan& plan, const PlanNode& node);

/// The words by which rank 0 counts the ranks of a partial all-reduce and begins a round. `position`: of the rank.
NodeCost words_of_a_round(int position, int ranks);

/// Messages of the transfers of a step between a rank and another one.
struct PeerMessages {
  int peer = 0;
  Index bytes_sent = 0, bytes_received = 0;  ///< payload, as NodeCost counts it
  Index messages_sent = 0, messages_received = 0;

  friend bool operator==(const PeerMessages&, const PeerMessages&) = default;
};

/// Of all transfers of the plan, by ascending ranks, without sums over ranks. A training step exchanges these messages:
/// PeerTraffic::messages of Communicator::traffic_by_peer().
/// @pre `machine` describes all ranks of the plan
std::vector<PeerMessages> messages_by_peer(const StepPlan& plan, const MachineDescription& machine = {});

/// The same for all ranks, with the messages that are joined between nodes: empty ones between the ranks of a node and
/// their relay, and one between the relays. traffic_by_peer() counts these in PeerTraffic::collectives.
/// @pre `plans` are those of all ranks, by rank; `machine` describes them
std::vector<std::vector<PeerMessages>> messages_of_ranks(const std::vector<StepPlan>& plans,
                                                         const MachineDescription& machine = {});

/// Whether transfers of this machine join messages between nodes.
bool joins_messages(const MachineDescription& machine);

/// Bytes of the packed messages of a transfer, to and from ranks whose memory this rank cannot read.
Index packed_bytes(const StepPlan& plan, const TransferWork& work, const MachineDescription& machine = {});

/// The nodes of one layer and phase, by kind.
struct CostByKind {
  NodeCost kernels, transfers, reductions;

  NodeCost sum() const;
  CostByKind& operator+=(const CostByKind& other);
};

/// Totals of a plan.
struct StepCost {
  static constexpr std::size_t phases = 4;  ///< of StepPhase

  /// By layer and phase; the first element belongs to no layer (loss, update). Sums of gradients belong to the first
  /// layer of their bucket, with their own label; see `gradient_sums`.
  std::vector<std::array<CostByKind, phases>> layers;
  /// Of the reductions above, those of gradients.
  NodeCost gradient_sums;

  /// `layer`: -1 for the nodes of no layer. Zero for layers without nodes.
  CostByKind of(int layer) const;
  CostByKind of(int layer, StepPhase phase) const;
  NodeCost of(StepPhase phase) const;
  NodeCost total() const;
};

/// @pre `machine` describes all ranks of the plan
StepCost cost(const StepPlan& plan, const MachineDescription& machine = {});
/// The same with reductions that cost nothing.
StepCost cost_without_reductions(const StepPlan& plan, const MachineDescription& machine = {});

}  // namespace aloni::nn
