#pragma once
// By how much the resident set of a process grows when a Network is made and runs a step. Pure arithmetic.
//
//   const ProcessMemory memory = process_memory({&training, &inference}, layout, machine);
//   memory.total();          // resident bytes that the system reports, minus those before
//   memory.other_ranks;      // of this: pages that belong to other ranks and count there too
//
// The system counts a page in each process that has touched it. So a rank that reads the memory of another rank of the
// node has the pages that it reads in its own resident set.
#include <aloni/core/machine.hpp>
#include <aloni/nn/plan/memory_layout.hpp>
#include <aloni/nn/plan/step_plan.hpp>

#include <vector>

namespace aloni::nn {

struct ProcessMemory {
  /// Buffers and messages to ranks without shared memory, bytes_of(); and activations in host memory.
  Index network = 0;
  Index messages = 0;     ///< packed values for ranks, or from ranks, that share memory
  Index kernels = 0;      ///< code and descriptions of convolution kernels, and of the nodes of the plans
  Index libraries = 0;    ///< pages of libraries that the first step touches
  Index other_ranks = 0;  ///< pages of other ranks' memory that this rank reads or writes

  Index total() const { return network + messages + kernels + libraries + other_ranks; }
  /// Of a network that is not the first one of the process: the pages of libraries are there already.
  Index additional() const { return total() - libraries; }
};

/// `plans` and `layout`: as for bytes_of(). The learned tensors are not included, but the pages of other ranks'
/// gradients are. @pre `machine` describes all ranks of the plans
ProcessMemory process_memory(const std::vector<const StepPlan*>& plans, const MemoryLayout& layout,
                             const MachineDescription& machine = {});

/// Bytes that are contiguous where `part` lies in dense memory that covers `memory`.
Index run_bytes(const views::Box& part, const views::Box& memory, Index element_bytes);

/// Bytes of the pages that a reader of `part` touches in dense memory that covers `memory`: gaps shorter than a page
/// are touched too. At most the bytes of `memory` and a page more.
Index touched_bytes(const views::Box& part, const views::Box& memory, Index element_bytes, Index page_bytes);

}  // namespace aloni::nn
