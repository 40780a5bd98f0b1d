#pragma once
// The two ways to multiply matrices behind gemm.hpp; arguments are checked and nothing is empty. Shapes: c is m × n, the sum
// runs over k.
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

/// Our own: blocks through the vector kernels of direct_kernels.hpp on a host, one thread per element on a device.
template <class T, class Exec>
void blocked_gemm(const Exec& exec, const GemmArguments<T>& arguments);

/// KokkosBlas::gemm. Only in builds with Kokkos Kernels. @pre m, n, k and strides below 2^31
template <class T, class Exec>
void kokkos_kernels_gemm(const Exec& exec, const GemmArguments<T>& arguments);

}  // namespace aloni::nn::local::detail
