#pragma once
// Matrix multiplication of row-major matrices through Kokkos Kernels (BLAS on the host, cuBLAS on CUDA), or through a
// blocked kernel of our own in builds without Kokkos Kernels.
#include <aloni/nn/local/local_types.hpp>

namespace aloni::nn::local {

/// A row-major matrix somewhere in memory: element (i, j) is data[i * stride + j]. @pre stride ≥ columns
template <class T>
struct MatrixRef {
  T* data = nullptr;
  Index rows = 0, columns = 0, stride = 0;
};

enum class Transpose { no, yes };

/// c = alpha × op(a) × op(b) + beta × c. With beta = 0, c is not read. Inner extents of 0 count as a sum of nothing.
/// Asynchronous on the given instance; no fence, no allocation. Throws InvalidArgument when shapes don't fit.
template <class T, class Exec>
void gemm(const Exec& exec, Transpose op_a, Transpose op_b, std::type_identity_t<T> alpha,
          std::type_identity_t<MatrixRef<const T>> a, std::type_identity_t<MatrixRef<const T>> b,
          std::type_identity_t<T> beta, MatrixRef<T> c);

}  // namespace aloni::nn::local
