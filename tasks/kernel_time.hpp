#pragma once
// Measured times of kernels on tiles, for predictions of a factorisation (model/tile_kernel.hpp).
//
//   const std::vector<double> times = kernel_seconds<double>(Kernel::gemm, {256, 256, 256}, 2, 0.1);
//   // the median of `times`: seconds of one call
//
// Use gemm_seconds (gemm_rate.hpp) instead for the rate of a large matrix product.
#include <aloni/core/index.hpp>
#include <aloni/tasks/task.hpp>

#include <vector>

namespace aloni::tasks {

/// Rows and columns of the tile that the kernel writes. `inner`: for gemm and syrk the columns of the left operand, for
/// trsm the order of the triangle. Not used by potrf and getrf.
struct KernelShape {
  Index rows = 1, columns = 1, inner = 1;
};

/// Seconds of single calls, sorted. `workers` threads call the kernel at the same time, each with one thread of BLAS,
/// as in a factorisation. Each call takes other tiles, of several megabytes together, so that they come from the caches
/// where the tiles of a factorisation would be. The first calls are not timed.
/// It ends after `seconds` and at least five calls of each worker.
/// @pre a kernel of cholesky() or lu(); the shape is ≥ 1 and < 2^31; columns == rows for potrf, getrf and syrk
/// @pre workers ≥ 1, seconds ≥ 0
/// Throws InvalidArgument, and Unsupported in builds without aloni_ENABLE_LAPACK. Not collective.
template <class T>
std::vector<double> kernel_seconds(Kernel kernel, const KernelShape& shape, int workers, double seconds);

}  // namespace aloni::tasks
