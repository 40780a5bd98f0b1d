#pragma once
// The memory of Parameters as that of the buffers of step plans.
#include <aloni/nn/optimiser.hpp>
#include <aloni/nn/parameters.hpp>
#include <aloni/nn/run/plan_memory.hpp>

#include <cstddef>
#include <string>

namespace aloni::nn::detail {

/// Values, gradients, their sums over micro-batches, the optimiser's state and the norms of an update, by their names
/// in plans (nn/plan/plan_step.hpp).
/// @pre `parameters` outlive all uses of the memory
template <class T, class Exec>
void use_parameters(const Parameters<T, Exec>& parameters, PlanMemory<Exec>& memory) {
  for (int i = 0; i < static_cast<int>(parameters.descriptions().size()); ++i) {
    const std::string& tensor = parameters.descriptions()[static_cast<std::size_t>(i)].name;
    memory.use(tensor, parameters.value(i).data());
    if (!parameters.trains()) continue;
    memory.use(tensor + ".gradient", parameters.gradient(i).data());
    if (parameters.gradient_sum()) memory.use(tensor + ".gradient_sum", parameters.summed_gradient(i).data());
    const auto& states = properties_of(parameters.optimiser()).states;
    for (int k = 0; k < static_cast<int>(states.size()); ++k)
      memory.use(tensor + '.' + std::string(states[static_cast<std::size_t>(k)]), parameters.state(i, k).data());
  }
  if (parameters.trains())
    for (const auto& segment : parameters.segments())
      memory.use_gradients(segment.gradients.data(), segment.gradient_memory);
  if (const auto* norms = parameters.norms()) {
    memory.use("update.norm_chunks", norms->chunks().data());
    memory.use("update.norm_sums", norms->whole_sums().data());
    memory.use("update.norm_block_sums", norms->block_sums().data());
    memory.use("update.factors", norms->factors().data());
  }
}

}  // namespace aloni::nn::detail
