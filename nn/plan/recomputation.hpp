#pragma once
// Blocks of layers whose activations a training step drops after the forward pass. It computes them again just before
// the backward pass of the block. This saves memory for arithmetic; results have the same bits.
//
//   StepOptions options;
//   options.recompute = recomputed_blocks(net, "block1.*,block2.*");
//   memory_of(plan_step(net, layers, rank, StepKind::training, machine, options), machine).peak;
//
// Outputs of a block that other layers read are kept. So is all that a block reads from other layers. Means over pixels
// are kept too: their sums over ranks would run twice. Normalisations use the sums of the forward pass again, so
// running statistics change once per step. Source: Chen, Xu, Zhang and Guestrin, Training deep nets with sublinear
// memory cost, 2016.
#include <aloni/nn/network_description.hpp>

#include <string>
#include <vector>

namespace aloni::nn {

/// Consecutive layers, by their positions in NetworkDescription::layers.
struct RecomputedBlock {
  int first = 0, last = 0;  ///< inclusive

  friend bool operator==(const RecomputedBlock&, const RecomputedBlock&) = default;
};

/// Ascending; no layer is in two blocks.
using Recomputation = std::vector<RecomputedBlock>;

/// The blocks that patterns of layer names select (nn/layer_pattern.hpp), separated by commas. Consecutive layers that
/// one pattern matches are one block. A layer that several patterns match belongs to the first of them.
/// Throws InvalidArgument for an empty pattern and for a pattern that selects no layer.
Recomputation recomputed_blocks(const NetworkDescription& network, const std::string& patterns);

/// Throws InvalidArgument in the name of `operation` unless the blocks are those of a network with so many layers.
void check(const Recomputation& blocks, int layers, const char* operation);

/// "conv1 to relu2, conv5"; "none".
std::string to_string(const Recomputation& blocks, const NetworkDescription& network);

}  // namespace aloni::nn
