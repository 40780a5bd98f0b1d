#pragma once
// Neighbouring elements that a thread of a device reads or writes at once, 16 bytes at most.
#include <aloni/core/index.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace aloni::nn::local::detail {

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T value[N];
};

inline constexpr std::size_t bytes_of_pack = 16;
/// The most elements in a pack of each of the types.
template <class... T>
inline constexpr int most_in_pack = static_cast<int>(bytes_of_pack / std::max({sizeof(T)...}));

/// @pre is_aligned_for<N>(from)
template <int N, class T>
KOKKOS_INLINE_FUNCTION auto load_pack(const T* from) {
  return *reinterpret_cast<const Pack<std::remove_const_t<T>, N>*>(from);
}
/// Words of 8, 4 or 2 bytes: nvcc 13 writes the elements of a pack one by one. @pre is_aligned_for<N>(to)
template <class T, int N>
KOKKOS_INLINE_FUNCTION void store_pack(T* to, const Pack<T, N>& pack) {
  constexpr std::size_t bytes = sizeof(pack), word = bytes < 8 ? bytes : 8;
  using Word =
      std::conditional_t<word == 8, std::uint64_t, std::conditional_t<word == 4, std::uint32_t, std::uint16_t>>;
  struct alignas(bytes) Words {
    Word value[bytes / word];
  };
  struct __attribute__((may_alias)) Target : Words {};
  *reinterpret_cast<Target*>(to) = Target{Kokkos::bit_cast<Words>(pack)};
}

template <int N, class T>
bool is_aligned_for(const T* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % (sizeof(T) * N) == 0;
}

/// Whether the channels of a tensor are packs of N elements at each pixel. A view without memory is not read.
template <int N, class View>
bool has_packs(const View& view) {
  if (view.data() == nullptr) return true;
  const auto extent = [&](int d) { return static_cast<Index>(view.extent(static_cast<std::size_t>(d))); };
  const auto stride = [&](int d) { return static_cast<Index>(view.stride(static_cast<std::size_t>(d))); };
  if (extent(4) % N != 0 || (extent(4) > 1 && stride(4) != 1) || !is_aligned_for<N>(view.data())) return false;
  for (int d = 0; d < 4; ++d)
    if (extent(d) > 1 && stride(d) % N != 0) return false;
  return true;
}

}  // namespace aloni::nn::local::detail
