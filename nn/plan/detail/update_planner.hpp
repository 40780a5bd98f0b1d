#pragma once
// Plans the end of a training step: norms of gradients, their sum over ranks, and the update of each segment.
#include <aloni/nn/plan/detail/builder.hpp>
#include <aloni/nn/plan/parameter_layout.hpp>

#include <vector>

namespace aloni::nn::detail {

/// The buffers of all learned tensors, in the order of ParameterLayout::descriptions.
struct UpdateBuffers {
  std::vector<BufferId> values, gradients;
  std::vector<std::vector<BufferId>> states;  ///< in the order of the optimiser's properties
};

/// Adds the nodes. The update of a segment waits for its own gradients only, except with norms: these need all of them.
/// @pre the plan has an optimiser; `parameters` are those of the rank of the plan
void add_update(PlanBuilder& builder, const ParameterLayout& parameters, const UpdateBuffers& buffers);

}  // namespace aloni::nn::detail
