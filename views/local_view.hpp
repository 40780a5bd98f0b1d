#pragma once
// A tensor as local kernels see it: five dimensions in the order of Dim (sample, depth, height, width, channel), any
// strides, no ownership.
#include <Kokkos_Core.hpp>

namespace aloni::views {

template <class T, class MemorySpace = Kokkos::DefaultExecutionSpace::memory_space>
using LocalView = Kokkos::View<T*****, Kokkos::LayoutStride, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// Whether the elements of the view fill one block of memory, channels last (LayoutRight without gaps).
template <class View>
bool is_dense(const View& v) {
  std::size_t expected = 1;
  for (int i = static_cast<int>(View::rank()) - 1; i >= 0; --i) {
    if (v.extent(i) != 1 && v.stride(i) != expected) return false;
    expected *= v.extent(i);
  }
  return true;
}

}  // namespace aloni::views
