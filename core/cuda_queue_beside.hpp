#pragma once
// QueueBeside for CUDA: a stream with a priority. Include queue_beside.hpp instead; builds with CUDA include this file
// there.
#include <aloni/core/queue.hpp>
#include <aloni/core/queue_beside.hpp>

#include <cuda_runtime_api.h>
#include <Kokkos_Core.hpp>

#include <stdexcept>
#include <string>

namespace aloni {

/// The stream does not wait for the legacy default stream, so that work on that stream never breaks a recording
/// (nn/detail/cuda_step_recording.hpp). Kokkos destroys it with the last copy of the instance.
template <>
struct QueueBeside<Kokkos::Cuda> {
  static Queue<Kokkos::Cuda> make(const Queue<Kokkos::Cuda>& queue, QueuePriority priority) {
    check(cudaSetDevice(queue.space().cuda_device()), "cudaSetDevice");
    int least = 0, greatest = 0;  // both are 0 on devices without priorities; a lower number is a higher priority
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    const int chosen = priority == QueuePriority::high ? greatest : least;
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, chosen), "cudaStreamCreateWithPriority");
    return Queue<Kokkos::Cuda>(Kokkos::Cuda(stream, Kokkos::Impl::ManageStream::yes));
  }

 private:
  static void check(cudaError_t code, const char* call) {
    if (code != cudaSuccess)
      throw std::runtime_error(std::string("aloni::queue_beside: ") + call + ": " + cudaGetErrorString(code));
  }
};

}  // namespace aloni
