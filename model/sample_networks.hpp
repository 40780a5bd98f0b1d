#pragma once
// Random small networks whose kernels are measured to train learned models (learned_kernel.hpp). Together they have
// all kinds of kernels, in the ranges of sizes that convolutional networks have.
//
//   for (const KernelTask& task : kernel_tasks(sample_networks(200, 1), machine_of_samples(machine), {})) …
//
// A network has three or four convolutions, batch normalisation, ReLU, a sum or concatenations, pooling and two dense
// layers. Sizes are drawn on a logarithmic scale (paper performance-models, table 3, has a grid instead; equal costs
// then need many more problems). Some of the inputs are volumes. A quarter has few pixels and many channels, so that
// weights are most of the bytes. Some are large, and some have few channels. Half of the networks are split by height,
// width, channels or filters over two ranks, the others by samples. So these are measured too: interiors and borders of
// convolutions, calls that find filters in the order of kernels, and boxes with gaps between their rows or pixels.
// Every sixth network accumulates gradients over micro-batches: its copies are measured.
// Pure.
#include <aloni/model/machine.hpp>
#include <aloni/model/measure_kernels.hpp>

#include <cstdint>
#include <vector>

namespace aloni::model {

struct SampleLimits {
  double least_flops = 1e5, most_flops = 4e10;  ///< of the forward pass of the convolutions
  double most_bytes = 128e6;                    ///< of the largest activation of a rank, in float
  /// Networks without another split have their samples on two ranks, as in a job. Otherwise they have one rank. The
  /// kernels of a rank are the same.
  bool pairs = true;
};

/// Training steps on one rank or two, with the gradient of the input. The first ones do not depend on `count`.
/// @pre count ≥ 0
std::vector<PlannedNetwork> sample_networks(int count, std::uint64_t seed, const SampleLimits& limits = {});

/// The machine to plan them for: `machine` with two ranks per node if its nodes have pairs of them, otherwise one. So
/// the ranks of a job can run the samples (tools/kernels_in_steps.hpp).
Machine machine_of_samples(const Machine& machine);

}  // namespace aloni::model
