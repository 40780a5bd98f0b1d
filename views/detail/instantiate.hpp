#pragma once
// The execution spaces for which .cpp files instantiate templates: the default space, and the host's if it differs. The
// including file defines the macro INSTANTIATE(T, Exec) or INSTANTIATE(Exec), and undefines it afterwards.
#include <Kokkos_Core.hpp>

#if defined(KOKKOS_ENABLE_CUDA) || defined(KOKKOS_ENABLE_HIP) || defined(KOKKOS_ENABLE_SYCL)
#define ALONI_INSTANTIATE_SPACES(INSTANTIATE, ...)                      \
  INSTANTIATE(__VA_ARGS__ __VA_OPT__(, ) Kokkos::DefaultExecutionSpace) \
  INSTANTIATE(__VA_ARGS__ __VA_OPT__(, ) Kokkos::DefaultHostExecutionSpace)
#else
#define ALONI_INSTANTIATE_SPACES(INSTANTIATE, ...) INSTANTIATE(__VA_ARGS__ __VA_OPT__(, ) Kokkos::DefaultExecutionSpace)
#endif

/// For the element types that kernels compute with: float and double. Views may also hold integers.
#define ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE) \
  ALONI_INSTANTIATE_SPACES(INSTANTIATE, float)    \
  ALONI_INSTANTIATE_SPACES(INSTANTIATE, double)
