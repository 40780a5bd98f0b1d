#pragma once
// Makes the BLAS of this process slower by a whole factor: each kernel runs first on a scratch copy, then on its data.
// So a rank computes as a slower machine would, whatever the program does between the kernels, and the results keep
// their bits. Only gemm, syrk, trsm and potrf of double are slowed.
//
//   set_blas_slowdown(comm.rank() == 1 ? 2 : 1);     // rank 1 at half the speed
//
// The linker puts it before the functions of BLAS (--wrap of GNU ld, for this program and its static libraries). The
// alternatives were rejected: a busy process on the same core stops the messages too, and in slices of milliseconds; a
// hook in each version of the factorisation would be other code than users run.
#include <aloni/core/index.hpp>

namespace aloni::bench {

/// Each call runs `times` times from now on, on all threads of the process. @pre times ≥ 1. Throws InvalidArgument.
void set_blas_slowdown(int times);

/// Additional runs of kernels so far, of all threads. 0 after a slowed computation: the linker did not put this before
/// BLAS.
Index repeated_blas_calls();

}  // namespace aloni::bench
