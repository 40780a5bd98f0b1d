#pragma once
// The rate of the matrix product of BLAS: the bound of every factorisation, with which benchmarks compare.
//
//   const double seconds = gemm_seconds<double>(2048, 2);
//   const double gflops = 2e-9 * 2048. * 2048. * 2048. / seconds;
#include <aloni/core/index.hpp>

namespace aloni::tasks {

/// Seconds of one product C = C - A Bᵀ of n × n matrices by `workers` threads. Each thread computes a block of columns
/// with one thread of BLAS. There is no barrier inside the product. The elements are 1; the first product, which is not
/// timed, is checked.
/// @pre n, workers ≥ 1; n < 2^31
/// Throws InvalidArgument, and Unsupported in builds without aloni_ENABLE_LAPACK. Not collective.
template <class T>
double gemm_seconds(Index n, int workers);

}  // namespace aloni::tasks
