#pragma once
// QueueMark for CUDA streams: a CUDA event. Include queue_mark.hpp instead; it includes this file in builds with CUDA.
#include <aloni/core/queue.hpp>

#include <cuda_runtime_api.h>
#include <Kokkos_Core.hpp>

#include <memory>
#include <stdexcept>
#include <string>

// nvcc from CUDA 12.9 on places members with [[no_unique_address]] differently on host and device. Kernels then get
// wrong Views of rank 1, without any error. unit_tests/core/test_view_layout.cpp looks at the Views themselves.
#if defined(__NVCC__) && !defined(KOKKOS_ENABLE_IMPL_VIEW_LEGACY) &&  \
    __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ * 10 >= 1290 && \
    defined(MDSPAN_IMPL_USE_ATTRIBUTE_NO_UNIQUE_ADDRESS) && !defined(MDSPAN_IMPL_USE_FAKE_ATTRIBUTE_NO_UNIQUE_ADDRESS)
#error "aloni: kernels of this nvcc get wrong Views of this Kokkos; docs/building.md, CUDA, names versions that work"
#endif

namespace aloni {

template <class Exec>
class QueueMark;

/// await() makes the device wait; the host goes on. @pre all queues belong to one device. Throws std::runtime_error
/// with CUDA's error text.
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
  void wait(const std::string& /*reason*/) const { check(cudaEventSynchronize(event_.get()), "cudaEventSynchronize"); }

 private:
  static void check(cudaError_t code, const char* call) {
    if (code != cudaSuccess)
      throw std::runtime_error(std::string("aloni::QueueMark: ") + call + ": " + cudaGetErrorString(code));
  }

  std::shared_ptr<CUevent_st> event_;
};

}  // namespace aloni
