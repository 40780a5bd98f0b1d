#pragma once
// Loops over all cells of a five-dimensional tensor, written once for hosts and devices.
//
//   for_each_element(exec, "aloni::example: scale", extents,
//                    KOKKOS_LAMBDA(Index n, Index d, Index h, Index w, Index c) { y(n, d, h, w, c) *= 2; });
//
// On a host space threads share the rows (sample, depth, height). The innermost loop runs over channels, or over the
// width if there is a single channel, so that the compiler can vectorise it. On a device every cell is one work item,
// channels fastest.
#include <aloni/core/index.hpp>
#include <aloni/views/extents.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <string>
#include <type_traits>

namespace aloni::views {

template <class View>
Extents extents_of_view(const View& v) {
  Extents e;
  for (std::size_t i = 0; i < num_dims; ++i) e.values[i] = static_cast<Index>(v.extent(i));
  return e;
}

namespace detail {

template <class F>
struct HostRow {
  F f;
  Index depth, height, width, channels;

  KOKKOS_FUNCTION void operator()(Index row) const {
    const Index h = row % height, d = row / height % depth, n = row / (height * depth);
    if (channels == 1) {
      for (Index w = 0; w < width; ++w) f(n, d, h, w, Index{0});
    } else {
      for (Index w = 0; w < width; ++w)
        for (Index c = 0; c < channels; ++c) f(n, d, h, w, c);
    }
  }
};

template <class F>
struct DeviceElement {
  F f;
  Index depth, height, width, channels;

  KOKKOS_FUNCTION void operator()(Index i) const {
    const Index c = i % channels, w = i / channels % width, row = i / (channels * width);
    f(row / (height * depth), row / height % depth, row % height, w, c);
  }
};

}  // namespace detail

/// Calls `f(n, d, h, w, c)` once for each cell below the extents, in no fixed order. Asynchronous on `exec`.
/// @pre `f` is callable on `exec` (KOKKOS_LAMBDA), and no call depends on the result of another call
template <class Exec, class F>
void for_each_element(const Exec& exec, const std::string& label, const Extents& extents, const F& f) {
  if (extents.size() == 0) return;
  const auto& e = extents.values;
  using Range = Kokkos::RangePolicy<Exec, Kokkos::IndexType<Index>>;
  if constexpr (std::is_same_v<typename Exec::memory_space, Kokkos::HostSpace>)
    Kokkos::parallel_for(label, Range(exec, 0, e[0] * e[1] * e[2]), detail::HostRow<F>{f, e[1], e[2], e[3], e[4]});
  else
    Kokkos::parallel_for(label, Range(exec, 0, extents.size()), detail::DeviceElement<F>{f, e[1], e[2], e[3], e[4]});
}

}  // namespace aloni::views
