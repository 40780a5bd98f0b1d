#pragma once
// A place in a queue, for other queues to wait for.
//
//   QueueMark<Exec> made;            // once: making it may allocate
//   made.set(kernels);               // behind all that was submitted to `kernels`
//   made.await(communication, "aloni::example: what is sent is there");   // what is submitted to it from now on runs behind the mark
#include <aloni/core/queue.hpp>

#include <Kokkos_Core.hpp>

#ifdef KOKKOS_ENABLE_CUDA
#include <cuda_runtime_api.h>
#endif

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

namespace aloni {

/// Where kernels are complete when they are submitted, or execution spaces have no events of their own, await() makes the host wait for all
/// that is in the queue by then.
template <class Exec>
class QueueMark {
 public:
  void set(const Queue<Exec>& queue) { queue_ = queue; }
  /// @pre set() was called
  void await(const Queue<Exec>& queue, const std::string& reason) const {
    if (!(queue.space() == queue_->space())) queue_->fence(reason);
  }

 private:
  std::optional<Queue<Exec>> queue_;
};

#ifdef KOKKOS_ENABLE_CUDA
/// The device waits, the host goes on. All queues are of one device. Throws std::runtime_error with CUDA's reason.
template <>
class QueueMark<Kokkos::Cuda> {
 public:
  QueueMark() {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    event_ = std::shared_ptr<CUevent_st>(event, [](cudaEvent_t e) { (void)cudaEventDestroy(e); });
  }
  void set(const Queue<Kokkos::Cuda>& queue) {
    check(cudaEventRecord(event_.get(), queue.space().cuda_stream()), "cudaEventRecord");
  }
  void await(const Queue<Kokkos::Cuda>& queue, const std::string& /*reason*/) const {
    check(cudaStreamWaitEvent(queue.space().cuda_stream(), event_.get(), 0), "cudaStreamWaitEvent");
  }

 private:
  static void check(cudaError_t code, const char* call) {
    if (code != cudaSuccess)
      throw std::runtime_error(std::string("aloni::QueueMark: ") + call + ": " + cudaGetErrorString(code));
  }

  std::shared_ptr<CUevent_st> event_;
};
#endif

}  // namespace aloni
