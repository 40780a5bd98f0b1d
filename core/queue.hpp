#pragma once
// A queue of kernels: an execution space instance. Kernels of one queue run in order; kernels of two queues may run at
// the same time. On Kokkos::Serial and OpenMP a kernel is complete when its submission returns. Code must not
// rely on this.
#include <Kokkos_Core.hpp>

#include <string>
#include <utility>

namespace aloni {

template <class Exec = Kokkos::DefaultExecutionSpace>
class Queue {
 public:
  using execution_space = Exec;

  /// The default instance of the execution space.
  Queue() = default;
  /// Wraps an instance that the caller made (a stream, a partition). Kokkos counts its references.
  explicit Queue(Exec space) : space_(std::move(space)) {}

  const Exec& space() const { return space_; }

  /// Waits for this queue only, never for the whole device. `reason`: why the wait is needed; shown by Kokkos Tools.
  /// @pre `reason` starts with "aloni::"
  void fence(const std::string& reason) const { space_.fence(reason); }

 private:
  Exec space_{};
};

}  // namespace aloni
