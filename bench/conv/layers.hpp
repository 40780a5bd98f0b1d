#pragma once
// The layers of bench_conv, one sample each: layers of ResNet-50, of a segmentation network for large meshes and
// simpler layers.
#include <aloni/nn/local/convolution_problem.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace aloni::bench {

struct Layer {
  std::string name;
  /// Problem of the whole layer. A transposed convolution is the data gradient of this problem: `problem.input` is the
  /// output of the layer, `problem.filters` are the layer's channels.
  nn::local::ConvolutionProblem problem;
  bool transposed = false;
};

/// A layer with an input of `size` x `size` pixels.
inline Layer square_layer(const std::string& name, Index channels, Index size, Index filters, Index kernel,
                          Index padding = 0, Index stride = 1, Index dilation = 1, Index groups = 1) {
  const Index output = (size + 2 * padding - (kernel - 1) * dilation - 1) / stride + 1;
  return {name,
          {.samples = 1,
           .channels = channels,
           .filters = filters,
           .groups = groups,
           .input = {1, size, size},
           .output = {1, output, output},
           .kernel = {1, kernel, kernel},
           .stride = {1, stride, stride},
           .dilation = {1, dilation, dilation},
           .offset = {0, -padding, -padding}}};
}

inline std::vector<Layer> layers() {
  Layer transposed = square_layer("transposed", 32, 256, 64, 4, 1, 2);  // 64 channels, 128² -> 32 filters, 256²
  transposed.transposed = true;
  return {
      square_layer("resnet_conv1", 3, 224, 64, 7, 3, 2),
      square_layer("res3b_branch2a", 512, 28, 128, 1),
      square_layer("mesh_conv1_1", 18, 1024, 128, 5, 2, 2),
      square_layer("mesh_conv6_1", 384, 64, 128, 3, 1, 2),
      square_layer("c64_256", 64, 256, 64, 3, 1),
      {"c32_3d",
       {.samples = 1,
        .channels = 32,
        .filters = 32,
        .input = {64, 64, 64},
        .output = {64, 64, 64},
        .kernel = {3, 3, 3},
        .offset = {-1, -1, -1}}},
      square_layer("depthwise", 128, 128, 128, 3, 1, 1, 1, 128),
      square_layer("dilated", 64, 128, 64, 3, 2, 1, 2),
      transposed,
  };
}

/// The pass of Layer::problem that computes `pass` of the layer.
constexpr nn::local::ConvolutionPass pass_of_problem(const Layer& layer, nn::local::ConvolutionPass pass) {
  using nn::local::ConvolutionPass;
  if (!layer.transposed || pass == ConvolutionPass::backward_filter) return pass;
  return pass == ConvolutionPass::forward ? ConvolutionPass::backward_data : ConvolutionPass::forward;
}

/// Part `part` of `parts` equal parts of a layer's work, without communication. `dimension` is 'h', 'w', 'c' or 'f'.
/// 'h' and 'w' split the result of the pass, or dy for backward-filter; the part has the ghosts that it reads. 'c' and
/// 'f' split the layer's channels or filters; with groups both split the groups.
inline nn::local::ConvolutionProblem shard_of(const Layer& layer, nn::local::ConvolutionPass pass, char dimension,
                                              Index parts, Index part) {
  nn::local::ConvolutionProblem p = layer.problem;
  auto length = [&](Index n) { return n * (part + 1) / parts - n * part / parts; };
  if (dimension == 'c' || dimension == 'f') {
    if (p.groups > 1) {
      const Index channels = p.channels_per_group(), filters = p.filters_per_group();
      p.groups = length(p.groups);
      p.channels = channels * p.groups;
      p.filters = filters * p.groups;
    } else {
      Index& split = (dimension == 'c') != layer.transposed ? p.channels : p.filters;
      split = length(split);
    }
    return p;
  }
  const int s = dimension == 'h' ? 1 : 2;
  const Index reach = (p.kernel[s] - 1) * p.dilation[s];
  if (pass_of_problem(layer, pass) == nn::local::ConvolutionPass::backward_data) {
    const Index lower = p.input[s] * part / parts, upper = p.input[s] * (part + 1) / parts;
    // Outputs o with o * stride + offset in [lower - reach, upper - 1]; the first one is rounded up.
    const Index least = lower - reach - p.offset[s];
    const Index first = least <= 0 ? 0 : (least + p.stride[s] - 1) / p.stride[s];
    const Index last = std::min(p.output[s] - 1, (upper - 1 - p.offset[s]) / p.stride[s]);
    p.input[s] = upper - lower;
    p.output[s] = last + 1 - first;
    p.offset[s] = nn::local::local_offset(first, lower, p.stride[s], -p.offset[s]);
  } else {
    const Index lower = p.output[s] * part / parts, upper = p.output[s] * (part + 1) / parts;
    const Index first = std::max<Index>(0, lower * p.stride[s] + p.offset[s]);
    const Index end = std::min(p.input[s], (upper - 1) * p.stride[s] + reach + p.offset[s] + 1);
    p.output[s] = upper - lower;
    p.input[s] = end - first;
    p.offset[s] = nn::local::local_offset(lower, first, p.stride[s], -p.offset[s]);
  }
  return p;
}

}  // namespace aloni::bench
