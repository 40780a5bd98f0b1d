#pragma once
// The stream behind an execution space instance, for libraries that know nothing of Kokkos.

namespace aloni::comm::detail {

/// Null where there is none.
template <class Exec>
void* native_stream(const Exec& exec) {
  if constexpr (requires { exec.cuda_stream(); }) {
    return exec.cuda_stream();
  } else {
    return nullptr;
  }
}

}  // namespace aloni::comm::detail
