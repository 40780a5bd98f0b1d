#pragma once
// The time of one kernel node of a step plan, measured alone: with the binder, the step and the clock of real steps.
//
//   const StepPlan plan = plan_step(net, layers, rank, StepKind::training, machine);
//   const MemoryLayout layout = lay_out_memory({&plan}, machine);
//   const NodeTime time = measure_node<float, Exec>(comm, queue, plan, layout, n, machine);
//   time.seconds, time.spread;
//
// The ranks of the plan need not exist: a process measures a node of any rank of any number of ranks. All ranks of the
// communicator measure at the same time, since in a step all ranks of a node share its memory and its caches.
//
// Method
// * Memory as in a network: buffers lie in one block, those that other ranks read in memory of the node. All values are
//   finite and far from denormals. Positions of maxima are those of a forward pass.
// * Before each run the caches get the state in which the node finds them in a step (nn/plan/isolated_node.hpp).
// * The first runs warm up. The result is the median of the others, of at least MeasureOptions::runs.
// * Runs in which the core is not at its full speed, or runs another program (core/core_speed.hpp), do not count. They
//   are repeated, up to twice as many runs.
// * A node is timed on its own, as StepTimes does. The clock costs 30 ns, and kernels take 1 µs and more. Repeating a
//   short kernel in a loop would keep its code and branches warm, as no step does.
// * On a device the host waits for each run. A kernel without work takes longer alone than among others: the difference
//   is subtracted.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/machine.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/nn/plan/memory_layout.hpp>
#include <aloni/nn/plan/step_plan.hpp>

#include <vector>

namespace aloni::nn {

struct MeasureOptions {
  int runs = 10;
  /// Short kernels run more often, until they have taken this time together, but at most `most_runs` times.
  double least_seconds = 2e-3;
  int most_runs = 40;
  int warm_up_runs = 2;
  /// Stack distances are replayed up to this number of bytes. It is at least the share of this rank in the last cache.
  Index cache_bytes = Index{32} << 20;
  /// So is the time since the last use of an operand, roughly: by these rates, up to `longest_wait`. The reason is a
  /// guess: other virtual machines use the last cache too, and it forgets. Without waiting, the update of LeNet-5 took
  /// about half of its time in a step.
  double flops_per_second = 30e9, bytes_per_second = 10e9;
  double longest_wait = 1.5e-3;
};

struct NodeTime {
  double seconds = 0;  ///< median
  double spread = 0;   ///< half the difference of the quartiles, divided by the median
  int runs = 0;
};

/// Of the seconds of single runs. @pre there is at least one
NodeTime summary(std::vector<double> seconds);

/// The time of node `node` of `plan` on this rank.
/// `options`: equal on all ranks. `machine`: the one for which the plan was made.
/// Collective; ranks may measure different nodes of different plans.
/// Throws InvalidArgument for a transfer or a reduction, and for options out of range. Throws Unsupported if a backend
/// cannot compute a convolution. Both on the ranks concerned; PeerFailed on the others.
template <class T, class Exec>
NodeTime measure_node(const comm::Communicator& comm, const Queue<Exec>& queue, const StepPlan& plan,
                      const MemoryLayout& layout, int node, const MachineDescription& machine,
                      const MeasureOptions& options = {});

}  // namespace aloni::nn
