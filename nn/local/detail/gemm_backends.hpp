#pragma once
// The two implementations of gemm.hpp. Arguments are checked, and no extent is 0. Shapes: c is m × n, and the sum runs
// over k.
#include <aloni/nn/local/gemm.hpp>

namespace aloni::nn::local::detail {

template <class T>
struct GemmArguments {
  Transpose op_a, op_b;
  T alpha, beta;
  MatrixRef<const T> a, b;
  MatrixRef<T> c;
  Index k;
};

/// On a host, blocks through the vector kernels of direct_kernels.hpp; on a device, one thread per element.
template <class T, class Exec>
void blocked_gemm(const Exec& exec, const GemmArguments<T>& arguments);

/// KokkosBlas::gemm. Only in builds with Kokkos Kernels. @pre m, n, k and strides below 2^31
template <class T, class Exec>
void kokkos_kernels_gemm(const Exec& exec, const GemmArguments<T>& arguments);

}  // namespace aloni::nn::local::detail
