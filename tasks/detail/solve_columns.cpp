#include <aloni/tasks/detail/solve_columns.hpp>

#include <aloni/tasks/detail/instantiate.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace aloni::tasks::detail {

namespace {

/// Rows go in groups of four vectors. Two columns of a group are accumulators in registers, and each column before them
/// is read once for both.
template <class T, int bytes>
[[gnu::always_inline]] inline void solve(const SolvedColumns<T>& s) {
  typedef T Vector __attribute__((vector_size(bytes)));
  constexpr int vectors = 4, rows = vectors * bytes / static_cast<int>(sizeof(T));
  T u[most_solved_columns + 1][most_solved_columns + 1], inverse[most_solved_columns + 1];
  for (int k = 0; k < s.n; ++k) {
    inverse[k] = s.unit ? T(1) : 1 / s.u[k * s.row + k * s.column];
    for (int j = k + 1; j < s.n; ++j) u[k][j] = s.u[k * s.row + j * s.column];
    u[k][s.n] = 0;  // of the column beside the last one, if their number is odd
  }
  inverse[s.n] = 0;
  Vector x[most_solved_columns + 1][vectors];
  for (int i = 0; i < s.m; i += rows) {
    const int count = std::min(rows, s.m - i);
    for (int j = 0; j < s.n; j += 2) {
      const int columns = std::min(2, s.n - j);
      T* const b = s.b + static_cast<std::ptrdiff_t>(j) * s.ldb + i;
      const bool is_whole = columns == 2 && count == rows;  // sizes that the compiler knows
      Vector sums[2][vectors] = {};
      if (is_whole) {
        std::memcpy(sums[0], b, sizeof sums[0]);
        std::memcpy(sums[1], b + s.ldb, sizeof sums[1]);
      } else {
        for (int c = 0; c < columns; ++c)
          std::memcpy(sums[c], b + static_cast<std::ptrdiff_t>(c) * s.ldb, static_cast<std::size_t>(count) * sizeof(T));
      }
      for (int k = 0; k < j; ++k) {
        const T first = u[k][j], second = u[k][j + 1];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
          const Vector solved = x[k][v];
          sums[0][v] -= first * solved;
          sums[1][v] -= second * solved;
        }
      }
      const T between = u[j][j + 1];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        x[j][v] = sums[0][v] * inverse[j];
        x[j + 1][v] = (sums[1][v] - between * x[j][v]) * inverse[j + 1];
      }
      if (is_whole) {
        std::memcpy(b, x[j], sizeof x[j]);
        std::memcpy(b + s.ldb, x[j + 1], sizeof x[j + 1]);
      } else {
        for (int c = 0; c < columns; ++c)
          std::memcpy(b + static_cast<std::ptrdiff_t>(c) * s.ldb, x[j + c],
                      static_cast<std::size_t>(count) * sizeof(T));
      }
    }
  }
}

template <class T>
using Solver = void (*)(const SolvedColumns<T>&);

template <class T>
void solve_baseline(const SolvedColumns<T>& s) {
  solve<T, 16>(s);
}
#if defined(__x86_64__)
template <class T>
__attribute__((target("avx2,fma"))) void solve_avx2(const SolvedColumns<T>& s) {
  solve<T, 32>(s);
}
template <class T>
__attribute__((target("avx512f,avx512vl,avx2,fma"))) void solve_avx512(const SolvedColumns<T>& s) {
  solve<T, 64>(s);
}
#endif

}  // namespace

template <class T>
std::vector<Solver<T>> all_column_solvers() {
  std::vector<Solver<T>> all{solve_baseline<T>};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    all.push_back(solve_avx2<T>);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) all.push_back(solve_avx512<T>);
  }
#endif
  return all;
}

template <class T>
void solve_columns(const SolvedColumns<T>& columns) {
  static const Solver<T> best = all_column_solvers<T>().back();
  best(columns);
}

#define INSTANTIATE(T)                                     \
  template std::vector<Solver<T>> all_column_solvers<T>(); \
  template void solve_columns<T>(const SolvedColumns<T>&);
ALONI_INSTANTIATE_ELEMENTS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::tasks::detail
