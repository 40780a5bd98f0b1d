#pragma once
// Layers as plain data: what a layer computes, without where or how. A network is a graph of these
// (nn/network_description.hpp); a strategy says how each is spread over ranks (nn/strategy.hpp); Network runs them.
#include <aloni/core/index.hpp>

#include <array>
#include <string>
#include <variant>
#include <vector>

namespace aloni::nn {

/// Sliding window of convolution and pooling, in the order depth, height, width; absent spatial dimensions keep the defaults.
/// Output extent: floor((input + pad_low + pad_high - ((kernel - 1) * dilation + 1)) / stride) + 1.
struct Window {
  std::array<Index, 3> kernel{1, 1, 1};
  std::array<Index, 3> stride{1, 1, 1};
  std::array<Index, 3> dilation{1, 1, 1};
  std::array<Index, 3> pad_low{0, 0, 0};
  std::array<Index, 3> pad_high{0, 0, 0};
  friend bool operator==(const Window&, const Window&) = default;
};

/// `extent` in the last `spatial_rank` dimensions, 1 in the others: output extents and scales of the layers below.
std::array<Index, 3> square_extents(int spatial_rank, Index extent);

/// The same kernel, stride and padding (both sides) in the last `spatial_rank` dimensions.
Window square_window(int spatial_rank, Index kernel, Index stride = 1, Index padding = 0, Index dilation = 1);

/// y[n,o,f] = b[f] + sum over k,c of w[f,k,c] x[n, o*stride + k*dilation - pad_low, c]; x is zero outside.
/// With groups, which must divide channels and filters, filter f reads only the channels of its own group, and c counts from the first
/// of these; as many groups as channels is a depthwise convolution.
struct Convolution {
  Index filters = 1;
  Window window;
  bool bias = true;
  Index groups = 1;
};

/// The transposed operator of a convolution that maps y's extents to x's: y[n, o*stride + k*dilation - pad_low, f] = b[f] + sum of w[c,k,f]
/// x[n,o,c] over all o, k, c that meet there. Output extent: (input - 1) * stride - pad_low - pad_high + (kernel - 1) * dilation + 1 + output_padding.
/// With groups as for Convolution: channel c reaches the filters of its own group, and f counts from the first of these.
struct TransposedConvolution {
  Index filters = 1;
  Window window;
  std::array<Index, 3> output_padding{0, 0, 0};  ///< below stride or dilation, whichever is larger
  bool bias = true;
  Index groups = 1;
};

enum class PoolingKind { max, average };

struct Pooling {
  PoolingKind kind = PoolingKind::max;
  Window window;
  /// Average only: divide by the whole window, also where it hangs over the edge, or by the elements inside the tensor.
  bool count_include_pad = true;
};

/// Output o of O along a dimension with I inputs pools the inputs floor(o I / O) to ceil((o + 1) I / O) - 1, so the output has these
/// extents whatever the input has (PyTorch's adaptive pooling). Whoever owns an output reads its whole window: for one average of
/// everything GlobalAveragePooling moves less.
struct AdaptivePooling {
  PoolingKind kind = PoolingKind::average;
  std::array<Index, 3> output{1, 1, 1};  ///< depth, height, width; 1 for absent dimensions
};

/// Output o of O along a dimension with I inputs takes: nearest, the input floor(o I / O); linear, its neighbours at
/// (o + 1/2) I / O - 1/2 by their distance, the first or the last input beyond them (bi- and trilinear are its products over the dimensions).
enum class UpsamplingMode { nearest, linear };

/// PyTorch's interpolate with align_corners = false. Output extents below those of the input are allowed too; nothing is smoothed.
struct Upsampling {
  UpsamplingMode mode = UpsamplingMode::nearest;
  std::array<Index, 3> scale{1, 1, 1};   ///< output over input extents
  std::array<Index, 3> output{0, 0, 0};  ///< output extents instead, where not 0 (and scale is 1)
};

/// Over which part of the mini-batch a channel's mean and variance are taken: the box of this rank; the boxes of the ranks
/// that share its samples; everything; the boxes of so many ranks as BatchNorm::ranks says, neighbours in the order of the ranks that hold the
/// channel (samples outermost): all ranks of a node, say. The last ones may be fewer.
enum class StatisticsScope { local, spatial, all, neighbours };

/// y = gamma (x - mean) / sqrt(variance + epsilon) + beta per channel. Evaluation uses running statistics:
/// running = (1 - momentum) running + momentum batch (with the unbiased variance).
struct BatchNorm {
  StatisticsScope scope = StatisticsScope::all;
  double momentum = 0.1;
  double epsilon = 1e-5;
  int ranks = 1;  ///< that share statistics with StatisticsScope::neighbours
};

/// Like BatchNorm, but the mean and variance are those of one sample: over its pixels and the channels of a group, which are
/// channels / groups neighbours. No other sample plays a part, and evaluation is the same as training. One group: layer
/// normalisation of whole samples; as many as channels: instance normalisation.
struct GroupNorm {
  Index groups = 1;  ///< divides the channels
  double epsilon = 1e-5;
  bool affine = true;  ///< gamma and beta, per channel, are learned; otherwise 1 and 0
};

/// The same over the channels of each pixel alone, as transformers do: no rank needs anything of another.
struct LayerNorm {
  double epsilon = 1e-5;
  bool affine = true;
};

struct Relu {};

/// N,D,H,W,C to N,1,1,1,(D*H*W*C), in this order of the elements (channel fastest).
struct Flatten {};

/// y = x W^T + b on N,1,1,1,C tensors; W has shape features x C.
struct Dense {
  Index features = 1;
  bool bias = true;
};

/// Mean over depth, height and width: N,1,1,1,C.
struct GlobalAveragePooling {};

/// Sum of two or more inputs of equal extents, element by element, in the order given (residual connections).
struct Add {};

using Operation = std::variant<Convolution, TransposedConvolution, Pooling, BatchNorm, GroupNorm, LayerNorm, Relu,
                               Flatten, Dense, GlobalAveragePooling, Add, AdaptivePooling, Upsampling>;

struct LayerDescription {
  std::string name;  ///< unique, [A-Za-z0-9_.-]+, not "input"
  Operation operation;
  std::vector<std::string> inputs;  ///< names of earlier layers, or "input" for the network's input; one, but for Add
};

/// "convolution", "transposed_convolution", "pooling", "batch_norm", "group_norm", "layer_norm", "relu", "flatten", "dense", "global_average_pooling", "add",
/// "adaptive_pooling", "upsampling".
const char* kind(const Operation& op);
/// Transposed ones too.
bool is_convolution(const Operation& op);

}  // namespace aloni::nn
