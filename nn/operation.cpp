#include <aloni/nn/operation.hpp>

#include <aloni/nn/detail/output_extents.hpp>

#include <variant>

namespace aloni::nn {

using views::Dim;
using views::Extents;

namespace {

Extents vector_of(Index n) { return {{1, 1, 1, 1, n}}; }

/// The output has the extents of the input.
Extents as_input(const LayerInputs& inputs) { return inputs.extents.front(); }

template <class Op>
auto extents_of(const Op& op) {
  return [op](const LayerInputs& inputs) { return detail::output_extents(inputs, op); };
}

template <class Op>
auto weight_and_bias(const Op& op) {
  return [op](const Extents& input) {
    const Index channels = input[Dim::channel];
    const auto& k = op.window.kernel;
    const Index fan_in = k[0] * k[1] * k[2] * (channels / op.groups);
    std::vector<ParameterShape> tensors{{"weight", detail::weight_extents(op, channels), fan_in}};
    if (op.bias) tensors.push_back({"bias", vector_of(op.filters), fan_in});
    return tensors;
  };
}

std::vector<ParameterShape> scale_and_shift(const Extents& input) {
  const Extents channels = vector_of(input[Dim::channel]);
  return {{"gamma", channels, 1}, {"beta", channels, 1}};
}

// One function for each operation.

OperationProperties describe(const Convolution& op) {
  return {.kind = "convolution",
          .output_extents = extents_of(op),
          .parameters = weight_and_bias(op),
          .stencil = detail::stencil_of(op.window),
          .convolution = ConvolutionShape{false, op.filters, op.groups},
          .backward_reads_input = true,
          .writes_dense = true,
          .output_may_be_overwritten = true};
}

OperationProperties describe(const TransposedConvolution& op) {
  return {.kind = "transposed_convolution",
          .output_extents = extents_of(op),
          .parameters = weight_and_bias(op),
          .stencil = detail::stencil_of(op.window),
          .convolution = ConvolutionShape{true, op.filters, op.groups},
          .backward_reads_input = true,
          .writes_dense = true,
          .output_may_be_overwritten = true};
}

// Maxima remember their positions.
OperationProperties describe(const Pooling& op) {
  return {.kind = "pooling",
          .output_extents = extents_of(op),
          .stencil = detail::stencil_of(op.window),
          .scatters_gradient = true};
}

OperationProperties describe(const AdaptivePooling& op) {
  return {.kind = "adaptive_pooling",
          .output_extents = extents_of(op),
          .range_rule = halo::RangeRule::adaptive,
          .scatters_gradient = true};
}

OperationProperties describe(const Upsampling& op) {
  const bool nearest = op.mode == UpsamplingMode::nearest;
  return {.kind = "upsampling",
          .output_extents = extents_of(op),
          .range_rule = nearest ? halo::RangeRule::nearest : halo::RangeRule::linear,
          .scatters_gradient = true};
}

OperationProperties describe(const BatchNorm& op) {
  return {.kind = "batch_norm",
          .output_extents = extents_of(op),
          .parameters = scale_and_shift,
          .has_statistics = true,
          .has_running_statistics = true,
          .backward_reads_input = true,
          .output_may_be_overwritten = true};
}

OperationProperties describe(const GroupNorm& op) {
  OperationProperties p{.kind = "group_norm",
                        .output_extents = extents_of(op),
                        .has_statistics = true,
                        .backward_reads_input = true,
                        .output_may_be_overwritten = true};
  if (op.affine) p.parameters = scale_and_shift;
  return p;
}

OperationProperties describe(const LayerNorm& op) {
  OperationProperties p{.kind = "layer_norm",
                        .output_extents = extents_of(op),
                        .has_statistics = true,
                        .backward_reads_input = true,
                        .output_may_be_overwritten = true};
  if (op.affine) p.parameters = scale_and_shift;
  return p;
}

OperationProperties describe(const Relu&) {
  return {.kind = "relu",
          .output_extents = as_input,
          .pointwise = PointwiseCost{1, 1},
          .backward_reads_output = true,
          .computes_in_place = true};
}

// With a slope of at least 0 the output has the sign of the input.
OperationProperties describe(const LeakyRelu& op) {
  return {.kind = "leaky_relu",
          .output_extents = extents_of(op),
          .pointwise = PointwiseCost{2, 2},
          .backward_reads_output = true,
          .computes_in_place = true};
}

OperationProperties describe(const Sigmoid&) {
  return {.kind = "sigmoid",
          .output_extents = as_input,
          .pointwise = PointwiseCost{4, 3},
          .backward_reads_output = true,
          .computes_in_place = true};
}

OperationProperties describe(const Tanh&) {
  return {.kind = "tanh",
          .output_extents = as_input,
          .pointwise = PointwiseCost{1, 3},
          .backward_reads_output = true,
          .computes_in_place = true};
}

OperationProperties describe(const Silu&) {
  return {.kind = "silu",
          .output_extents = as_input,
          .pointwise = PointwiseCost{4, 9},
          .backward_reads_input = true,
          .output_may_be_overwritten = true};
}

OperationProperties describe(const Gelu&) {
  return {.kind = "gelu",
          .output_extents = as_input,
          .pointwise = PointwiseCost{4, 10},
          .backward_reads_input = true,
          .output_may_be_overwritten = true};
}

OperationProperties describe(const Dropout& op) {
  return {.kind = "dropout",
          .output_extents = extents_of(op),
          .is_identity_in_inference = true,
          .output_may_be_overwritten = true,
          .computes_in_place = true};
}

OperationProperties describe(const Flatten& op) {
  return {.kind = "flatten", .output_extents = extents_of(op), .splits_samples_only = true};
}

OperationProperties describe(const Dense& op) {
  return {.kind = "dense",
          .output_extents = extents_of(op),
          .parameters =
              [op](const Extents& input) {
                const Index channels = input[Dim::channel];
                std::vector<ParameterShape> tensors{{"weight", {{op.features, 1, 1, 1, channels}}, channels}};
                if (op.bias) tensors.push_back({"bias", vector_of(op.features), channels});
                return tensors;
              },
          .convolution_if_split = ConvolutionShape{false, op.features, 1},
          .backward_reads_input = true,
          .writes_dense = true,
          .output_may_be_overwritten = true};
}

OperationProperties describe(const GlobalAveragePooling& op) {
  return {.kind = "global_average_pooling", .output_extents = extents_of(op), .reduces_space = true};
}

OperationProperties describe(const Add& op) {
  return {.kind = "add",
          .least_inputs = 2,
          .most_inputs = -1,
          .output_extents = extents_of(op),
          .passes_gradient_on = true,
          .output_may_be_overwritten = true};
}

OperationProperties describe(const Concatenate& op) {
  return {.kind = "concatenate",
          .least_inputs = 2,
          .most_inputs = -1,
          .output_extents = extents_of(op),
          .concatenates = true,
          .output_may_be_overwritten = true};
}

}  // namespace

OperationProperties properties_of(const Operation& op) {
  return std::visit([](const auto& o) { return describe(o); }, op);
}

}  // namespace aloni::nn
