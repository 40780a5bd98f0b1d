#pragma once
// Which BLAS the program calls, and on which threads it computes. The functions themselves: core/blas_functions.hpp.
//
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

  std::string name;  ///< with version and processor type if known; empty in builds that call no BLAS
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
