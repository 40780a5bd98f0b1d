#pragma once
// How code that orders kernels by SharedEvents submits kernels and waits, for every execution space.
//
//   const EventQueue<Exec> events(comm);
//   events.submit(exec, [=] { Kokkos::parallel_for(…, exec, …); });      // at once, on all spaces but that of tests
//   if (events) event->record(events.stream(exec));
//   events.fence(exec, "aloni::example: the host reads");
#include <aloni/core/comm/device/device_sharing.hpp>
#include <aloni/core/comm/device/native_stream.hpp>
#include <aloni/core/comm/shared_events.hpp>

#include <Kokkos_Core.hpp>

#include <functional>
#include <string>
#include <utility>

namespace aloni::comm {

template <class Exec>
class EventQueue {
 public:
  EventQueue() = default;
  /// Not collective.
  explicit EventQueue(const Communicator& comm) {
    constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible;
    SharedEvents events(comm);
    if (!on_host || events.defers()) events_ = std::move(events);
  }

  /// Whether kernels of this space can be ordered by events. False on hosts: a kernel is complete when its submission
  /// returns, and the host has nothing to wait for. Equal on all ranks.
  explicit operator bool() const { return static_cast<bool>(events_); }
  const SharedEvents& events() const { return events_; }
  static void* stream(const Exec& exec) { return detail::native_stream(exec); }

  /// Calls `kernels`, which submits to an instance of Exec.
  template <class F>
  void submit(const Exec& exec, F&& kernels) const {
    if (events_.defers()) {
      events_.submit(stream(exec), std::function<void()>(std::forward<F>(kernels)));
    } else {
      kernels();
    }
  }
  /// Waits for `exec`. Throws PeerFailed if a rank fails meanwhile, because `exec` may wait for its event.
  void fence(const Exec& exec, const std::string& reason) const {
    if (events_) events_.wait(stream(exec));
    exec.fence(reason);
  }

 private:
  SharedEvents events_;
};

}  // namespace aloni::comm
