#pragma once
// The bias of a convolution as a kernel of its own: after a transposed convolution, and after sums over ranks.
#include <aloni/nn/local/batch_norm.hpp>
#include <aloni/nn/local/local_types.hpp>

namespace aloni::nn::local {

/// y += bias, channel by channel. The extent of bias is the number of channels of y. Asynchronous.
template <class T, class Exec>
void add_bias(const Exec& exec, InArray<parameter_type_t<T>, Exec> bias, Tensor<T, Exec> y);

/// The gradient of a bias: the sum of dy over all pixels in double, rounded once. The order of the sum depends on the
/// extents only.
template <class T, class Exec = Kokkos::DefaultExecutionSpace>
class BiasGradient {
 public:
  /// For tensors of these extents.
  BiasGradient(const Exec& exec, Index samples, Index depth, Index height, Index channels);

  /// The extent of db is the number of channels of dy. Asynchronous; allocates nothing.
  void operator()(const Exec& exec, InTensor<T, Exec> dy, OutArray<parameter_type_t<T>, Exec> db);

 private:
  BatchNormReduction<T, Exec> reduction_;
  Kokkos::View<double*, typename Exec::memory_space> sums_;
};

}  // namespace aloni::nn::local
