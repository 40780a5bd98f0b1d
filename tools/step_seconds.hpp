#pragma once
// Times of kernels in training steps, beside their times alone. In a step a kernel takes longer where cores lower their
// clock under load, or where other programs use the shared cache: by 15 % on a virtual machine with a Xeon. The cost
// model multiplies times of kernels by the ratio (model/kernel_times.hpp).
//
//   add_step_seconds(comm, sample, table);                  // soon after kernel_measurement() has filled the table
//   table.step_factor(model::KernelKind::normalisation);    // 1.4
#include <aloni/core/comm/communicator.hpp>
#include <aloni/model/measure_kernels.hpp>

namespace aloni::tools {

/// Each rank trains the network alone, all ranks at the same time. The times of its kernels that the table has are
/// added to KernelTable::seconds_alone and seconds_in_steps. Does nothing on devices, where kernels are timed one after
/// the other in both cases. Updates are left out: their gradients come from sums over ranks in a job.
/// `sample`: in float, of one rank; equal on all ranks, as is the table after it.
/// Collective. Throws as the constructor of nn::Network.
void add_step_seconds(const comm::Communicator& comm, const model::PlannedNetwork& sample, model::KernelTable& table);

}  // namespace aloni::tools
