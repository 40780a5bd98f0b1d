#include <aloni/nn/layer.hpp>

#include <aloni/core/error.hpp>

namespace aloni::nn {

Window square_window(int spatial_rank, Index kernel, Index stride, Index padding, Index dilation) {
  if (spatial_rank < 1 || spatial_rank > 3) {
    throw InvalidArgument("aloni::nn::square_window", "spatial_rank", std::to_string(spatial_rank), "1, 2 or 3");
  }
  Window w;
  for (int d = 3 - spatial_rank; d < 3; ++d) {
    w.kernel[d] = kernel;
    w.stride[d] = stride;
    w.dilation[d] = dilation;
    w.pad_low[d] = w.pad_high[d] = padding;
  }
  return w;
}

std::array<Index, 3> square_extents(int spatial_rank, Index extent) {
  if (spatial_rank < 1 || spatial_rank > 3) {
    throw InvalidArgument("aloni::nn::square_extents", "spatial_rank", std::to_string(spatial_rank), "1, 2 or 3");
  }
  std::array<Index, 3> e{1, 1, 1};
  for (int d = 3 - spatial_rank; d < 3; ++d) e[d] = extent;
  return e;
}

namespace {

const char* name_of(const Convolution&) { return "convolution"; }
const char* name_of(const TransposedConvolution&) { return "transposed_convolution"; }
const char* name_of(const Pooling&) { return "pooling"; }
const char* name_of(const BatchNorm&) { return "batch_norm"; }
const char* name_of(const GroupNorm&) { return "group_norm"; }
const char* name_of(const LayerNorm&) { return "layer_norm"; }
const char* name_of(const Relu&) { return "relu"; }
const char* name_of(const Flatten&) { return "flatten"; }
const char* name_of(const Dense&) { return "dense"; }
const char* name_of(const GlobalAveragePooling&) { return "global_average_pooling"; }
const char* name_of(const Add&) { return "add"; }
const char* name_of(const AdaptivePooling&) { return "adaptive_pooling"; }
const char* name_of(const Upsampling&) { return "upsampling"; }

}  // namespace

const char* kind(const Operation& op) {
  return std::visit([](const auto& o) { return name_of(o); }, op);
}

bool is_convolution(const Operation& op) {
  return std::holds_alternative<Convolution>(op) || std::holds_alternative<TransposedConvolution>(op);
}

}  // namespace aloni::nn
