#pragma once
// Adaptive pooling and interpolation of one rank's local boxes. Views must have the problem's extents (InvalidArgument) and may have
// any strides; x must contain what the outputs read, ghosts included. Asynchronous on the given instance; no workspace.
//
// Backward kernels write every element of dx, which covers such a box too: what the local outputs contribute, the adjoint exchange
// adds the ghosts to their owners. Each dx element gathers from the outputs that read it, so there are no atomics and the order of
// sums is fixed. Sums and weights are double, weights those of global indices: each output has the same bits on every grid.
#include <aloni/nn/local/local_types.hpp>
#include <aloni/nn/local/resampling_problem.hpp>

namespace aloni::nn::local {

/// y = maximum over each window; argmax = its position in the window, row-major. Of equal maxima the first wins; a NaN wins over
/// everything. `argmax` has y's extents, or extent 0 in every dimension when it is not wanted.
template <class T, class Exec>
void adaptive_max_pool_forward(const Exec& exec, const ResamplingProblem& problem, InTensor<T, Exec> x,
                               Tensor<T, Exec> y, OutTensor<std::int32_t, Exec> argmax);
template <class T, class Exec>
void adaptive_max_pool_backward(const Exec& exec, const ResamplingProblem& problem, InTensor<T, Exec> dy,
                                InTensor<std::int32_t, Exec> argmax, Tensor<T, Exec> dx);

/// y = mean of each window with the adaptive rule, else the sum of its elements by their weights.
template <class T, class Exec>
void resample_forward(const Exec& exec, const ResamplingProblem& problem, InTensor<T, Exec> x, Tensor<T, Exec> y);
template <class T, class Exec>
void resample_backward(const Exec& exec, const ResamplingProblem& problem, InTensor<T, Exec> dy, Tensor<T, Exec> dx);

}  // namespace aloni::nn::local
