#pragma once
// A running job as the cost model sees it, and the step that its training executes.
//
//   const model::Machine machine = job_machine(given, comm, kernel_place(comm));
//   const nn::StepOptions step = step_options_of(train_options, type);
//   simulate(network, layers, machine, MachineKernels(machine, machine.ranks_per_node, machine.threads_per_rank),
//            {.step = step});
#include <aloni/core/comm/communicator.hpp>
#include <aloni/model/machine.hpp>
#include <aloni/model/simulate.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/largest_memory.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/trainer.hpp>
#include <aloni/tools/machine_measurement.hpp>

#include <optional>

namespace aloni::tools {

/// The costs of a machine with the ranks and nodes of `comm`, in any order, and the planners of this build; slabs are
/// those of the given machine, and copies to the host take as long as there. `given` is empty: a machine that ships,
/// with processors of the same kind. Its memory is KernelPlace::memory_bytes, less a part for everything besides the
/// buffers of plans. Not collective; equal on all ranks.
model::Machine job_machine(const std::optional<model::Machine>& given, const comm::Communicator& comm,
                           const KernelPlace& place);

/// The step of a training with these options, without recomputation and offloading.
/// @pre options.gradients is GradientReduction::all
nn::StepOptions step_options_of(const nn::TrainOptions& options, nn::ElementType activations);

/// The same step for the cost model, with its number of micro-batches.
/// @pre as step_options_of()
model::SimulationOptions simulation_of(const nn::TrainOptions& options, nn::ElementType activations);

/// The memory of this step on the rank that takes most, with the savings of options.memory. Throws as
/// memory_savings_for(). @pre as step_options_of()
nn::LargestMemory memory_of_training(const nn::NetworkDescription& network, const nn::NetworkPlan& layers,
                                     const MachineDescription& planning, const nn::TrainOptions& options,
                                     nn::ElementType activations);

/// Bytes of K-FAC on the rank that takes most, without the inversions that run beside the steps; 0 without
/// options.kfac. @pre as step_options_of(); `layers` was made from `network` and `splits`
/// Throws as nn::plan_kfac().
Index memory_of_kfac(const nn::NetworkDescription& network, const std::vector<nn::LayerSplit>& splits,
                     const nn::NetworkPlan& layers, const MachineDescription& planning, const nn::TrainOptions& options,
                     nn::ElementType activations);

}  // namespace aloni::tools
