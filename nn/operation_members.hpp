#pragma once
// The members of each operation by name, for texts and files. Pure.
//
//   visit_members(Convolution{}, [](const char* name, const auto& member) { … });   // "filters", "kernel", …
//
// Each operation binds all of its members: a new member is an error of the compiler until it is visited.
#include <aloni/nn/layer.hpp>

#include <array>
#include <span>
#include <type_traits>

namespace aloni::nn {

/// The names of the values of an enumeration, in their order.
inline std::span<const char* const> names_of(PoolingKind) {
  static constexpr std::array names{"max", "average"};
  return names;
}
inline std::span<const char* const> names_of(UpsamplingMode) {
  static constexpr std::array names{"nearest", "linear"};
  return names;
}
inline std::span<const char* const> names_of(StatisticsScope) {
  static constexpr std::array names{"local", "spatial", "all", "neighbours"};
  return names;
}

/// Members of a window are visited in place of the window. Types: Index, int, bool, double, an enumeration above, and
/// std::array<Index, 3> for values of depth, height and width.
template <class Op, class Visit>
void visit_members(Op& op, Visit&& visit) {
  using O = std::remove_const_t<Op>;
  const auto visit_window = [&](auto& window) {
    auto& [kernel, stride, dilation, pad_low, pad_high] = window;
    visit("kernel", kernel);
    visit("stride", stride);
    visit("dilation", dilation);
    visit("pad_low", pad_low);
    visit("pad_high", pad_high);
  };
  if constexpr (std::is_same_v<O, Convolution>) {
    auto& [filters, window, bias, groups] = op;
    visit("filters", filters);
    visit_window(window);
    visit("bias", bias);
    visit("groups", groups);
  } else if constexpr (std::is_same_v<O, TransposedConvolution>) {
    auto& [filters, window, output_padding, bias, groups] = op;
    visit("filters", filters);
    visit_window(window);
    visit("output_padding", output_padding);
    visit("bias", bias);
    visit("groups", groups);
  } else if constexpr (std::is_same_v<O, Pooling>) {
    auto& [pooling, window, count_include_pad] = op;
    visit("pooling", pooling);
    visit_window(window);
    visit("count_include_pad", count_include_pad);
  } else if constexpr (std::is_same_v<O, AdaptivePooling>) {
    auto& [pooling, output] = op;
    visit("pooling", pooling);
    visit("output", output);
  } else if constexpr (std::is_same_v<O, Upsampling>) {
    auto& [mode, scale, output] = op;
    visit("mode", mode);
    visit("scale", scale);
    visit("output", output);
  } else if constexpr (std::is_same_v<O, BatchNorm>) {
    auto& [scope, momentum, epsilon, ranks] = op;
    visit("scope", scope);
    visit("momentum", momentum);
    visit("epsilon", epsilon);
    visit("ranks", ranks);
  } else if constexpr (std::is_same_v<O, GroupNorm>) {
    auto& [groups, epsilon, affine] = op;
    visit("groups", groups);
    visit("epsilon", epsilon);
    visit("affine", affine);
  } else if constexpr (std::is_same_v<O, LayerNorm>) {
    auto& [epsilon, affine] = op;
    visit("epsilon", epsilon);
    visit("affine", affine);
  } else if constexpr (std::is_same_v<O, LeakyRelu>) {
    auto& [slope] = op;
    visit("slope", slope);
  } else if constexpr (std::is_same_v<O, Dropout>) {
    auto& [rate] = op;
    visit("rate", rate);
  } else if constexpr (std::is_same_v<O, Dense>) {
    auto& [features, bias] = op;
    visit("features", features);
    visit("bias", bias);
  } else {
    static_assert(std::is_empty_v<O>, "the members of this operation are not visited");
  }
}

}  // namespace aloni::nn
