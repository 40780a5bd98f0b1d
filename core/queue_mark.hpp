#pragma once
// A mark in a queue that other queues can wait for.
//
//   QueueMark<Exec> packed;          // once: the constructor may allocate
//   packed.set(kernels);             // after all kernels submitted to `kernels` so far
//   packed.await(communication, "aloni::example: the buffer is packed");
//                                    // kernels submitted to `communication` from now on run after the mark
//   packed.wait("aloni::example: the host reads the buffer");   // the host waits for the mark, not for the queue
#include <aloni/core/queue.hpp>

#include <Kokkos_Core.hpp>

#include <optional>
#include <string>

namespace aloni {

/// For execution spaces without events: await() blocks the host until the marked queue is empty. If both queues are the
/// same instance, it does nothing.
template <class Exec>
class QueueMark {
 public:
  void set(const Queue<Exec>& queue) { queue_ = queue; }
  /// @pre set() was called
  void await(const Queue<Exec>& queue, const std::string& reason) const {
    if (!(queue.space() == queue_->space())) queue_->fence(reason);
  }
  /// Blocks the host until the mark is reached; here until the marked queue is empty. @pre set() was called
  void wait(const std::string& reason) const { queue_->fence(reason); }

 private:
  std::optional<Queue<Exec>> queue_;
};

}  // namespace aloni

// The specialisations of this build's devices.
#include <aloni/core/device_queue_marks.hpp>
