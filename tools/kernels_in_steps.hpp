#pragma once
// Measures the kernels of a network in its training steps: in the state of caches, branches and clock that steps leave,
// and beside the kernels of the other ranks of the node. One network of 30 kernels takes seven steps, and no kernel
// waits for a replay of that state (nn/run/measure_node.hpp). So a calibration gets several times as many kernels.
//
//   const auto tasks = model::kernel_tasks({sample}, planned, table);
//   if (has_ranks_for(comm, sample)) measure_in_steps(comm, sample, tasks, table);
#include <aloni/core/comm/communicator.hpp>
#include <aloni/model/measure_kernels.hpp>

#include <vector>

namespace aloni::tools {

/// Whether the ranks of `comm` can train the network in groups of as many ranks as it has, on a host. On a device each
/// timed kernel waits for its queue, so a step gives no other times than measure_node().
bool has_ranks_for(const comm::Communicator& comm, const model::PlannedNetwork& sample);

/// Groups of sample.ranks consecutive ranks train the network, all at the same time. Adds the times of the tasks to the
/// table: medians of at least five steps, of the first node with the problem, and means over the ranks that have it.
/// A network that accumulates gradients runs micro-batches, and no update. Tasks that no rank has in its step get no
/// time: those of a plan for another placement of ranks, and updates behind micro-batches.
/// `sample`: in float. `tasks`: of the sample, without problems that the table has. Both are equal on all ranks, as is
/// the table after it.
/// Collective. Throws as the constructor of nn::Network. @pre has_ranks_for(comm, sample)
void measure_in_steps(const comm::Communicator& comm, const model::PlannedNetwork& sample,
                      const std::vector<model::KernelTask>& tasks, model::KernelTable& table);

}  // namespace aloni::tools
