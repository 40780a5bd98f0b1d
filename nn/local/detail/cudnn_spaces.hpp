#pragma once
// The execution spaces on which cuDNN computes.
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

}  // namespace aloni::nn::local::detail
