#include <aloni/tools/job_machine.hpp>

#include <aloni/model/shipped_machines.hpp>
#include <aloni/nn/kfac_options.hpp>
#include <aloni/nn/plan/kfac_cost.hpp>
#include <aloni/nn/plan/memory_savings.hpp>
#include <aloni/nn/plan/representatives.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace aloni::tools {

model::Machine job_machine(const std::optional<model::Machine>& given, const comm::Communicator& comm,
                           const KernelPlace& place) {
  model::Machine machine = given ? *given : model::find_machine(place.on_host ? "x86_server" : "a100_cluster");
  const MachineDescription of_file = machine.planning;
  machine.planning = place.planning;
  if (given) {
    machine.planning.multiplications_per_slab = of_file.multiplications_per_slab;
    if (place.planning.direct_bytes != unlimited_bytes) machine.planning.direct_bytes = of_file.direct_bytes;
    if (place.planning.consolidate_below > 0) machine.planning.consolidate_below = of_file.consolidate_below;
  }
  std::size_t most = 1;
  for (const std::vector<int>& ranks : comm.ranks_by_node()) most = std::max(most, ranks.size());
  machine.ranks_per_node = static_cast<int>(most);
  // Consecutive ranks that fill the nodes need no list, and thousands of them are priced faster without.
  if (const auto& nodes = machine.planning.nodes;
      nodes == machine_of_nodes(static_cast<int>(nodes.size()), machine.ranks_per_node).nodes)
    machine.planning.nodes.clear();
  machine.threads_per_rank = place.threads;
  machine.most_nodes = 0;
  constexpr double for_buffers = 0.92;  // libraries, context of a device, host batches and checkpoints take the rest
  machine.memory_bytes = for_buffers * place.memory_bytes;
  machine.planning.work_per_copied_byte = work_per_copied_byte(machine);
  return machine;
}

nn::StepOptions step_options_of(const nn::TrainOptions& options, nn::ElementType activations) {
  nn::StepOptions step{.activations = activations, .backend = options.backend, .tf32 = options.tf32};
  step.optimiser = nn::kind_of(options.optimiser);
  step.update_options = options.update;
  step.accumulates = options.accumulate > 1;
  return step;
}

model::SimulationOptions simulation_of(const nn::TrainOptions& options, nn::ElementType activations) {
  return {.step = step_options_of(options, activations), .micro_batches = static_cast<int>(options.accumulate)};
}

nn::LargestMemory memory_of_training(const nn::NetworkDescription& network, const nn::NetworkPlan& layers,
                                     const MachineDescription& planning, const nn::TrainOptions& options,
                                     nn::ElementType activations) {
  nn::StepOptions step = step_options_of(options, activations);
  memory_savings_for(network, layers, planning, step, options.memory).apply(step);
  return largest_memory(network, layers, planning, nn::StepKind::training, step);
}

Index memory_of_kfac(const nn::NetworkDescription& network, const std::vector<nn::LayerSplit>& splits,
                     const nn::NetworkPlan& layers, const MachineDescription& planning, const nn::TrainOptions& options,
                     nn::ElementType activations) {
  if (!options.kfac) return 0;
  const nn::KfacPlan kfac = plan_kfac(network, splits, layers.input.ranks());
  const nn::StepOptions step = step_options_of(options, activations);
  const nn::Representatives few = nn::find_representatives(network, layers, planning);
  Index most = 0;
  for (std::size_t k = 0; k < few.ranks.size(); ++k) {
    const nn::StepPlan plan = nn::plan_step(network, layers, few.ranks[k], nn::StepKind::training, planning, step);
    most = std::max(most, largest_cost_of_kfac(plan, few.members[k], kfac, planning).memory);
  }
  return most;
}

}  // namespace aloni::tools
