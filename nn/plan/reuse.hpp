#pragma once
// How far back the operands of the kernels of a step were used: the reason why equal kernels take different times.
//
//   const MemoryLayout layout = lay_out_memory({&plan}, machine);
//   const std::vector<Reuse> reuse = reuse_of(plan, layout);
//   reuse[n].far_bytes;   // of node n: bytes that were last used more than reuse_distances[0], [1], … bytes ago
//   reuse[n].code_bytes;  // bytes that the step has used since a kernel with the same code ran
//
// The stack distance of a byte is the number of other bytes that a step uses between two uses of it (isolated_node.hpp
// has the source). A cache that is smaller than the distance has lost the byte. A kernel streams through its operands:
// behind the use of a byte it uses half of its other bytes on average. So half of the bytes of both nodes count too:
// the update of large weights leaves none of them in a cache. isolate() finds the distances of one node. Here one walk
// over two steps finds those of all nodes, with a binary indexed tree over time. Source: Fenwick, A new data structure
// for cumulative frequency tables, 1994.
//
// Pure arithmetic on the plan.
#include <aloni/nn/plan/memory_layout.hpp>
#include <aloni/nn/plan/step_plan.hpp>

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace aloni::nn {

/// In bytes: between the sizes of caches of usual processors.
inline constexpr std::array<double, 4> reuse_distances{1 << 20, 4 << 20, 16 << 20, 64 << 20};

struct Reuse {
  /// Bytes of the regions of a node whose distance is at least reuse_distances[i]. Descending. Regions that the node
  /// reads and writes count twice, as in NodeCost.
  std::array<double, reuse_distances.size()> far_bytes = {};
  /// Bytes of the nodes between the last one with the same code_of() and this one: they drive its code from caches,
  /// and its branches from the tables of the core. A kernel of a microsecond takes up to four times as long then.
  double code_bytes = 0;
  /// Bytes that the step uses, each once. Each node has code and data of its own, which it uses once in a step.
  double step_bytes = 0;

  friend bool operator==(const Reuse&, const Reuse&) = default;
};

/// Which code a kernel runs: the place of its kind in Work, and its pass, stage or function. Kernels with other shapes,
/// and other types, count as the same code.
using KernelCode = std::pair<std::size_t, int>;
KernelCode code_of(const Work& work);

/// One for each node; zeros for transfers and sums over ranks. Steps repeat: the last use may be in the step before.
/// `layout`: of the plan, or of several plans of which it is one.
std::vector<Reuse> reuse_of(const StepPlan& plan, const MemoryLayout& layout);

/// Of a node whose regions have `bytes` bytes, if all of them and its code were used `distance` bytes ago, in the step
/// before.
Reuse reuse_at(double bytes, double distance);

}  // namespace aloni::nn
