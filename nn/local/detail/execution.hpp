#pragma once
// How loops over a tensor are split for an execution space: on a host, one index per row (sample, depth, height), whose inner
// loop over contiguous width × channels the compiler vectorises; on a device, one index per element.
#include <aloni/nn/local/local_types.hpp>
#include <aloni/views/detail/instantiate.hpp>

#include <Kokkos_Core.hpp>

#include <string>
#include <type_traits>

namespace aloni::nn::local::detail {

template <class Exec>
inline constexpr bool runs_on_host =
    Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible&&
        std::is_same_v<typename Exec::memory_space, Kokkos::HostSpace>;

template <class Exec>
using Range = Kokkos::RangePolicy<Exec, Kokkos::IndexType<Index>>;

/// The extents of a tensor and the way from a row's number to its indices.
struct Rows {
  Index samples, depth, height, width, channels;
  KOKKOS_FUNCTION Index rows() const { return samples * depth * height; }
  KOKKOS_FUNCTION Index elements() const { return rows() * width * channels; }
  KOKKOS_FUNCTION void row(Index r, Index& n, Index& d, Index& h) const {
    h = r % height;
    r /= height;
    d = r % depth;
    n = r / depth;
  }
  KOKKOS_FUNCTION void element(Index i, Index& n, Index& d, Index& h, Index& w, Index& c) const {
    c = i % channels;
    i /= channels;
    w = i % width;
    row(i / width, n, d, h);
  }
};

template <class View>
Rows rows_of(const View& v) {
  return {static_cast<Index>(v.extent(0)), static_cast<Index>(v.extent(1)), static_cast<Index>(v.extent(2)),
          static_cast<Index>(v.extent(3)), static_cast<Index>(v.extent(4))};
}

/// Whether the elements of each row lie side by side.
template <class View>
bool has_contiguous_rows(const View& v) {
  return (v.extent(4) <= 1 || v.stride(4) == 1) && (v.extent(3) <= 1 || v.stride(3) == v.extent(4));
}

template <class View>
bool has_contiguous_channels(const View& v) {
  return v.extent(4) <= 1 || v.stride(4) == 1;
}

}  // namespace aloni::nn::local::detail
