#pragma once
// The part of `aloni calibrate` that measures kernels: those of random small networks (model/sample_networks.hpp), for
// as long as the user gives it. A learned model of each kind of kernels follows from them.
//
//   add_kernels(comm, machine, {.seconds = 480}, progress, save);
//   const std::vector<LearnedSummary> summaries = learn_kernels(comm, machine);
//
// The table of the machine is the state of the work. With a machine from a file, only missing kernels are measured.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/model/machine.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace aloni::tools {

struct KernelCalibrationOptions {
  double seconds = 480;  ///< no kernel starts after this time
  int most_networks = 8000;
  std::uint64_t seed = 1;  ///< of the networks; equal for all machines
};

/// The table for the layout of processes of `machine`, a new one if there is none.
model::KernelTable& table_of(model::Machine& machine);

/// Adds times of the kernels of random networks to the table for the layout of processes of `machine`: measured in
/// steps (kernels_in_steps.hpp). Kernels are measured alone (kernel_measurement.hpp) on devices, and for networks that
/// need more than half of the memory of a rank. So are the kernels of networks of two ranks if the number of ranks is
/// odd.
/// After each network `progress` gets the share of the time that is over and the number of kernels. `save` may keep the
/// machine in a file. Both are called on all ranks.
/// Collective. Throws as measure_in_steps() and nn::measure_node.
void add_kernels(const comm::Communicator& comm, model::Machine& machine, const KernelCalibrationOptions& options,
                 const std::function<void(double share, std::size_t kernels)>& progress,
                 const std::function<void()>& save);

/// The result of learning one kind of kernels.
struct LearnedSummary {
  model::KernelKind kind;
  std::size_t times = 0;
  /// Mean relative errors: of the model on times that were left out of its training, and of the roofline on all.
  double learned_error = 0, roofline_error = 0;
};

/// Replaces the learned models of the machine's layout of processes by new ones from its table. Kinds with too few
/// times (least_times_to_learn) get none. Equal on all ranks.
/// Collective. Throws as learn_kernel().
std::vector<LearnedSummary> learn_kernels(const comm::Communicator& comm, model::Machine& machine,
                                          const KernelCalibrationOptions& options = {});

}  // namespace aloni::tools
