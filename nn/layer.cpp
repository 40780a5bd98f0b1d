#include <aloni/nn/layer.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/operation.hpp>

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

const char* kind(const Operation& op) { return properties_of(op).kind; }

std::string to_string(const LayerDescription& layer) {
  const OperationProperties properties = properties_of(layer.operation);
  std::string text = layer.name + ": " + properties.kind + properties.text + " of";
  for (const std::string& input : layer.inputs) text += " " + input;
  return text;
}

bool is_convolution(const Operation& op) { return properties_of(op).convolution.has_value(); }

}  // namespace aloni::nn
