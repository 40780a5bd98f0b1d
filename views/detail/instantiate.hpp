#pragma once
// The execution spaces for which templates in .cpp files are compiled: the default one and the host's, when that is
// another. INSTANTIATE(T, Exec) is a macro of the including file, undefined again there.
#include <Kokkos_Core.hpp>

#if defined(KOKKOS_ENABLE_CUDA) || defined(KOKKOS_ENABLE_HIP) || defined(KOKKOS_ENABLE_SYCL)
#define ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE)       \
  INSTANTIATE(float, Kokkos::DefaultExecutionSpace)     \
  INSTANTIATE(double, Kokkos::DefaultExecutionSpace)    \
  INSTANTIATE(float, Kokkos::DefaultHostExecutionSpace) \
  INSTANTIATE(double, Kokkos::DefaultHostExecutionSpace)
#else
#define ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE)   \
  INSTANTIATE(float, Kokkos::DefaultExecutionSpace) \
  INSTANTIATE(double, Kokkos::DefaultExecutionSpace)
#endif
