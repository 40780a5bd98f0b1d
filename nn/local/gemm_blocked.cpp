#include <aloni/nn/local/detail/direct_kernels.hpp>
#include <aloni/nn/local/detail/execution.hpp>
#include <aloni/nn/local/detail/gemm_backends.hpp>

#include <algorithm>

namespace aloni::nn::local::detail {

namespace {

// Blocks are on the stack, so a call allocates nothing: 128 × 64 of b (32 or 64 KiB), and 32 × 128 of a if a is
// transposed. Both fit in the second-level cache.
constexpr Index block_m = 32, block_n = 64, block_k = 128;

template <class T>
void gemm_block(const GemmArguments<T>& g, Index m0, Index n0) {
  const DirectKernels<T>& kernels = direct_kernels<T>();
  const Index m = std::min(block_m, g.c.rows - m0), n = std::min(block_n, g.c.columns - n0);
  const Index padded = (n + kernels.lanes - 1) / kernels.lanes * kernels.lanes;
  alignas(64) T b[block_k * block_n];
  alignas(64) T a[block_m * block_k];
  alignas(64) T part[block_m * block_n];
  alignas(64) T sum[block_m * block_n];
  const T zeros[block_n] = {};
  std::fill(sum, sum + m * padded, T{0});
  for (Index k0 = 0; k0 < g.k; k0 += block_k) {
    const Index k = std::min(block_k, g.k - k0);
    if (g.op_b == Transpose::no) {
      for (Index i = 0; i < k; ++i) {
        const T* const from = g.b.data + (k0 + i) * g.b.stride + n0;
        std::copy(from, from + n, b + i * padded);
        std::fill(b + i * padded + n, b + (i + 1) * padded, T{0});
      }
    } else {
      if (padded > n)
        for (Index i = 0; i < k; ++i) std::fill(b + i * padded + n, b + (i + 1) * padded, T{0});
      for (Index j = 0; j < n; ++j) {
        const T* const from = g.b.data + (n0 + j) * g.b.stride + k0;
        for (Index i = 0; i < k; ++i) b[i * padded + j] = from[i];
      }
    }
    RowTerm<T> term{g.a.data + m0 * g.a.stride + k0, b};
    Index a_stride = g.a.stride;
    if (g.op_a == Transpose::yes) {
      for (Index i = 0; i < k; ++i) {
        const T* const from = g.a.data + (k0 + i) * g.a.stride + m0;
        for (Index j = 0; j < m; ++j) a[j * block_k + i] = from[j];
      }
      term.x = a;
      a_stride = block_k;
    }
    const RowArguments<T> arguments{.terms = &term,
                                    .num_terms = 1,
                                    .taps = 1,
                                    .channels = k,
                                    .x_pixel = a_stride,
                                    .x_tap = 0,
                                    .w_tap = 0,
                                    .bias = zeros,
                                    .filters = padded,
                                    .padded = padded,
                                    .y = part,
                                    .pixels = m,
                                    .y_pixel = padded};
    kernels.row(arguments);
    for (Index i = 0; i < m * padded; ++i) sum[i] += part[i];
  }
  for (Index i = 0; i < m; ++i) {
    T* const c = g.c.data + (m0 + i) * g.c.stride + n0;
    const T* const s = sum + i * padded;
    if (g.beta == T{0}) {
      for (Index j = 0; j < n; ++j) c[j] = g.alpha * s[j];
    } else {
      for (Index j = 0; j < n; ++j) c[j] = g.alpha * s[j] + g.beta * c[j];
    }
  }
}

}  // namespace

template <class T, class Exec>
void blocked_gemm(const Exec& exec, const GemmArguments<T>& g) {
  if constexpr (runs_on_host<Exec>) {
    const Index blocks_n = (g.c.columns + block_n - 1) / block_n, blocks_m = (g.c.rows + block_m - 1) / block_m;
    Kokkos::parallel_for("aloni::nn::blocked_gemm", Range<Exec>(exec, 0, blocks_m * blocks_n),
                         [=](const Index i) { gemm_block(g, i / blocks_n * block_m, i % blocks_n * block_n); });
  } else {
    const Index columns = g.c.columns;
    const bool a_plain = g.op_a == Transpose::no, b_plain = g.op_b == Transpose::no;
    Kokkos::parallel_for(
        "aloni::nn::blocked_gemm", Range<Exec>(exec, 0, g.c.rows * columns), KOKKOS_LAMBDA(const Index e) {
          const Index i = e / columns, j = e % columns;
          T sum = 0;
          for (Index l = 0; l < g.k; ++l) {
            sum += (a_plain ? g.a.data[i * g.a.stride + l] : g.a.data[l * g.a.stride + i]) *
                   (b_plain ? g.b.data[l * g.b.stride + j] : g.b.data[j * g.b.stride + l]);
          }
          T& c = g.c.data[i * g.c.stride + j];
          c = g.alpha * sum + (g.beta == T(0) ? T(0) : g.beta * c);
        });
  }
}

#define INSTANTIATE(T, Exec) template void blocked_gemm<T, Exec>(const Exec&, const GemmArguments<T>&);
ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local::detail
