#pragma once
// The functions of BLAS and LAPACK that this library calls, under one name for float and double. For sources only: the
// declarations may differ from those of another library that a user includes.
// Matrices are column-major: element (i, j) is a[j * lda + i]. Sizes and strides are int, as BLAS counts.
// The program must link BLAS. The target core does with aloni_ENABLE_LAPACK, and Kokkos Kernels if built with BLAS.
#include <cstddef>

extern "C" {
// The last arguments are the lengths of the texts, as Fortran compilers pass them.
void sgemm_(const char*, const char*, const int*, const int*, const int*, const float*, const float*, const int*,
            const float*, const int*, const float*, float*, const int*, std::size_t, std::size_t);
void dgemm_(const char*, const char*, const int*, const int*, const int*, const double*, const double*, const int*,
            const double*, const int*, const double*, double*, const int*, std::size_t, std::size_t);
void ssyrk_(const char*, const char*, const int*, const int*, const float*, const float*, const int*, const float*,
            float*, const int*, std::size_t, std::size_t);
void dsyrk_(const char*, const char*, const int*, const int*, const double*, const double*, const int*, const double*,
            double*, const int*, std::size_t, std::size_t);
void strsm_(const char*, const char*, const char*, const char*, const int*, const int*, const float*, const float*,
            const int*, float*, const int*, std::size_t, std::size_t, std::size_t, std::size_t);
void dtrsm_(const char*, const char*, const char*, const char*, const int*, const int*, const double*, const double*,
            const int*, double*, const int*, std::size_t, std::size_t, std::size_t, std::size_t);
void spotrf_(const char*, const int*, float*, const int*, int*, std::size_t);
void dpotrf_(const char*, const int*, double*, const int*, int*, std::size_t);
}

namespace aloni::blas {

/// C = alpha op(A) op(B) + beta C, where C is m × n and the sum has k terms. op: 'N' or 'T'.
inline void gemm(char op_a, char op_b, int m, int n, int k, float alpha, const float* a, int lda, const float* b,
                 int ldb, float beta, float* c, int ldc) {
  sgemm_(&op_a, &op_b, &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &ldc, 1, 1);
}
inline void gemm(char op_a, char op_b, int m, int n, int k, double alpha, const double* a, int lda, const double* b,
                 int ldb, double beta, double* c, int ldc) {
  dgemm_(&op_a, &op_b, &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &ldc, 1, 1);
}

/// The triangle `part` ('L' or 'U') of C = alpha op(A) op(A)ᵀ + beta C, where C is n × n and the sum has k terms.
inline void syrk(char part, char op, int n, int k, float alpha, const float* a, int lda, float beta, float* c,
                 int ldc) {
  ssyrk_(&part, &op, &n, &k, &alpha, a, &lda, &beta, c, &ldc, 1, 1);
}
inline void syrk(char part, char op, int n, int k, double alpha, const double* a, int lda, double beta, double* c,
                 int ldc) {
  dsyrk_(&part, &op, &n, &k, &alpha, a, &lda, &beta, c, &ldc, 1, 1);
}

/// B = op(A)⁻¹ B (side 'L') or B op(A)⁻¹ (side 'R'), where B is m × n and A the triangle `part` of its memory.
/// `diagonal`: 'U': A has ones there; 'N': it is in memory.
inline void trsm(char side, char part, char op, char diagonal, int m, int n, const float* a, int lda, float* b,
                 int ldb) {
  const float one = 1;
  strsm_(&side, &part, &op, &diagonal, &m, &n, &one, a, &lda, b, &ldb, 1, 1, 1, 1);
}
inline void trsm(char side, char part, char op, char diagonal, int m, int n, const double* a, int lda, double* b,
                 int ldb) {
  const double one = 1;
  dtrsm_(&side, &part, &op, &diagonal, &m, &n, &one, a, &lda, b, &ldb, 1, 1, 1, 1);
}

/// The triangle `part` of A = L Lᵀ or Uᵀ U. Returns 0, or the number of columns up to the first pivot that is not
/// positive.
inline int potrf(char part, int n, float* a, int lda) {
  int info = 0;
  spotrf_(&part, &n, a, &lda, &info, 1);
  return info;
}
inline int potrf(char part, int n, double* a, int lda) {
  int info = 0;
  dpotrf_(&part, &n, a, &lda, &info, 1);
  return info;
}

}  // namespace aloni::blas
