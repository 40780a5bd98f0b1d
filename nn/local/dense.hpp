#pragma once
// The fully connected layer on one rank. Activations are (N,1,1,1,C) with channel stride 1 and any sample stride.
// Weights are a flat array: F × C, row-major, dense. Wrong shapes throw InvalidArgument. Asynchronous on the given
// instance.
#include <aloni/nn/local/local_types.hpp>

namespace aloni::nn::local {

/// y = x Wᵀ + b. `bias` has extent F; 0 means no bias.
template <class T, class Exec>
void dense_forward(const Exec& exec, InTensor<T, Exec> x, InArray<T, Exec> weights, InArray<T, Exec> bias,
                   Tensor<T, Exec> y);
/// dx = dy W
template <class T, class Exec>
void dense_backward_data(const Exec& exec, InTensor<T, Exec> dy, InArray<T, Exec> weights, Tensor<T, Exec> dx);
/// dW = dyᵀ x, and db = Σ dy unless db has extent 0. Overwrites both.
template <class T, class Exec>
void dense_backward_parameters(const Exec& exec, InTensor<T, Exec> x, InTensor<T, Exec> dy, Array<T, Exec> dweights,
                               OutArray<T, Exec> dbias);

}  // namespace aloni::nn::local
