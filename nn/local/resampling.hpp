#pragma once
// Adaptive pooling and interpolation of one rank's local boxes.
//
//   ResamplingProblem p{.samples = 8, .channels = 16};
//   p.map[0].rule = halo::RangeRule::linear;   // all dimensions have one rule
//   for (int s = 1; s < 3; ++s) p.map[s] = {halo::RangeRule::linear, 14, 28}, p.input[s] = 14, p.output[s] = 28;
//   resample_forward<float>(exec, p, x, y);
//   resample_backward<float>(exec, p, dy, dx);
//
// Views have the extents of the problem (otherwise InvalidArgument) and any strides. x contains all inputs of the local
// outputs, ghosts included. Asynchronous on the given instance; no workspace.
//
// Backward kernels write every element of dx: the contributions of the local outputs. dx covers the same box as x; the
// adjoint exchange adds its ghosts to their owners. Each element of dx gathers from the outputs that read it. So there
// are no atomics, and the order of sums is fixed. Sums and weights are double, and weights follow from global indices:
// each output has the same bits on every process grid.
#include <aloni/nn/local/local_types.hpp>
#include <aloni/nn/local/resampling_problem.hpp>

namespace aloni::nn::local {

/// y = maximum over each window; argmax = its position in the window, row-major. Of equal maxima the first wins; a NaN
/// wins over every number. `argmax` has the extents of y, or extent 0 in every dimension if it is not wanted.
template <class T, class Exec>
void adaptive_max_pool_forward(const Exec& exec, const ResamplingProblem& problem, InTensor<T, Exec> x,
                               Tensor<T, Exec> y, OutTensor<std::int32_t, Exec> argmax);
template <class T, class Exec>
void adaptive_max_pool_backward(const Exec& exec, const ResamplingProblem& problem, InTensor<T, Exec> dy,
                                InTensor<std::int32_t, Exec> argmax, Tensor<T, Exec> dx);

/// y = mean of each window with the adaptive rule, weighted sum of its elements with the other rules.
template <class T, class Exec>
void resample_forward(const Exec& exec, const ResamplingProblem& problem, InTensor<T, Exec> x, Tensor<T, Exec> y);
template <class T, class Exec>
void resample_backward(const Exec& exec, const ResamplingProblem& problem, InTensor<T, Exec> dy, Tensor<T, Exec> dx);

}  // namespace aloni::nn::local
