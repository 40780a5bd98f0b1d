#pragma once
// The bias of a convolution where its kernel doesn't take one along: behind a transposed convolution, and behind sums over ranks.
#include <aloni/nn/local/batch_norm.hpp>
#include <aloni/nn/local/local_types.hpp>

namespace aloni::nn::local {

/// y += bias, channel by channel. bias has as many elements as y has channels. Asynchronous.
template <class T, class Exec>
void add_bias(const Exec& exec, InArray<parameter_type_t<T>, Exec> bias, Tensor<T, Exec> y);

/// The gradient of a bias: the sum of dy over all pixels, in double, rounded once. The order depends on the extents only.
template <class T, class Exec = Kokkos::DefaultExecutionSpace>
class BiasGradient {
 public:
  /// For tensors of these extents.
  BiasGradient(const Exec& exec, Index samples, Index depth, Index height, Index channels);

  /// Asynchronous; allocates nothing. db has as many elements as dy has channels.
  void operator()(const Exec& exec, InTensor<T, Exec> dy, OutArray<parameter_type_t<T>, Exec> db);

 private:
  BatchNormReduction<T, Exec> reduction_;
  Kokkos::View<double*, typename Exec::memory_space> sums_;
};

}  // namespace aloni::nn::local
