#include <aloni/nn/local/gemm.hpp>

#include <aloni/core/config.hpp>
#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/execution.hpp>
#include <aloni/nn/local/detail/gemm_backends.hpp>

#include <algorithm>
#include <limits>

namespace aloni::nn::local {

template <class T, class Exec>
void gemm(const Exec& exec, Transpose op_a, Transpose op_b, std::type_identity_t<T> alpha,
          std::type_identity_t<MatrixRef<const T>> a, std::type_identity_t<MatrixRef<const T>> b,
          std::type_identity_t<T> beta, MatrixRef<T> c) {
  constexpr auto operation = "aloni::nn::local::gemm";
  const Index a_rows = op_a == Transpose::no ? a.rows : a.columns, k = op_a == Transpose::no ? a.columns : a.rows;
  const Index b_rows = op_b == Transpose::no ? b.rows : b.columns,
              b_columns = op_b == Transpose::no ? b.columns : b.rows;
  auto shape = [](Index rows, Index columns) { return std::to_string(rows) + "x" + std::to_string(columns); };
  detail::check(a_rows == c.rows, operation, "op(a)", shape(a_rows, k), "the rows of c");
  detail::check(b_rows == k, operation, "op(b)", shape(b_rows, b_columns), "a row for each column of op(a)");
  detail::check(b_columns == c.columns, operation, "op(b)", shape(b_rows, b_columns), "the columns of c");
  detail::check(a.stride >= a.columns && b.stride >= b.columns && c.stride >= c.columns, operation, "stride",
                std::to_string(a.stride) + ", " + std::to_string(b.stride) + ", " + std::to_string(c.stride),
                "at least the number of columns of a, b and c");
  if (c.rows == 0 || c.columns == 0) return;
  const detail::GemmArguments<T> arguments{op_a, op_b, alpha, beta, a, b, c, k};
  if constexpr (config::has_kokkos_kernels) {
    const Index largest = std::max({c.rows, c.columns, k, a.stride, b.stride, c.stride});
    // BLAS counts in int. Kokkos Kernels 4.4 uses the columns of a as the length of the sum even if a is transposed,
    // and it treats a single column as a contiguous vector with any stride. The blocked kernel computes these cases.
    const bool strided_column = c.columns == 1 && (b.stride != 1 || c.stride != 1);
    if (k > 0 && !strided_column && largest <= std::numeric_limits<int>::max()) {
      detail::kokkos_kernels_gemm(exec, arguments);
      return;
    }
  }
  detail::blocked_gemm(exec, arguments);
}

#define INSTANTIATE(T, Exec)                                                                                   \
  template void gemm<T, Exec>(const Exec&, Transpose, Transpose, T, MatrixRef<const T>, MatrixRef<const T>, T, \
                              MatrixRef<T>);
ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local
