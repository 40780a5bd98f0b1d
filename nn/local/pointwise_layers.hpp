#pragma once
// The kernels of all pointwise layers (OperationProperties::pointwise): y = f(x), element by element.
//
//   pointwise_forward<T, Exec>(exec, Silu{}, x, y);
//   pointwise_backward<T, Exec>(exec, Silu{}, x, dy, dx);
//
// * Views of one call have equal extents (otherwise InvalidArgument) and any strides.
// * f is computed in the type of the parameters, and the result rounded once.
// * Asynchronous on the given instance.
#include <aloni/nn/layer.hpp>
#include <aloni/nn/local/local_types.hpp>

namespace aloni::nn::local {

/// y = f(x); y may be x. Throws InvalidArgument for a layer that is not pointwise.
template <class T, class Exec>
void pointwise_forward(const Exec& exec, const Operation& layer, InTensor<T, Exec> x, Tensor<T, Exec> y);

/// dx = f'(x) × dy. `value` is the input of the layer if its properties have backward_reads_input, and its output
/// otherwise. dx may be dy. Throws InvalidArgument for a layer that is not pointwise.
template <class T, class Exec>
void pointwise_backward(const Exec& exec, const Operation& layer, InTensor<T, Exec> value, InTensor<T, Exec> dy,
                        Tensor<T, Exec> dx);

}  // namespace aloni::nn::local
