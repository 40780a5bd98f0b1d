#pragma once
// The native stream of an execution space instance, for libraries that do not use Kokkos.

namespace aloni::comm::detail {

/// The CUDA stream of `exec`; null for other execution spaces.
template <class Exec>
void* native_stream(const Exec& exec) {
  if constexpr (requires { exec.cuda_stream(); }) {
    return exec.cuda_stream();
  } else {
    return nullptr;
  }
}

}  // namespace aloni::comm::detail
