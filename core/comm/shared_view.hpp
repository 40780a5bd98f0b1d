#pragma once
// Views in memory that the other ranks of a node can reach directly. For tensors in it, halo exchange and
// redistribution within the node are one strided copy from View to View.
//
//   auto [data, memory] = comm::allocate_shared<float>(comm, exec, "aloni::example::data", n);   // `memory` owns it
//   views::DistributedView<float, 2> x(comm, exec, "x", distribution, ghosts);                   // uses shared memory
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/index.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace aloni::comm {

/// Whether the elements of new memory are set to zero. Pages that are never touched take no memory.
enum class SharedViewContents : std::uint8_t { zeros, undefined };

/// Returns a View of `elements` zeros, set on `exec`, or of undefined values, and its owner. The View lies in
/// comm.shared_memory(), or in comm.device_memory(), and is valid as long as the owner lives. Where a device has no
/// such memory, it is an ordinary View and the owner is null. Not collective. Throws InvalidArgument above max_bytes,
/// CommunicationError if the system has no memory.
template <class T, class Exec>
std::pair<Kokkos::View<T*, typename Exec::memory_space>, std::shared_ptr<void>> allocate_shared(
    const Communicator& comm, const Exec& exec, const std::string& label, std::size_t elements,
    SharedViewContents contents = SharedViewContents::zeros) {
  using View = Kokkos::View<T*, typename Exec::memory_space>;
  constexpr std::size_t most = static_cast<std::size_t>(max_bytes) / sizeof(T);
  if (elements > most)
    throw InvalidArgument("aloni::comm::allocate_shared, " + label, "elements", std::to_string(elements),
                          "at most " + std::to_string(most) + " elements of " + std::to_string(sizeof(T)) + " bytes");
  const auto allocate_in = [&](auto heap, const Exec& queue) -> std::pair<View, std::shared_ptr<void>> {
    const std::size_t bytes = std::max<std::size_t>(elements, 1) * sizeof(T);
    std::shared_ptr<void> memory(heap->allocate(bytes, 64), [heap, bytes](void* p) { heap->deallocate(p, bytes, 64); });
    const View view(static_cast<T*>(memory.get()), elements);
    if (contents == SharedViewContents::zeros) Kokkos::deep_copy(queue, view, T{0});
    return {view, std::move(memory)};
  };
  if constexpr (std::is_same_v<typename Exec::memory_space, Kokkos::HostSpace>) {
    return allocate_in(comm.shared_memory(), exec);
  } else {
    if (auto heap = comm.device_memory()) return allocate_in(std::move(heap), exec);
    return {View(Kokkos::view_alloc(exec, label), elements), nullptr};
  }
}

}  // namespace aloni::comm
