#pragma once
// Which BLAS the program's matrix products call, and on which threads it computes.
//
//   const BlasLibrary blas = blas_library();
//   if (blas.competes_with(Exec().concurrency())) …   // slow: two pools of threads share the cores
#include <string>

namespace aloni::nn::local {

struct BlasLibrary {
  enum class Threading {
    unknown,     ///< a BLAS that does not say
    sequential,  ///< computes on the calling thread
    openmp,      ///< computes on the threads of OpenMP, which are those of Kokkos::OpenMP
    own          ///< has a pool of threads of its own
  };

  std::string name;  ///< with version and processor type if known; empty in builds without Kokkos Kernels
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

}  // namespace aloni::nn::local
