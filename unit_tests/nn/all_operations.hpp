#pragma once
// One valid layer of every operation, for tests that must not miss one.
#include <aloni/nn/network_description.hpp>

#include <gtest/gtest.h>

#include <set>
#include <variant>
#include <vector>

namespace aloni::nn::test {

/// Each of these accepts an input of 1x6x4x4 or 1x1x1x4 (samples left out) and leaves no dimension empty.
inline std::vector<Operation> all_operations() {
  const std::vector<Operation> operations{Convolution{6, square_window(2, 3, 1, 1)},
                                          TransposedConvolution{6, square_window(2, 3, 1, 1)},
                                          Pooling{PoolingKind::max, square_window(2, 3, 1, 1)},
                                          Pooling{PoolingKind::average, square_window(2, 3, 1, 1)},
                                          BatchNorm{},
                                          GroupNorm{2},
                                          LayerNorm{},
                                          Relu{},
                                          LeakyRelu{0.1},
                                          Sigmoid{},
                                          Tanh{},
                                          Silu{},
                                          Gelu{},
                                          Dropout{0.25},
                                          Flatten{},
                                          Dense{3},
                                          GlobalAveragePooling{},
                                          Add{},
                                          Concatenate{},
                                          AdaptivePooling{PoolingKind::max, {1, 1, 1}},
                                          AdaptivePooling{PoolingKind::average, {1, 1, 1}},
                                          Upsampling{UpsamplingMode::nearest, {1, 2, 2}},
                                          Upsampling{UpsamplingMode::linear, {1, 2, 2}}};
  std::set<std::size_t> kinds;
  for (const Operation& op : operations) kinds.insert(op.index());
  EXPECT_EQ(kinds.size(), std::variant_size_v<Operation>) << "an operation is missing in all_operations()";
  return operations;
}

/// A network of this layer alone. A layer of two or more inputs reads "input" twice.
inline NetworkDescription alone(const Operation& op) {
  NetworkDescription net;
  net.spatial_rank = 2;
  const bool flat = std::holds_alternative<Dense>(op);
  net.input = flat ? views::Extents{{1, 1, 1, 1, 4}} : views::Extents{{1, 1, 6, 4, 4}};
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"layer", op, {"input"}}};
  return net;
}

}  // namespace aloni::nn::test
