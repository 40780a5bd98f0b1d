#pragma once
// A step as a graph: kernels, transfers and collectives, each with the memory that it reads and writes. From these
// accesses alone follow the dependencies, and the order of actions on a rank. Layers name their computations, not the
// order.
//
//   StepGraph graph;
//   graph.nodes.push_back({"halo of x", NodeKind::transfer, {{x, owned, false}, {x, ghosts, true}}});
//   graph.nodes.push_back({"interior", NodeKind::kernel, {{x, owned, false}, {y, inner, true}}});
//   graph.nodes.push_back({"boundary", NodeKind::kernel, {{x, needed, false}, {y, outer, true}}});
//   schedule(graph);      // start halo, run interior, finish halo, run boundary
//
// The nodes are listed in a valid sequential order. The graph is pure arithmetic, like a plan: it can be run
// (nn/step.hpp), inspected by a test, or priced.
#include <aloni/views/box.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace aloni::nn {

/// A part of a memory block. Boxes of one block use the same coordinates. Different blocks overlap only if they lie in
/// the same memory: buffers of a plan that are in use at different times.
struct Access {
  const void* memory = nullptr;  ///< identifies the block; null: no access
  views::Box box;                ///< empty: no access
  bool writes = false;
  /// The bytes of the block, for blocks that may overlap others; 0 bytes: overlaps none. Equal in all accesses to it.
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
};

enum class NodeKind : std::uint8_t {
  kernel,     ///< runs in the order of its queue
  transfer,   ///< of boxes between ranks: it finishes on one rank only after it finishes on its peers
  collective  ///< it finishes only after it has started on the other ranks
};

struct StepNode {
  std::string label;
  NodeKind kind = NodeKind::kernel;
  std::vector<Access> accesses = {};
  int plan_node = -1;  ///< position in the step plan; -1: the node is of no plan
  /// Of a kernel: the border of a convolution whose interior other nodes compute.
  bool border = false;
  bool copies = false;  ///< of a kernel: it copies between device and host memory
  /// Of a kernel: the values that the host chooses in each step and gives to it as arguments, for people. Empty: there
  /// are none, so each step submits the same kernels. No value: unknown. See nn/step_segments.hpp.
  std::optional<std::string> changing_arguments = {};
};

struct StepGraph {
  std::vector<StepNode> nodes;
};

/// For each node, the earlier nodes that must be complete before it starts, ascending. They write cells that the node
/// accesses, or read cells that it writes. Blocks that overlap count as one cell. Transitive dependencies are left out.
std::vector<std::vector<int>> dependencies(const StepGraph& graph);

enum class StepActionKind : std::uint8_t { run, start, finish };

struct StepAction {
  StepActionKind kind = StepActionKind::run;
  int node = 0;

  friend bool operator==(const StepAction&, const StepAction&) = default;
};

struct ScheduleOptions {
  /// For devices, where kernels run asynchronously. Communication that needs a kernel starts once this many
  /// more kernels have been submitted, if there are any. They run while the communication is prepared.
  int kernels_ahead = 0;
  /// Above 0: a random order drawn from this seed, from all orders that avoid deadlock (see schedule()). Tests use it
  /// to find accesses that nodes do not name.
  std::uint64_t seed = 0;
};

/// The actions of one rank, in order.
/// * Communication starts as soon as its dependencies and the order of the list allow.
/// * All kernels that can run do so before the rank waits, in the order of the list.
/// * Then the rank waits for the communication that the first blocked node of the list needs. So a long collective
///   that is needed late delays nothing earlier. Communication that no node needs finishes last, transfers in their
///   order.
///
/// Ranks may have different graphs if they list the same communication in the same order. A rank that does not take
/// part in a communication may list it or leave it out. One node here may stand for several groups of ranks, each of
/// which communicates among itself.
/// No rank waits forever, because all ranks
///   * start communication in the order of the list;
///   * finish transfers in the order of the list;
///   * finish the transfers started before a collective before they wait for that collective.
/// Proof: of all communication that ranks wait for, take the first in the list. A rank that has not started it has
/// started nothing later, so it waits for nothing later. If it is a transfer, a rank that has not finished it has
/// finished no later transfer and waits for none. No rank waits for anything earlier. So all ranks get to it.
std::vector<StepAction> schedule(const StepGraph& graph, const ScheduleOptions& options = {});

}  // namespace aloni::nn
