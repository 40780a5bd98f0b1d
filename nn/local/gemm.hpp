#pragma once
// Multiplication of row-major matrices. Kokkos Kernels does it (BLAS on the host, cuBLAS on CUDA); builds without
// Kokkos Kernels use a blocked kernel of this library.
#include <aloni/nn/local/local_types.hpp>

namespace aloni::nn::local {

/// A row-major matrix in memory of the caller: element (i, j) is data[i * stride + j]. @pre stride ≥ columns
template <class T>
struct MatrixRef {
  T* data = nullptr;
  Index rows = 0, columns = 0, stride = 0;
};

enum class Transpose { no, yes };

/// c = alpha × op(a) × op(b) + beta × c. With beta = 0, c is not read. With an inner extent of 0 the product is 0.
/// Asynchronous on the given instance; no fence, no allocation. Throws InvalidArgument if the shapes do not match.
template <class T, class Exec>
void gemm(const Exec& exec, Transpose op_a, Transpose op_b, std::type_identity_t<T> alpha,
          std::type_identity_t<MatrixRef<const T>> a, std::type_identity_t<MatrixRef<const T>> b,
          std::type_identity_t<T> beta, MatrixRef<T> c);

}  // namespace aloni::nn::local
