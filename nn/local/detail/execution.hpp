#pragma once
// How loops over a tensor are shared out in an execution space. On a host, one index is a row (sample, depth, height),
// and the compiler vectorises the inner loop over width × channels. On a device, one index is one element.
#include <aloni/nn/local/detail/activations.hpp>
#include <aloni/nn/local/local_types.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <string>
#include <type_traits>

namespace aloni::nn::local::detail {

template <class Exec>
inline constexpr bool runs_on_host =
    Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible&&
        std::is_same_v<typename Exec::memory_space, Kokkos::HostSpace>;

/// For light kernels, so that a functor reaches the device as arguments whatever its size. Kokkos would copy one above
/// 512 bytes into constant memory of the device: the host waits for the last kernel that used it, and a graph of a
/// device cannot repeat it (nn/step_recorder.hpp).
template <class Exec>
using Range =
    Kokkos::RangePolicy<Exec, Kokkos::IndexType<Index>, Kokkos::Experimental::WorkItemProperty::HintLightWeight_t>;

/// For teams. Kokkos allocates slow scratch memory in each call that asks for none, and keeps it from one that asks for
/// some. A graph of a device could not repeat an allocation.
template <class Policy>
Policy with_scratch(Policy policy) {
  policy.set_scratch_size(1, Kokkos::PerTeam(static_cast<int>(sizeof(double))));
  return policy;
}

/// The extents of a tensor, and the indices of its rows and elements by number.
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
  /// Below 2³¹ elements it divides 32 bits. A device divides 64 bits in a hundred instructions, 32 bits in twenty.
  KOKKOS_FUNCTION void element(Index i, Index& n, Index& d, Index& h, Index& w, Index& c) const {
    if (elements() <= 0x7fffffff)
      split_element<std::uint32_t>(i, n, d, h, w, c);
    else
      split_element<Index>(i, n, d, h, w, c);
  }

 private:
  template <class Number>
  KOKKOS_FUNCTION void split_element(Index index, Index& n, Index& d, Index& h, Index& w, Index& c) const {
    auto i = static_cast<Number>(index);
    const auto next = [&](Index extent) {
      const auto divisor = static_cast<Number>(extent);
      const Number quotient = i / divisor, rest = i - quotient * divisor;
      i = quotient;
      return static_cast<Index>(rest);
    };
    c = next(channels);
    w = next(width);
    h = next(height);
    d = next(depth);
    n = static_cast<Index>(i);
  }
};

template <class View>
Rows rows_of(const View& v) {
  return {static_cast<Index>(v.extent(0)), static_cast<Index>(v.extent(1)), static_cast<Index>(v.extent(2)),
          static_cast<Index>(v.extent(3)), static_cast<Index>(v.extent(4))};
}

/// Calls kernel.element(n, d, h, w, c) for each element of kernel.rows: one index per row on a host, per element on a
/// device.
template <class Exec, class Kernel>
struct EachElement {
  Kernel kernel;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    Index n, d, h, w, c;
    if constexpr (runs_on_host<Exec>) {
      kernel.rows.row(i, n, d, h);
      for (w = 0; w < kernel.rows.width; ++w)
        for (c = 0; c < kernel.rows.channels; ++c) kernel.element(n, d, h, w, c);
    } else {
      kernel.rows.element(i, n, d, h, w, c);
      kernel.element(n, d, h, w, c);
    }
  }
};

template <class Exec, class Kernel>
void for_each_element(const Exec& exec, const char* label, const Kernel& kernel) {
  if (kernel.rows.elements() == 0) return;
  Kokkos::parallel_for(label, Range<Exec>(exec, 0, runs_on_host<Exec> ? kernel.rows.rows() : kernel.rows.elements()),
                       EachElement<Exec, Kernel>{kernel});
}

/// Whether the elements of each row are contiguous.
template <class View>
bool has_contiguous_rows(const View& v) {
  return (v.extent(4) <= 1 || v.stride(4) == 1) && (v.extent(3) <= 1 || v.stride(3) == v.extent(4));
}

template <class View>
bool has_contiguous_channels(const View& v) {
  return v.extent(4) <= 1 || v.stride(4) == 1;
}

}  // namespace aloni::nn::local::detail
