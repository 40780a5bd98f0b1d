#pragma once
// A device made of host memory: emulated_cuda.cpp defines the functions of CUDA, cuBLAS and cuSOLVER that
// tasks/detail/cuda_kernels.cpp calls. Work of a stream runs as late as possible: when somebody waits for the stream,
// or another stream waits for its event. So a missing wait gives wrong numbers. With a seed, work also runs early, some
// of it after each call, on streams in random order. Pointers of the host in place of those of the device are errors.
#include <cstddef>
#include <cstdint>

namespace aloni::test {

struct EmulatedDevice {
  int devices = 1;
  std::size_t free_bytes = std::size_t{1} << 30;
  int calls_to_failure = -1;             ///< so many calls of kernels succeed, then one fails; -1: all succeed
  int copies_to_failure = -1;            ///< the same for copies of page-locked memory
  bool late_failure = false;             ///< copies of page-locked memory to the host fail when they run
  std::uint64_t early_seed = 0;          ///< 0: all work as late as possible
  bool ignore_waits_of_kernels = false;  ///< of streams with kernels for events
  bool ignore_waits_of_copies = false;   ///< of streams without kernels for events
  // --- what exists ---
  int allocations = 0, streams = 0, handles = 0, events = 0, page_locks = 0;
  std::size_t bytes = 0;
  // --- what was done ---
  std::size_t bytes_in = 0, bytes_out = 0;  ///< copies of page-locked memory
};

/// Not to be changed while work runs.
EmulatedDevice& emulated_device();

}  // namespace aloni::test
