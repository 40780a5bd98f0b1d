#pragma once
// Measures kernels of this process for a table of the cost model: the connection of model/measure_kernels.hpp with
// nn/run/measure_node.hpp.
//
//   const model::MeasureKernel measure = kernel_measurement(comm, machine, {});
//   model::measure_kernels(model::kernel_tasks(networks, machine, table), measure, table, proceed);
//
// The ranks of `comm` fill nodes as the ranks of a step do, since they measure at the same time. All of them measure
// the same kernel, and the result is the mean over them. So the table is equal on all ranks.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/model/measure_kernels.hpp>

namespace aloni::tools {

struct KernelMeasurementOptions {
  int runs = 10;
  /// Short kernels run more often, up to this time together.
  double least_seconds = 2e-3;
};

/// Kernels run on the execution space that networks of the plan's type use.
/// The result is collective: all ranks of `comm` pass equal plans. They outlive the result, which keeps the layout of
/// the last one by its address. Its exceptions are those of nn::measure_node.
/// @pre `machine` and Kokkos outlive the result
model::MeasureKernel kernel_measurement(const comm::Communicator& comm, const model::Machine& machine,
                                        const KernelMeasurementOptions& options = {});

}  // namespace aloni::tools
