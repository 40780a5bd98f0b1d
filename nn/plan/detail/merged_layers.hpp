#pragma once
// Decides which layers of a step share memory or a kernel:
// * outputs in place of inputs, and concatenations that extend each other;
// * ReLUs and sums that a batch normalisation computes, and ReLUs that a max pooling computes;
// * sums of channels that another normalisation has.
// All decisions follow from the layers and the strategy, so they are equal on all ranks.
//
//   const MergedLayers merged(PlannedLayers(network, layers), kind, options);
//   if (merged.computes_in_place(i)) …;             // the output of layer i is its input, in the same memory
//   if (const int relu = merged.rectifier_of(i); relu >= 0) …;
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/operation.hpp>
#include <aloni/nn/plan/plan_step.hpp>

#include <cstddef>
#include <vector>

namespace aloni::nn::detail {

/// A network beside its plan, by number of a layer. The arguments outlive this object.
class PlannedLayers {
 public:
  PlannedLayers(const NetworkDescription& network, const NetworkPlan& layers);

  int size() const { return static_cast<int>(properties_.size()); }
  const LayerPlan& layer(int i) const { return layers_.layers[static_cast<std::size_t>(i)]; }
  const LayerDescription& description(int i) const { return network_.layers[static_cast<std::size_t>(i)]; }
  const Operation& operation(int i) const { return description(i).operation; }
  const OperationProperties& properties(int i) const { return properties_[static_cast<std::size_t>(i)]; }
  bool concatenates(int i) const { return properties(i).concatenates; }
  bool only_reader(int source) const { return layers_.readers_of(source).size() == 1; }
  bool same_distribution(const LayerInput& in) const { return layers_.output_of(in.source) == in.distribution; }

 protected:
  const NetworkDescription& network_;
  const NetworkPlan& layers_;

 private:
  std::vector<OperationProperties> properties_;
};

class MergedLayers : private PlannedLayers {
 public:
  MergedLayers(const PlannedLayers& layers, StepKind kind, const StepOptions& options)
      : PlannedLayers(layers),
        trains_(kind != StepKind::inference),
        fuses_batch_norm_(options.fuse_batch_norm),
        fuses_pooling_(options.fuse_pooling),
        fuses_inference_(options.fuse_inference) {}

  // --- memory ---

  /// Whether the layer's output is its first input, in the same memory.
  bool computes_in_place(int i) const;
  /// Whether the layer's output is its input, in the same memory. Training and inference have one output of the
  /// network: its buffer is not replaced.
  bool passes_input_on(int i) const;
  /// The layer whose output has the memory of the output of i: i, or the last concatenation that extends it.
  int owner_of_output(int i) const;

  // --- kernels ---

  /// Whether the layer is a ReLU that the batch normalisation before it computes too: y, and in the backward pass its
  /// gradient from the gradient of the ReLU's output. The two layers then have one y and one dy.
  bool is_rectifier(int i) const;
  /// The ReLU that the layer computes too; -1: none.
  int rectifier_of(int i) const;
  /// The sum (Add) that the layer, a batch normalisation, computes too; -1: none. Both then have one y. The other
  /// summand is there before the normalisation.
  int sum_of(int i) const;
  /// The batch normalisation that computes the sum i; -1: none.
  int normalisation_of_sum(int i) const;
  /// Whether the layer is a ReLU in place of a sum that a batch normalisation computes: it computes both. The gradient
  /// of this ReLU is a node of its own.
  bool rectifies_sum(int i) const;
  /// Whether the layer is a ReLU that the max pooling behind it computes too: y from the input of the ReLU, and in the
  /// backward pass the gradient of that input. The ReLU and the layer before it have one y and one dy.
  bool is_pooled(int i) const;
  /// Whether the layer is a convolution followed by an in-place ReLU.
  bool may_fuse_relu(int i) const;
  /// The batch normalisation whose sums over ranks are also sums of the first channels of i's input; -1: none. The
  /// input of i is then a concatenation. The other batch normalisation reads the first input of this concatenation.
  int normalisation_of_first_channels(int i) const;

 private:
  /// Whether the layer's output may lie in the buffer of the network's output.
  bool may_be_output(int i) const;
  /// The concatenation whose memory begins with the output of i, another concatenation; -1: none. It copies its other
  /// inputs behind that. Only layers read i that take a part of a buffer: normalisations, and this concatenation.
  int extended_by(int i) const;

  bool trains_, fuses_batch_norm_, fuses_pooling_, fuses_inference_;
};

}  // namespace aloni::nn::detail
