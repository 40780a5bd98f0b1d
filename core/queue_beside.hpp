#pragma once
// A further queue for kernels that may run beside those of another queue.
//
//   const Queue<Exec> borders = queue_beside(queue, QueuePriority::high);
//   …                                     // kernels of both queues run at the same time, if the device has room
//
// Marks order the kernels of two queues (core/queue_mark.hpp).
#include <aloni/core/queue.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>

namespace aloni {

/// Blocks of a kernel with high priority start before waiting blocks of others. Running blocks go on.
enum class QueuePriority : std::uint8_t { normal, high };

/// For execution spaces without priorities: a partition of the instance, which ignores the priority.
template <class Exec>
struct QueueBeside {
  static Queue<Exec> make(const Queue<Exec>& queue, QueuePriority /*priority*/) {
    return Queue<Exec>(Kokkos::Experimental::partition_space(queue.space(), 1).front());
  }
};

/// A new queue on the device of `queue`. It exists as long as any copy of it. Not collective.
/// Throws std::runtime_error with the device's error text.
template <class Exec>
Queue<Exec> queue_beside(const Queue<Exec>& queue, QueuePriority priority) {
  return QueueBeside<Exec>::make(queue, priority);
}

}  // namespace aloni

// The specialisations of this build's devices.
#include <aloni/core/device_queues_beside.hpp>
