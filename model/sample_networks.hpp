#pragma once
// Random small networks whose kernels are measured to train learned models (learned_kernel.hpp). Together they have
// all kinds of kernels, in the ranges of sizes that convolutional networks have.
//
//   for (const SampleNetwork& sample : sample_networks(200, 1)) {
//     const nn::StepPlan plan = training_plan(sample, {});
//     for (const nn::PlanNode& node : plan.nodes) … kernel_of(plan, node) …
//   }
//
// A network is a convolution, batch normalisation, ReLU, a sum of two tensors, pooling, a second ReLU and two dense
// layers. Sizes are drawn on a logarithmic scale (paper performance-models, table 3, has a grid instead; equal costs
// then need many more problems). Pure.
#include <aloni/core/machine.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/plan/step_plan.hpp>

#include <cstdint>
#include <vector>

namespace aloni::model {

struct SampleLimits {
  double least_flops = 1e5, most_flops = 1e9;  ///< of the forward pass of the convolution
  double most_bytes = 128e6;                   ///< of the largest activation, in float
};

struct SampleNetwork {
  nn::NetworkDescription network;
  Index samples = 1;
};

/// The first ones do not depend on `count`. @pre count ≥ 0
std::vector<SampleNetwork> sample_networks(int count, std::uint64_t seed, const SampleLimits& limits = {});

/// A training step of one rank, with the gradient of the input.
nn::StepPlan training_plan(const SampleNetwork& sample, const MachineDescription& machine,
                           nn::ElementType activations = nn::ElementType::float32);

}  // namespace aloni::model
