#pragma once
// Sums of one rank's samples, from which metrics follow (nn/metrics.hpp). `sums` lies in memory of the execution space,
// so no call waits. Counts are exact integers below 2^53. Each call replaces the sums. Asynchronous on the given
// instance. A label outside [0, C) counts nowhere: the loss of its sample is NaN.
#include <aloni/nn/local/local_types.hpp>

namespace aloni::nn::local {

/// The number of samples whose label has one of the `top` largest logits; of equal logits the first one is larger.
/// Logits are (N,1,1,1,C). `sums` has extent 1.
template <class T, class Exec>
void top_matches(const Exec& exec, InTensor<T, Exec> logits, InArray<int, Exec> labels, int top,
                 OutArray<double, Exec> sums);

/// For class c: sums(2c) counts the pixels with prediction and label c, sums(2c + 1) those with prediction or label c.
/// The first of the largest logits is the prediction. `labels` are (N,D,H,W,1). `sums` has extent 2C.
template <class T, class Exec>
void class_overlaps(const Exec& exec, InTensor<T, Exec> logits, InTensor<int, Exec> labels,
                    OutArray<double, Exec> sums);

/// The elements with z > 0 and t > 1/2, and those with z > 0 or t > 1/2. `sums` has extent 2.
template <class T, class Exec>
void foreground_overlap(const Exec& exec, InTensor<T, Exec> logits, InTensor<T, Exec> targets,
                        OutArray<double, Exec> sums);

/// The sum of |y - t|. `sums` has extent 1.
template <class T, class Exec>
void absolute_errors(const Exec& exec, InTensor<T, Exec> outputs, InTensor<T, Exec> targets,
                     OutArray<double, Exec> sums);

}  // namespace aloni::nn::local
