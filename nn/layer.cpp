#include <aloni/nn/layer.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/operation.hpp>
#include <aloni/nn/operation_members.hpp>

#include <array>
#include <cstddef>
#include <cstdio>
#include <type_traits>
#include <variant>

namespace aloni::nn {

namespace {

/// All members, each with a leading space and its name.
template <class Op>
std::string members_text(const Op& op) {
  std::string text;
  visit_members(op, [&]<class T>(const char* name, const T& value) {
    text += std::string(" ") + name + " ";
    if constexpr (std::is_same_v<T, std::array<Index, 3>>) {
      text += std::to_string(value[0]) + "x" + std::to_string(value[1]) + "x" + std::to_string(value[2]);
    } else if constexpr (std::is_enum_v<T>) {
      text += names_of(value)[static_cast<std::size_t>(value)];
    } else if constexpr (std::is_same_v<T, double>) {
      char digits[32];
      std::snprintf(digits, sizeof digits, "%.17g", value);
      text += digits;
    } else {
      text += std::to_string(value);
    }
  });
  return text;
}

}  // namespace

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
  std::string text = layer.name + ": " + kind(layer.operation);
  text += std::visit([](const auto& op) { return members_text(op); }, layer.operation) + " of";
  for (const std::string& input : layer.inputs) text += " " + input;
  return text;
}

bool is_convolution(const Operation& op) { return properties_of(op).convolution.has_value(); }

}  // namespace aloni::nn
