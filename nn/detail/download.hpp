#pragma once
// A part of a tensor on the host, dense. Private to nn.
#include <aloni/core/queue.hpp>
#include <aloni/nn/tensor.hpp>
#include <aloni/views/strided_copy.hpp>

#include <Kokkos_Core.hpp>

#include <vector>

namespace aloni::nn::detail {

/// The elements of `from`, channels last. On a device they pass through a dense copy, because a copy between memory
/// spaces has no strides. Waits for the queue. Not collective.
template <class T, class Exec>
void download(const Queue<Exec>& queue, const views::LocalView<T, typename Exec::memory_space>& from,
              std::vector<T>& into) {
  using Mem = typename Exec::memory_space;
  into.resize(from.size());
  if (into.empty()) return;
  const auto layout = dense_layout({static_cast<Index>(from.extent(0)), static_cast<Index>(from.extent(1)),
                                    static_cast<Index>(from.extent(2)), static_cast<Index>(from.extent(3)),
                                    static_cast<Index>(from.extent(4))});
  T* to = into.data();
  Kokkos::View<T*, Mem> staged;
  constexpr bool on_host = Kokkos::SpaceAccessibility<Exec, Kokkos::HostSpace>::accessible;
  if constexpr (!on_host) {
    staged = Kokkos::View<T*, Mem>(
        Kokkos::view_alloc(queue.space(), Kokkos::WithoutInitializing, "aloni::nn::staged_output"), into.size());
    to = staged.data();
  }
  const views::LocalView<T, Mem> dense(to, layout);
  views::strided_copy(queue.space(), "aloni::nn::download", from.data(), dense.data(), views::between(from, dense),
                      views::CopyMode::assign);
  if constexpr (!on_host) {
    using Host = Kokkos::View<T*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    Kokkos::deep_copy(queue.space(), Host(into.data(), into.size()), staged);
  }
  queue.fence("aloni::nn::download: the values are needed on the host");
}

}  // namespace aloni::nn::detail
