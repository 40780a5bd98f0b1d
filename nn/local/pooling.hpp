#pragma once
// Max, average and global average pooling of one rank's local boxes.
//
//   const PoolingProblem p{.samples = 8, .channels = 16, .input = {1, 28, 28}, .output = {1, 14, 14},
//                          .window = {1, 2, 2}, .stride = {1, 2, 2}};
//   max_pool_forward<float>(exec, p, x, y, argmax);
//   max_pool_backward<float>(exec, p, dy, argmax, dx);
//
// Views have the extents of the problem (otherwise InvalidArgument) and any strides. Asynchronous on the given
// instance; no workspace.
//
// Backward kernels write every element of dx. dx covers the same box as x, ghosts included: the adjoint exchange adds
// ghosts to their owners. Each element of dx gathers from the windows that contain it. So there are no atomics, and the
// order of sums is fixed.
#include <aloni/nn/local/local_types.hpp>
#include <aloni/nn/local/pooling_problem.hpp>

namespace aloni::nn::local {

/// y = maximum over each window; argmax = its position in the window, (kd * window_h + kh) * window_w + kw. Of equal
/// maxima the first in window order wins; a NaN wins over every number. A window without elements gives -infinity and
/// argmax -1. `argmax` has the extents of y, or extent 0 in every dimension if it is not wanted.
/// `relu`: of max(x, 0). Then argmax is -1 where no element of the window is positive, so max_pool_backward computes
/// the gradient of x.
template <class T, class Exec>
void max_pool_forward(const Exec& exec, const PoolingProblem& problem, InTensor<T, Exec> x, Tensor<T, Exec> y,
                      OutTensor<std::int32_t, Exec> argmax, bool relu = false);
template <class T, class Exec>
void max_pool_backward(const Exec& exec, const PoolingProblem& problem, InTensor<T, Exec> dy,
                       InTensor<std::int32_t, Exec> argmax, Tensor<T, Exec> dx);

/// y = sum over each window / divisor. A window without elements gives 0.
template <class T, class Exec>
void average_pool_forward(const Exec& exec, const PoolingProblem& problem, AverageDivisor divisor, InTensor<T, Exec> x,
                          Tensor<T, Exec> y);
template <class T, class Exec>
void average_pool_backward(const Exec& exec, const PoolingProblem& problem, AverageDivisor divisor,
                           InTensor<T, Exec> dy, Tensor<T, Exec> dx);

/// y(n,0,0,0,c) = scale × sum over the pixels of x(n,…,c), added in double. With scale = 1 / global pixels, the sum of
/// y over the ranks of a spatial group is the global average. y is float if x is bfloat16.
template <class T, class Exec>
void global_average_forward(const Exec& exec, double scale, InTensor<T, Exec> x,
                            OutTensor<parameter_type_t<T>, Exec> y);
/// dx(n,d,h,w,c) = scale × dy(n,0,0,0,c).
template <class T, class Exec>
void global_average_backward(const Exec& exec, double scale, InTensor<T, Exec> dy, Tensor<T, Exec> dx);

}  // namespace aloni::nn::local
