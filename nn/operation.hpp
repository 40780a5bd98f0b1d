#pragma once
// All properties of an operation in one value. Descriptions, plans and networks ask here, and nowhere else list
// operations.
//
//   const OperationProperties p = properties_of(Pooling{PoolingKind::max, square_window(2, 2, 2)});
//   p.kind;                                    // "pooling"
//   p.output_extents({layer, 2, {input}});     // throws InvalidArgument that names the layer
//   p.stencil;                                 // its ghosts follow from it
//
// To add a pointwise layer, y = f(x):
//   1. nn/layer.hpp: its parameters as a struct, in the variant Operation (with members, nn/operation_members.hpp names
//      them);
//   2. nn/operation.cpp: a function `describe` that returns its properties;
//   3. nn/local/pointwise_layers.cpp: f and its gradient.
// Any other layer needs, in place of 3, its nodes in nn/plan/detail/layer_planner.cpp; for a new kind of work also a
// kernel that nn/run/bind_layers.cpp binds.
#include <aloni/halo/range_map.hpp>
#include <aloni/halo/stencil.hpp>
#include <aloni/nn/layer.hpp>
#include <aloni/views/extents.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace aloni::nn {

/// A layer and the extents of its inputs, in their order. @pre at least one input
struct LayerInputs {
  const LayerDescription& layer;  ///< error messages name it
  int spatial_rank;               ///< of the network
  std::vector<views::Extents> extents;
};

/// One learned tensor of an operation.
struct ParameterShape {
  std::string name;  ///< "weight", "bias", "gamma" or "beta"
  views::Extents extents;
  Index fan_in = 1;  ///< inputs per output
};

/// The additional properties of a convolution.
struct ConvolutionShape {
  bool transposed = false;
  Index filters = 1, groups = 1;
};

/// Flops per element of a pointwise layer; a function counts as one (nn/plan/cost.hpp).
struct PointwiseCost {
  double forward = 1, backward = 1;
};

struct OperationProperties {
  const char* kind = "";
  int least_inputs = 1;
  int most_inputs = 1;  ///< -1: any number

  /// Output extents. Checks the operation and its inputs. Throws InvalidArgument naming the layer (equal on all ranks).
  std::function<views::Extents(const LayerInputs&)> output_extents;
  /// Learned tensors for an input with these extents, weight before bias, gamma before beta. Empty: none.
  /// @pre output_extents accepts the input
  std::function<std::vector<ParameterShape>(const views::Extents& input)> parameters = {};

  /// The windows, if they have a stride. For a transposed convolution: those of the mirrored convolution.
  std::optional<halo::Stencil> stencil = {};
  /// The windows, if they follow from the input and output extents.
  std::optional<halo::RangeRule> range_rule = {};
  std::optional<ConvolutionShape> convolution = {};
  /// Dense layers: the convolution over one pixel that the layer is where its channels or filters are split. Where they
  /// are not, it is one matrix product.
  std::optional<ConvolutionShape> convolution_if_split = {};

  /// y = f(x), element by element, with the kernels of nn/local/pointwise_layers.hpp. The backward pass reads either
  /// the input or the output.
  std::optional<PointwiseCost> pointwise = {};
  bool is_identity_in_inference = false;

  bool splits_samples_only = false;  ///< an input with pixels cannot be split in space or by channels
  bool reduces_space = false;        ///< all ranks that share samples have the same output
  bool passes_gradient_on = false;   ///< a sum: dL/dx of each input is dL/dy, without a kernel
  bool concatenates = false;         ///< the output is the inputs' channels side by side; moved without a kernel
  /// Computes statistics of a batch, a sample or a pixel, and only for the owned box: cannot recompute a halo.
  bool has_statistics = false;
  bool has_running_statistics = false;  ///< means and variances for evaluation, per channel

  bool backward_reads_input = false;   ///< the backward pass reads the values of the input
  bool backward_reads_output = false;  ///< the backward pass reads the values of the output
  /// The backward pass adds to every input that the owned outputs depend on, ghosts included. Otherwise it writes the
  /// gradients of owned inputs.
  bool scatters_gradient = false;

  /// The output has no gaps in memory: vendor kernels are slow on other memory, or refuse it.
  bool writes_dense = false;
  /// A reader may overwrite the output. @pre not backward_reads_output
  bool output_may_be_overwritten = false;
  /// The output may replace the input in memory, and dL/dx may replace dL/dy.
  bool computes_in_place = false;
};

OperationProperties properties_of(const Operation& op);

}  // namespace aloni::nn
