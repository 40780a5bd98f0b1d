#pragma once
// The execution spaces for which templates in .cpp files are compiled: the default one, and the host's if it is
// another. INSTANTIATE(T, Exec), or INSTANTIATE(Exec), is a macro of the including file, undefined again there.
#include <Kokkos_Core.hpp>

#if defined(KOKKOS_ENABLE_CUDA) || defined(KOKKOS_ENABLE_HIP) || defined(KOKKOS_ENABLE_SYCL)
#define ALONI_INSTANTIATE_SPACES(INSTANTIATE, ...)                      \
  INSTANTIATE(__VA_ARGS__ __VA_OPT__(, ) Kokkos::DefaultExecutionSpace) \
  INSTANTIATE(__VA_ARGS__ __VA_OPT__(, ) Kokkos::DefaultHostExecutionSpace)
#else
#define ALONI_INSTANTIATE_SPACES(INSTANTIATE, ...) INSTANTIATE(__VA_ARGS__ __VA_OPT__(, ) Kokkos::DefaultExecutionSpace)
#endif

/// For numbers that kernels compute with: float and double on each space, one further type on the host only. Views may
/// hold integers too.
#define ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE, ...) \
  ALONI_INSTANTIATE_SPACES(INSTANTIATE, float)         \
  ALONI_INSTANTIATE_SPACES(INSTANTIATE, double)        \
  __VA_OPT__(INSTANTIATE(__VA_ARGS__, Kokkos::DefaultHostExecutionSpace))
