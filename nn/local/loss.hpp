#pragma once
// Losses of one rank's samples, with the gradient in the same pass. `result` (extent 2, double) receives the sum of the losses,
// not scaled, and the number of right predictions: on the device, so that nothing waits. `dlogits` may have extent 0 in every
// dimension when only the loss is wanted; it may be the logits' own memory. `scale` (1 / global batch, say) multiplies the
// gradient only. Asynchronous on the given instance.
#include <aloni/nn/local/local_types.hpp>

namespace aloni::nn::local {

/// Cross-entropy of softmax(logits) with one label per sample; logits are (N,1,1,1,C). dlogits = scale × (softmax - onehot).
/// Stable for logits of any size. A prediction is the first largest logit. A label outside [0, C) makes loss and gradient
/// of its sample NaN: readers of data must have refused it before.
template <class T, class Exec>
void softmax_cross_entropy(const Exec& exec, InTensor<T, Exec> logits, InArray<int, Exec> labels, double scale,
                           Tensor<T, Exec> dlogits, OutArray<double, Exec> result);

/// Per element: loss = max(z,0) - z t + log(1 + exp(-|z|)), targets t in [0, 1]; dlogits = scale × (sigmoid(z) - t). An element
/// is right when (z > 0) = (t > 1/2).
template <class T, class Exec>
void binary_cross_entropy_with_logits(const Exec& exec, InTensor<T, Exec> logits, InTensor<T, Exec> targets,
                                      double scale, Tensor<T, Exec> dlogits, OutArray<double, Exec> result);

}  // namespace aloni::nn::local
