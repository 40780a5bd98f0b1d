#include "factorisation/slow_blas.hpp"

#include <aloni/core/error.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

namespace aloni::bench {
namespace {

std::atomic<int> blas_times{1};
std::atomic<Index> repeated_calls{0};

/// Memory of this thread. Its elements are 0 where nothing was written.
double* scratch(int stride, int columns) {
  thread_local std::vector<double> memory;
  const auto elements = static_cast<std::size_t>(stride) * static_cast<std::size_t>(columns);
  if (memory.size() < elements) memory.resize(elements);
  return memory.data();
}

/// A scratch copy of a column-major matrix, with the same stride.
double* scratch_copy(const double* matrix, int rows, int columns, int stride) {
  double* const copy = scratch(stride, columns);
  for (std::ptrdiff_t j = 0; j < columns; ++j) std::copy_n(matrix + j * stride, rows, copy + j * stride);
  return copy;
}

template <class F>
void repeat(const F& kernel) {
  const int more = blas_times.load(std::memory_order_relaxed) - 1;
  if (more == 0) return;
  for (int i = 0; i < more; ++i) kernel();
  repeated_calls.fetch_add(more, std::memory_order_relaxed);
}

}  // namespace

void set_blas_slowdown(int times) {
  if (times < 1) throw InvalidArgument("aloni::bench::set_blas_slowdown", "times", std::to_string(times), "at least 1");
  blas_times = times;
}

Index repeated_blas_calls() { return repeated_calls.load(); }

}  // namespace aloni::bench

// The linker calls __wrap_x for x, and x for __real_x. Arguments: core/blas_functions.hpp.
extern "C" {
void __real_dgemm_(const char*, const char*, const int*, const int*, const int*, const double*, const double*,
                   const int*, const double*, const int*, const double*, double*, const int*, std::size_t, std::size_t);
void __real_dsyrk_(const char*, const char*, const int*, const int*, const double*, const double*, const int*,
                   const double*, double*, const int*, std::size_t, std::size_t);
void __real_dtrsm_(const char*, const char*, const char*, const char*, const int*, const int*, const double*,
                   const double*, const int*, double*, const int*, std::size_t, std::size_t, std::size_t, std::size_t);
void __real_dpotrf_(const char*, const int*, double*, const int*, int*, std::size_t);

void __wrap_dgemm_(const char* op_a, const char* op_b, const int* m, const int* n, const int* k, const double* alpha,
                   const double* a, const int* lda, const double* b, const int* ldb, const double* beta, double* c,
                   const int* ldc, std::size_t length_a, std::size_t length_b) {
  aloni::bench::repeat([&] {
    double* const other = aloni::bench::scratch_copy(c, *m, *n, *ldc);
    __real_dgemm_(op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, other, ldc, length_a, length_b);
  });
  __real_dgemm_(op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, length_a, length_b);
}

void __wrap_dsyrk_(const char* part, const char* op, const int* n, const int* k, const double* alpha, const double* a,
                   const int* lda, const double* beta, double* c, const int* ldc, std::size_t length_part,
                   std::size_t length_op) {
  aloni::bench::repeat([&] {
    double* const other = aloni::bench::scratch_copy(c, *n, *n, *ldc);
    __real_dsyrk_(part, op, n, k, alpha, a, lda, beta, other, ldc, length_part, length_op);
  });
  __real_dsyrk_(part, op, n, k, alpha, a, lda, beta, c, ldc, length_part, length_op);
}

void __wrap_dtrsm_(const char* side, const char* part, const char* op, const char* diagonal, const int* m, const int* n,
                   const double* alpha, const double* a, const int* lda, double* b, const int* ldb,
                   std::size_t length_side, std::size_t length_part, std::size_t length_op,
                   std::size_t length_diagonal) {
  aloni::bench::repeat([&] {
    double* const other = aloni::bench::scratch_copy(b, *m, *n, *ldb);
    __real_dtrsm_(side, part, op, diagonal, m, n, alpha, a, lda, other, ldb, length_side, length_part, length_op,
                  length_diagonal);
  });
  __real_dtrsm_(side, part, op, diagonal, m, n, alpha, a, lda, b, ldb, length_side, length_part, length_op,
                length_diagonal);
}

void __wrap_dpotrf_(const char* part, const int* n, double* a, const int* lda, int* info, std::size_t length_part) {
  aloni::bench::repeat([&] {
    int other_info = 0;
    __real_dpotrf_(part, n, aloni::bench::scratch_copy(a, *n, *n, *lda), lda, &other_info, length_part);
  });
  __real_dpotrf_(part, n, a, lda, info, length_part);
}
}
