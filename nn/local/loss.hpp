#pragma once
// Losses of one rank's samples, with the gradient in the same pass.
//
// * `result` (extent 2, double) receives the unscaled sum of the losses and the number of right predictions. It lies in
//   memory of the execution space, so no call waits.
// * `dlogits` may have extent 0 in every dimension if only the loss is wanted. It may be the memory of the logits.
// * `scale`, for example 1 / global batch, multiplies the gradient only.
// * Asynchronous on the given instance.
#include <aloni/nn/local/local_types.hpp>

namespace aloni::nn::local {

/// Cross-entropy of softmax(logits) with one label per sample; logits are (N,1,1,1,C). dlogits = scale × (softmax -
/// target). Stable for logits of any size. The first of the largest logits is the prediction. A label outside [0, C)
/// makes loss and gradient of its sample NaN: readers of data have to refuse it.
/// `smoothing`: s in [0, 1). The target of the label is 1 - s + s / C, and the target of each other class s / C.
template <class T, class Exec>
void softmax_cross_entropy(const Exec& exec, InTensor<T, Exec> logits, InArray<int, Exec> labels, double scale,
                           Tensor<T, Exec> dlogits, OutArray<double, Exec> result, double smoothing = 0);

/// Per element: loss = max(z,0) - z t + log(1 + exp(-|z|)), with targets t in [0, 1]. dlogits = scale × (sigmoid(z) -
/// t). A prediction is right if (z > 0) = (t > 1/2).
template <class T, class Exec>
void binary_cross_entropy_with_logits(const Exec& exec, InTensor<T, Exec> logits, InTensor<T, Exec> targets,
                                      double scale, Tensor<T, Exec> dlogits, OutArray<double, Exec> result);

/// Cross-entropy of softmax over the channels of each pixel, with one label per pixel: labels are (N,D,H,W,1). All else
/// is as for softmax_cross_entropy().
template <class T, class Exec>
void pixel_cross_entropy(const Exec& exec, InTensor<T, Exec> logits, InTensor<int, Exec> labels, double scale,
                         Tensor<T, Exec> dlogits, OutArray<double, Exec> result, double smoothing = 0);

/// Per element: loss = (y - t)². gradient = scale × 2 (y - t). No prediction is right.
template <class T, class Exec>
void mean_squared_error(const Exec& exec, InTensor<T, Exec> outputs, InTensor<T, Exec> targets, double scale,
                        Tensor<T, Exec> gradient, OutArray<double, Exec> result);

// Dice (Loss::dice): the sums of each rank, their sum over ranks, then the gradient and the loss.

/// The sums of p t, p² and t² over the elements, with p = sigmoid(z), and the number of predictions with
/// (z > 0) = (t > 1/2). `sums` has extent 4.
template <class T, class Exec>
void dice_sums(const Exec& exec, InTensor<T, Exec> logits, InTensor<T, Exec> targets, OutArray<double, Exec> sums);
/// dlogits = scale × the derivative of 1 - 2 sum(p t) / (sum(p²) + sum(t²)), with the sums over all ranks; 0 if both
/// sums of squares are 0.
template <class T, class Exec>
void dice_gradient(const Exec& exec, InTensor<T, Exec> logits, InTensor<T, Exec> targets, InArray<double, Exec> sums,
                   double scale, Tensor<T, Exec> dlogits);
/// result = share × (the loss, the number of right predictions), from the sums over all ranks.
template <class Exec>
void dice_loss(const Exec& exec, double share, InArray<double, Exec> sums, OutArray<double, Exec> result);

}  // namespace aloni::nn::local
