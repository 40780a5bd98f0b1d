#pragma once
// Max, average and global average pooling of one rank's local boxes. Views must have the problem's extents (InvalidArgument) and
// may have any strides. Asynchronous on the given instance; no workspace.
//
// Backward kernels write every element of dx, which covers the same box as the forward's x (ghosts included: the adjoint
// exchange then adds them to their owners). Each dx element gathers from the windows that contain it, so there
// are no atomics and the order of sums is fixed.
#include <aloni/nn/local/local_types.hpp>
#include <aloni/nn/local/pooling_problem.hpp>

namespace aloni::nn::local {

/// y = maximum over each window; argmax = its position in the window, (kd * window_h + kh) * window_w + kw. Of equal
/// maxima the first in window order wins; a NaN wins over everything. A window without any element gives -infinity and
/// argmax -1. `argmax` has y's extents, or extent 0 in every dimension when it is not wanted.
template <class T, class Exec>
void max_pool_forward(const Exec& exec, const PoolingProblem& problem, InTensor<T, Exec> x, Tensor<T, Exec> y,
                      OutTensor<std::int32_t, Exec> argmax);
template <class T, class Exec>
void max_pool_backward(const Exec& exec, const PoolingProblem& problem, InTensor<T, Exec> dy,
                       InTensor<std::int32_t, Exec> argmax, Tensor<T, Exec> dx);

/// y = sum over each window / divisor; a window without any element gives 0.
template <class T, class Exec>
void average_pool_forward(const Exec& exec, const PoolingProblem& problem, AverageDivisor divisor, InTensor<T, Exec> x,
                          Tensor<T, Exec> y);
template <class T, class Exec>
void average_pool_backward(const Exec& exec, const PoolingProblem& problem, AverageDivisor divisor,
                           InTensor<T, Exec> dy, Tensor<T, Exec> dx);

/// y(n,0,0,0,c) = scale × sum over the pixels of x(n,…,c), accumulated in double. With scale = 1 / global pixels, the sum of
/// y over the ranks of a spatial group is the global average: these sums are float where x is bfloat16.
template <class T, class Exec>
void global_average_forward(const Exec& exec, double scale, InTensor<T, Exec> x,
                            OutTensor<parameter_type_t<T>, Exec> y);
/// dx(n,d,h,w,c) = scale × dy(n,0,0,0,c).
template <class T, class Exec>
void global_average_backward(const Exec& exec, double scale, InTensor<T, Exec> dy, Tensor<T, Exec> dx);

}  // namespace aloni::nn::local
