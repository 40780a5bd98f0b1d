#pragma once
// Which BLAS the program calls, with which kernels, and on which threads it computes. The functions themselves:
// core/blas_functions.hpp.
//
//   match_blas_to_processor();                          // Environment does so
//   const BlasLibrary blas = blas_library();
//   if (blas.competes_with(Exec().concurrency())) …   // slow: two pools of threads share the cores
//   const OneBlasThread one;                            // on a thread that runs tasks
#include <string>

namespace aloni {

struct BlasLibrary {
  enum class Threading {
    unknown,     ///< a BLAS that does not say
    sequential,  ///< computes on the calling thread
    openmp,      ///< computes on the threads of OpenMP, which are those of Kokkos::OpenMP
    own          ///< has a pool of threads of its own
  };

  std::string name;              ///< with its version if known; empty in builds that call no BLAS
  std::string kernels = {};      ///< the processor for which OpenBLAS has its kernels, by its name; empty: unknown
  std::string own_kernels = {};  ///< those that OpenBLAS chose, if match_blas_to_processor() has exchanged them
  Threading threading = Threading::unknown;
  int threads = 0;  ///< at most used by one call; 0: unknown

  /// Whether its threads compete for cores with `kokkos_threads` threads of Kokkos.
  bool competes_with(int kokkos_threads) const {
    return threading == Threading::own && threads > 1 && kokkos_threads > 1;
  }
};

/// Asks the BLAS that is linked, by the functions of OpenBLAS. Not collective.
BlasLibrary blas_library();

const char* name(BlasLibrary::Threading threading);

/// OpenBLAS takes a processor that is newer than itself for an old one, and uses kernels with SSE instructions. Matrix
/// products then take up to five times as long. This makes it use its kernels for AVX-512 or AVX2, if the processor has
/// these. It does nothing with another BLAS, where OpenBLAS knows the processor, and where OPENBLAS_CORETYPE is set.
/// @pre no other thread calls BLAS, or reads the environment. Environment calls it before it starts Kokkos.
void match_blas_to_processor();

/// The kernels that OpenBLAS should use instead of those named `present`; empty: it keeps them.
/// @pre has_avx512 implies has_avx2
std::string better_blas_kernels(const std::string& present, bool has_avx2, bool has_avx512);

/// While it lives, calls of BLAS by this thread compute on this thread alone. Afterwards all is as before.
/// OpenBLAS on OpenMP has a number of threads for each calling thread, so other threads notice nothing. OpenBLAS with
/// its own threads has one number, which is 1 as long as any such object lives. With another BLAS it does nothing:
/// there the environment variable of that BLAS must say 1 (example: MKL_NUM_THREADS).
/// To be destroyed by the thread that made it.
class OneBlasThread {
 public:
  OneBlasThread();
  ~OneBlasThread();
  OneBlasThread(const OneBlasThread&) = delete;
  OneBlasThread& operator=(const OneBlasThread&) = delete;

 private:
  int openmp_threads_ = 0;  ///< of this thread before; 0: not changed
  bool counted_ = false;    ///< among the objects that keep OpenBLAS' own number at 1
};

}  // namespace aloni
