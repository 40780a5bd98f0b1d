#pragma once
// A place in a queue, for other queues to wait for.
//
//   QueueMark<Exec> made;            // once: making it may allocate
//   made.set(kernels);               // behind all that was submitted to `kernels`
//   made.await(communication, "aloni::example: what is sent is there");   // what is submitted to it from now on runs behind the mark
#include <aloni/core/queue.hpp>

#include <Kokkos_Core.hpp>

#include <optional>
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

}  // namespace aloni

#ifdef KOKKOS_ENABLE_CUDA
#include <aloni/core/cuda_queue_mark.hpp>
#endif
