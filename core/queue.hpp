#pragma once
// A queue of kernels: an execution space instance with the rules that aloni keeps. Kernels submitted to one queue run
// in order; kernels of two queues may run at the same time. On Kokkos::Serial and OpenMP kernels are complete when the
// submission returns; code must not rely on it.
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
  /// Wraps an instance that the caller made (a stream, a partition); lifetime as Kokkos counts it.
  explicit Queue(Exec space) : space_(std::move(space)) {}

  const Exec& space() const { return space_; }

  /// Waits for this queue only, never for the whole device. @pre `reason` starts with "aloni::" and says why the wait
  /// is needed; Kokkos Tools shows it.
  void fence(const std::string& reason) const { space_.fence(reason); }

 private:
  Exec space_{};
};

}  // namespace aloni
