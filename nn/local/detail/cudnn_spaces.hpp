#pragma once
// The execution spaces on which cuDNN computes, and the kind of their device.
#include <Kokkos_Core.hpp>

#include <type_traits>

namespace aloni::nn::local::detail {

#ifdef KOKKOS_ENABLE_CUDA
template <class Exec>
inline constexpr bool cudnn_runs_on = std::is_same_v<Exec, Kokkos::Cuda>;
#else
template <class Exec>
inline constexpr bool cudnn_runs_on = false;
#endif

/// 80 for 8.0, of the device of Kokkos; 0 for other spaces. @pre Kokkos is initialised
template <class Exec>
int compute_capability() {
#ifdef KOKKOS_ENABLE_CUDA
  if constexpr (cudnn_runs_on<Exec>) return 10 * Exec().cuda_device_prop().major + Exec().cuda_device_prop().minor;
#endif
  return 0;
}

}  // namespace aloni::nn::local::detail
