#pragma once
// A device made of host memory: emulated_cuda.cpp defines the functions of CUDA, cuBLAS and cuSOLVER that
// tasks/detail/cuda_kernels.cpp calls. Work of a stream runs when somebody waits for the stream, so a missing wait
// gives wrong numbers. Pointers of the host in place of those of the device are errors.
#include <cstddef>

namespace aloni::test {

struct EmulatedDevice {
  int devices = 1;
  std::size_t free_bytes = std::size_t{1} << 30;
  int calls_to_failure = -1;  ///< so many calls of kernels succeed, then one fails; -1: all succeed
  // --- what exists ---
  int allocations = 0, streams = 0, handles = 0;
  std::size_t bytes = 0;
};

/// Not to be changed while work runs.
EmulatedDevice& emulated_device();

}  // namespace aloni::test
