#pragma once
// Activations that lie in host memory between both passes of a training step. They leave the device after their last
// use in the forward pass, and return before their first use in the backward pass. The copies run beside kernels, on a
// stream of their own (nn/stream_plan.hpp). This saves memory of the device for traffic to the host; results have the
// same bits.
//
//   StepOptions options;
//   options.offload = offloaded_layers(net, "block1.*,block2.*");
//   const PlanMemoryUse use = memory_of(plan_step(net, layers, rank, StepKind::training, machine, options), machine);
//   use.peak;                                    // on the device
//   use.host;                                    // in host memory
//
// The buffers of a layer that move: its output, its copies of inputs with ghosts, and the positions of maxima. Small
// buffers, for example means and deviations, stay. So do buffers that the backward pass does not read, or computes
// again (nn/plan/recomputation.hpp). A buffer that several layers share belongs to the layer that writes it first.
//
// A buffer begins to return so early that the kernels before its use take as long as the copy. Its memory on the device
// is taken until the kernels behind its last use have taken as long as the copy to the host. Buffers of at most two
// nodes are on their way at once, in each direction: copies that take longer than kernels make kernels wait, and need
// no more memory. Source: Rhu, Gimelshein, Clemons, Zulfiqar and Keckler, vDNN: Virtualized deep neural networks, 2016,
// section III.
#include <aloni/core/machine.hpp>
#include <aloni/nn/network_description.hpp>

#include <string>
#include <vector>

namespace aloni::nn {

/// Positions of layers in NetworkDescription::layers, ascending.
using Offloading = std::vector<int>;

/// The layers that patterns of names select (nn/layer_pattern.hpp), separated by commas.
/// Throws InvalidArgument for an empty pattern and for a pattern that selects no layer.
Offloading offloaded_layers(const NetworkDescription& network, const std::string& patterns);

/// Throws InvalidArgument in the name of `operation` unless the positions ascend and are those of so many layers.
void check_offloading(const Offloading& layers, int number, const char* operation);

/// Throws InvalidArgument in the name of `operation` unless all numbers are finite and above 0.
void check_work_per_copied_byte(const WorkPerCopiedByte& work, const char* operation, const char* argument);

/// "conv1 to relu2, conv5"; "none".
std::string offloading_text(const Offloading& layers, const NetworkDescription& network);

}  // namespace aloni::nn
