#pragma once
// A step as a graph: kernels, transfers and collectives, each with the memory that it reads and writes. Who must wait for whom, and what
// a rank does in which order, follow from that alone: layers say what they compute, not when.
//
//   StepGraph graph;
//   graph.nodes.push_back({"halo of x", NodeKind::transfer, {{x, owned, false}, {x, ghosts, true}}});
//   graph.nodes.push_back({"interior", NodeKind::kernel, {{x, owned, false}, {y, inner, true}}});
//   graph.nodes.push_back({"boundary", NodeKind::kernel, {{x, needed, false}, {y, outer, true}}});
//   schedule(graph);      // start halo, run interior, finish halo, run boundary
//
// Nodes are listed in an order in which they could run one after the other. Pure arithmetic, as plans are: the same graph can be run
// (nn/step.hpp), looked at by a test, or priced.
#include <aloni/views/box.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace aloni::nn {

/// A part of a block of memory. Boxes of one block count in the same coordinates; what lies in different blocks never overlaps.
struct Access {
  const void* memory = nullptr;  ///< names the block; null: nothing
  views::Box box;                ///< empty: nothing
  bool writes = false;
};

enum class NodeKind : std::uint8_t {
  kernel,     ///< runs in the order of its queue
  transfer,   ///< of a box between ranks: its end on one rank waits for its end on others
  collective  ///< its end waits for its beginning on others
};

struct StepNode {
  std::string label;
  NodeKind kind = NodeKind::kernel;
  std::vector<Access> accesses = {};
};

struct StepGraph {
  std::vector<StepNode> nodes;
};

/// For each node the earlier ones that must be complete before it may start, ascending: those that write what it reads or writes, and those that
/// read what it writes. Such as others in the list wait for already are left out.
std::vector<std::vector<int>> dependencies(const StepGraph& graph);

enum class StepActionKind : std::uint8_t { run, start, finish };

struct StepAction {
  StepActionKind kind = StepActionKind::run;
  int node = 0;

  friend bool operator==(const StepAction&, const StepAction&) = default;
};

struct ScheduleOptions {
  /// Where kernels run behind their submission: communication that needs one starts when so many more have been submitted, if they can be. Then they
  /// run while it is made ready.
  int kernels_ahead = 0;
  /// Above 0: drawn from it, any order that the rules below allow but "first" and "before a rank waits", to try whether nodes name all
  /// memory that they touch.
  std::uint64_t seed = 0;
};

/// What one rank does, in order. Communication is started as soon as its dependencies and the order of the list allow. Every kernel that can run does
/// so, the first in the list first, before a rank waits for anybody. It then waits for what the first node in the list that can't go on needs, so
/// that a long collective which is needed late holds up nothing before; what nobody needs comes last (of transfers, in their order).
/// Ranks may have different graphs as long as they list the same communication in the same order (a rank without a part in it lists it, or not;
/// what is one node here may be several groups of ranks, each among itself). No rank then waits for ever, because all of them
///   * start communication in the order of the list;
///   * finish transfers in the order of the list;
///   * finish what transfers were started before a collective before they wait for it.
/// Proof: of all that ranks wait for, take the first in the list. Whoever hasn't begun it hasn't begun anything behind it either, so waits for nothing
/// behind it; nor does, if it is a transfer, who hasn't finished it. Nothing is before it; so all come to it.
std::vector<StepAction> schedule(const StepGraph& graph, const ScheduleOptions& options = {});

/// Kernels have one queue, communication another; the work of each is done in the order of its actions. For each action the place in `actions` of that
/// on the other queue behind which its own must wait; -1 where there is none, or where an earlier action has waited for it.
std::vector<int> waits_between_queues(const StepGraph& graph, const std::vector<StepAction>& actions);

}  // namespace aloni::nn
