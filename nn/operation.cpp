#include <aloni/nn/operation.hpp>

#include <aloni/nn/detail/output_extents.hpp>

#include <array>
#include <cstdio>
#include <variant>

namespace aloni::nn {

using views::Dim;
using views::Extents;

namespace {

class Text {
 public:
  Text& add(const char* name, Index value) { return append(name, std::to_string(value)); }
  Text& add(const char* name, const std::array<Index, 3>& v) {
    return append(name, std::to_string(v[0]) + "x" + std::to_string(v[1]) + "x" + std::to_string(v[2]));
  }
  Text& add(const char* name, double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.17g", value);
    return append(name, digits);
  }
  Text& add(const Window& w) {
    const auto& [kernel, stride, dilation, pad_low, pad_high] = w;
    return add("kernel", kernel)
        .add("stride", stride)
        .add("dilation", dilation)
        .add("pad", pad_low)
        .add("to", pad_high);
  }
  operator std::string() const { return text_; }

 private:
  Text& append(const char* name, const std::string& value) {
    text_ += std::string(" ") + name + " " + value;
    return *this;
  }
  std::string text_;
};

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

const char* name_of(PoolingKind kind) { return kind == PoolingKind::max ? "max" : "average"; }

// One function for each operation. It binds all members: a new member is an error until the text contains it.

OperationProperties describe(const Convolution& op) {
  const auto& [filters, window, bias, groups] = op;
  return {.kind = "convolution",
          .text = Text().add("filters", filters).add(window).add("bias", Index{bias}).add("groups", groups),
          .output_extents = extents_of(op),
          .parameters = weight_and_bias(op),
          .stencil = detail::stencil_of(window),
          .convolution = ConvolutionShape{false, filters, groups},
          .backward_reads_input = true,
          .writes_dense = true,
          .output_may_be_overwritten = true};
}

OperationProperties describe(const TransposedConvolution& op) {
  const auto& [filters, window, output_padding, bias, groups] = op;
  return {.kind = "transposed_convolution",
          .text = Text()
                      .add("filters", filters)
                      .add(window)
                      .add("output_padding", output_padding)
                      .add("bias", Index{bias})
                      .add("groups", groups),
          .output_extents = extents_of(op),
          .parameters = weight_and_bias(op),
          .stencil = detail::stencil_of(window),
          .convolution = ConvolutionShape{true, filters, groups},
          .backward_reads_input = true,
          .writes_dense = true,
          .output_may_be_overwritten = true};
}

// Maxima remember their positions.
OperationProperties describe(const Pooling& op) {
  const auto& [pooling, window, count_include_pad] = op;
  return {.kind = "pooling",
          .text = Text().add(name_of(pooling), Index{1}).add(window).add("count_include_pad", Index{count_include_pad}),
          .output_extents = extents_of(op),
          .stencil = detail::stencil_of(window),
          .scatters_gradient = true};
}

OperationProperties describe(const AdaptivePooling& op) {
  const auto& [pooling, output] = op;
  return {.kind = "adaptive_pooling",
          .text = Text().add(name_of(pooling), Index{1}).add("output", output),
          .output_extents = extents_of(op),
          .range_rule = halo::RangeRule::adaptive,
          .scatters_gradient = true};
}

OperationProperties describe(const Upsampling& op) {
  const auto& [mode, scale, output] = op;
  const bool nearest = mode == UpsamplingMode::nearest;
  return {.kind = "upsampling",
          .text = Text().add(nearest ? "nearest" : "linear", Index{1}).add("scale", scale).add("output", output),
          .output_extents = extents_of(op),
          .range_rule = nearest ? halo::RangeRule::nearest : halo::RangeRule::linear,
          .scatters_gradient = true};
}

OperationProperties describe(const BatchNorm& op) {
  const auto& [scope, momentum, epsilon, ranks] = op;
  return {.kind = "batch_norm",
          .text = Text()
                      .add("scope", static_cast<Index>(scope))
                      .add("momentum", momentum)
                      .add("epsilon", epsilon)
                      .add("ranks", Index{ranks}),
          .output_extents = extents_of(op),
          .parameters = scale_and_shift,
          .has_statistics = true,
          .has_running_statistics = true,
          .backward_reads_input = true,
          .output_may_be_overwritten = true};
}

OperationProperties describe(const GroupNorm& op) {
  const auto& [groups, epsilon, affine] = op;
  OperationProperties p{.kind = "group_norm",
                        .text = Text().add("groups", groups).add("epsilon", epsilon).add("affine", Index{affine}),
                        .output_extents = extents_of(op),
                        .has_statistics = true,
                        .backward_reads_input = true,
                        .output_may_be_overwritten = true};
  if (affine) p.parameters = scale_and_shift;
  return p;
}

OperationProperties describe(const LayerNorm& op) {
  const auto& [epsilon, affine] = op;
  OperationProperties p{.kind = "layer_norm",
                        .text = Text().add("epsilon", epsilon).add("affine", Index{affine}),
                        .output_extents = extents_of(op),
                        .has_statistics = true,
                        .backward_reads_input = true,
                        .output_may_be_overwritten = true};
  if (affine) p.parameters = scale_and_shift;
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
  const auto& [slope] = op;
  return {.kind = "leaky_relu",
          .text = Text().add("slope", slope),
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
  const auto& [rate] = op;
  return {.kind = "dropout",
          .text = Text().add("rate", rate),
          .output_extents = extents_of(op),
          .is_identity_in_inference = true,
          .output_may_be_overwritten = true,
          .computes_in_place = true};
}

OperationProperties describe(const Flatten& op) {
  return {.kind = "flatten", .output_extents = extents_of(op), .splits_samples_only = true};
}

OperationProperties describe(const Dense& op) {
  const auto& [features, bias] = op;
  return {.kind = "dense",
          .text = Text().add("features", features).add("bias", Index{bias}),
          .output_extents = extents_of(op),
          .parameters =
              [op](const Extents& input) {
                const Index channels = input[Dim::channel];
                std::vector<ParameterShape> tensors{{"weight", {{op.features, 1, 1, 1, channels}}, channels}};
                if (op.bias) tensors.push_back({"bias", vector_of(op.features), channels});
                return tensors;
              },
          .convolution_if_split = ConvolutionShape{false, features, 1},
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
