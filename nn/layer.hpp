#pragma once
// Layers as plain data: the computation of a layer, without its place and its kernels. A network is a graph of layers
// (nn/network_description.hpp).
// A strategy splits each layer over ranks (nn/strategy.hpp). Network runs them.
#include <aloni/core/index.hpp>

#include <array>
#include <string>
#include <variant>
#include <vector>

namespace aloni::nn {

/// Sliding window of convolution and pooling, in the order depth, height, width. Absent spatial dimensions keep the
/// defaults.
/// Output extent: floor((input + pad_low + pad_high - ((kernel - 1) * dilation + 1)) / stride) + 1.
struct Window {
  std::array<Index, 3> kernel{1, 1, 1};
  std::array<Index, 3> stride{1, 1, 1};
  std::array<Index, 3> dilation{1, 1, 1};
  std::array<Index, 3> pad_low{0, 0, 0};
  std::array<Index, 3> pad_high{0, 0, 0};
  friend bool operator==(const Window&, const Window&) = default;
};

/// `extent` in the last `spatial_rank` dimensions, 1 in the others. For output extents and scales of the layers
/// below.
std::array<Index, 3> square_extents(int spatial_rank, Index extent);

/// Equal kernel, stride and padding (both sides) in each of the last `spatial_rank` dimensions.
Window square_window(int spatial_rank, Index kernel, Index stride = 1, Index padding = 0, Index dilation = 1);

/// y[n,o,f] = b[f] + sum over k,c of w[f,k,c] x[n, o*stride + k*dilation - pad_low, c]; x is zero outside.
/// Groups must divide channels and filters. Filter f reads only the channels of its own group, and c counts from the
/// first of these.
/// With as many groups as channels this is a depthwise convolution.
struct Convolution {
  Index filters = 1;
  Window window;
  bool bias = true;
  Index groups = 1;
};

/// The transpose of a convolution that maps y's extents to x's:
///   y[n, o*stride + k*dilation - pad_low, f] = b[f] + sum of w[c,k,f] x[n,o,c] over all o, k, c that map to this index
/// Output extent: (input - 1) * stride - pad_low - pad_high + (kernel - 1) * dilation + 1 + output_padding.
/// Groups as for Convolution: channel c contributes to the filters of its own group, and f counts from the first of
/// these.
struct TransposedConvolution {
  Index filters = 1;
  Window window;
  std::array<Index, 3> output_padding{0, 0, 0};  ///< less than the larger of stride and dilation
  bool bias = true;
  Index groups = 1;
};

enum class PoolingKind { max, average };

struct Pooling {
  PoolingKind kind = PoolingKind::max;
  Window window;
  /// Average only. true: divide by the size of the window, also at the edge; false: divide by the number of elements
  /// inside the tensor.
  bool count_include_pad = true;
};

/// Output o of O along a dimension with I inputs pools the inputs floor(o I / O) to ceil((o + 1) I / O) - 1.
/// The output has these extents for any input extents (adaptive pooling of PyTorch).
/// The rank that owns an output reads its whole window. For one average over everything GlobalAveragePooling moves
/// less data.
struct AdaptivePooling {
  PoolingKind kind = PoolingKind::average;
  std::array<Index, 3> output{1, 1, 1};  ///< depth, height, width; 1 for absent dimensions
};

/// How output o of O along a dimension with I inputs is computed.
/// nearest: the input floor(o I / O).
/// linear: the two inputs around (o + 1/2) I / O - 1/2, weighted by distance; outside the tensor the first or the
/// last input.
/// In two and three dimensions the weights are products (bilinear, trilinear).
enum class UpsamplingMode { nearest, linear };

/// The interpolate of PyTorch with align_corners = false. The output may be smaller than the input; nothing is
/// smoothed then.
struct Upsampling {
  UpsamplingMode mode = UpsamplingMode::nearest;
  std::array<Index, 3> scale{1, 1, 1};   ///< output extents divided by input extents
  std::array<Index, 3> output{0, 0, 0};  ///< output extents; where not 0 they replace scale, which must be 1
};

/// The part of the mini-batch over which the mean and variance of a channel are taken.
/// local: the box of this rank. spatial: the boxes of the ranks that share its samples. all: everything.
/// neighbours: the boxes of BatchNorm::ranks ranks, for example of a node. They are consecutive in the order of the
/// ranks that own the channel, samples outermost. The last group may be smaller.
enum class StatisticsScope { local, spatial, all, neighbours };

/// y = gamma (x - mean) / sqrt(variance + epsilon) + beta per channel. Evaluation uses the running statistics:
/// running = (1 - momentum) running + momentum batch (with the unbiased variance).
struct BatchNorm {
  StatisticsScope scope = StatisticsScope::all;
  double momentum = 0.1;
  double epsilon = 1e-5;
  int ranks = 1;  ///< size of a group with StatisticsScope::neighbours
};

/// Like BatchNorm, but mean and variance are taken over one sample: its pixels and the channels of one group.
/// A group has channels / groups consecutive channels. Samples are independent, and evaluation equals training.
/// One group is layer normalisation of whole samples. As many groups as channels is instance normalisation.
struct GroupNorm {
  Index groups = 1;  ///< must divide the channels
  double epsilon = 1e-5;
  bool affine = true;  ///< whether gamma and beta are learned, per channel; otherwise they are 1 and 0
};

/// Like GroupNorm, but over the channels of each pixel alone, as in transformers.
struct LayerNorm {
  double epsilon = 1e-5;
  bool affine = true;
};

// Pointwise layers: y = f(x) for each element. Nothing is learned.

/// max(x, 0); a NaN stays a NaN.
struct Relu {};

/// x where x > 0, and slope * x elsewhere.
struct LeakyRelu {
  double slope = 0.01;  ///< at least 0
};

/// 1 / (1 + exp(-x))
struct Sigmoid {};

struct Tanh {};

/// x * sigmoid(x), also called swish.
struct Silu {};

/// x * P(X ≤ x) for a standard normal X: the exact form, x/2 * (1 + erf(x / sqrt(2))), not its approximation by tanh.
struct Gelu {};

/// In training an element becomes 0 with probability `rate`, and x / (1 - rate) otherwise. In inference y = x.
/// The choice depends on the seed, the layer, the number of the step and the global index of the element alone
/// (NetworkOptions::dropout_seed). It has the same bits for every split. The backward pass makes it again.
struct Dropout {
  double rate = 0.5;  ///< in [0, 1)
};

/// N,D,H,W,C to N,1,1,1,(D*H*W*C), elements in this order (channel fastest).
struct Flatten {};

/// y = x W^T + b on N,1,1,1,C tensors; W has shape features x C.
struct Dense {
  Index features = 1;
  bool bias = true;
};

/// Mean over depth, height and width: N,1,1,1,C.
struct GlobalAveragePooling {};

/// Element-wise sum of two or more inputs of equal extents, in the given order (residual connections).
struct Add {};

/// The channels of two or more inputs, one after the other in the given order (DenseNet, skip connections of a U-Net).
/// The inputs have equal samples and spatial extents.
struct Concatenate {};

using Operation = std::variant<Convolution, TransposedConvolution, Pooling, BatchNorm, GroupNorm, LayerNorm, Relu,
                               Flatten, Dense, GlobalAveragePooling, Add, Concatenate, AdaptivePooling, Upsampling,
                               LeakyRelu, Sigmoid, Tanh, Silu, Gelu, Dropout>;

struct LayerDescription {
  std::string name;  ///< unique, [A-Za-z0-9_.-]+, not "input"
  Operation operation;
  std::vector<std::string> inputs;  ///< earlier layers, or "input"; one, but two or more for Add and Concatenate
};

/// "convolution", "transposed_convolution", "pooling", "batch_norm", "group_norm", "layer_norm", "relu", "flatten",
/// "dense", "global_average_pooling", "add", "concatenate", "adaptive_pooling", "upsampling", "leaky_relu", "sigmoid",
/// "tanh", "silu", "gelu", "dropout".
const char* kind(const Operation& op);
/// One line with the name, the kind, all parameters and the inputs. Two layers are equal if their lines are.
std::string to_string(const LayerDescription& layer);
/// Whether it is a convolution, transposed ones included.
bool is_convolution(const Operation& op);

}  // namespace aloni::nn
