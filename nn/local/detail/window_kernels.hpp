#pragma once
// Maximum and mean over windows, forward and backward, for pooling and for resampling. A `Windows` type says where
// windows lie:
//
//   struct Windows {
//     Interval inputs(int s, Index o) const;             // in dimension s, the inputs in the window of output o
//     Interval outputs(int s, Index i) const;            // the outputs whose windows contain input i
//     Index extent(int s, Index o) const;                // of the window, absent inputs included
//     Index position(int s, Index o, Index i) const;     // of input i in the window of output o
//     double weight(int s, Index o, Index i) const;      // factor of input i in the sum of output o
//     Index divisor(const Window& inputs) const;         // of this sum; 0 makes the mean 0
//     using Share = …;                                   // share of dx(i) in dy(o): product over the dimensions
//     Share share(int s, Index o, Index i) const;
//     double part(Share share, double dy) const;
//   };
//   gather(exec, "aloni::nn::max_pool_forward", y, MaxForward<Windows, T, Exec>{windows, x, y, argmax, wants_argmax});
//   gather_channels(exec, label, [&]<bool dense>(std::bool_constant<dense>) {
//     return MeanForward<Windows, T, Exec, dense>{windows, x, y};  // faster where channels are contiguous
//   }, y, x);
//
// Each element of the result gathers from its sources: y from inputs, dx from outputs. There are no atomics, and the
// order of sums is fixed: depth, height, width. On a host an index of the loop is a row of results. Blocks of channels
// share the search for windows there, and fill vectors. On a device an index is one element.
#include <aloni/halo/stencil.hpp>
#include <aloni/nn/local/detail/choose_by_sign.hpp>
#include <aloni/nn/local/detail/execution.hpp>
#include <aloni/nn/local/local_types.hpp>

#include <cstdint>
#include <limits>
#include <type_traits>

namespace aloni::nn::local::detail {

using Interval = halo::Range;

KOKKOS_INLINE_FUNCTION Index length(const Interval& i) { return i.hi > i.lo ? i.hi - i.lo : 0; }

/// The sources of one pixel of the result.
struct Window {
  Interval d, h, w;
  KOKKOS_FUNCTION Index elements() const { return length(d) * length(h) * length(w); }
};

/// Channels that are computed together.
template <class Exec>
inline constexpr Index channel_block = runs_on_host<Exec> ? 16 : 1;

/// Channels of a pixel, from one of them on. `dense`: they are contiguous, so loops over them fill vectors.
template <class T, bool dense>
struct Channels {
  T* first;
  Index stride;
  KOKKOS_FUNCTION T& operator[](Index k) const { return first[dense ? k : k * stride]; }
};

template <bool dense, class View>
KOKKOS_INLINE_FUNCTION Channels<typename View::value_type, dense> channels_of(const View& v, Index n, Index d, Index h,
                                                                              Index w, Index c) {
  return {&v(n, d, h, w, c), static_cast<Index>(v.stride(4))};
}

/// Whether `candidate` replaces the maximum so far: larger, or the first NaN.
template <class T>
KOKKOS_INLINE_FUNCTION bool replaces(T candidate, T maximum) {
  return candidate > maximum || (candidate != candidate && maximum == maximum);
}

/// Of equal maxima the first wins. A window without inputs gives -infinity and position -1. With `relu` negative maxima
/// become 0, and maxima that are not positive have the position -1.
template <class Windows, class T, class Exec, bool dense = false>
struct MaxForward {
  using Compute = parameter_type_t<T>;
  using Link = Index;  ///< position of an input in the window, row-major
  static constexpr Index block = channel_block<Exec>;
  struct Sums {
    Compute maximum[block];
    std::int32_t where[block];
  };
  Windows windows;
  Tensor<const T, Exec> x;
  Tensor<T, Exec> y;
  Tensor<std::int32_t, Exec> argmax;
  bool wants_argmax;
  bool relu = false;

  KOKKOS_FUNCTION Interval sources(int s, Index o) const { return windows.inputs(s, o); }
  KOKKOS_FUNCTION static Link first_link() { return 0; }
  KOKKOS_FUNCTION Link link(Link outer, int s, Index o, Index i) const {
    return outer * windows.extent(s, o) + windows.position(s, o, i);
  }
  template <class Count>
  KOKKOS_FUNCTION void start(Sums& sums, Count count) const {
    constexpr Compute lowest = -std::numeric_limits<Compute>::infinity();
    for (Index k = 0; k < count; ++k) {
      sums.maximum[k] = lowest;
      sums.where[k] = -1;
    }
  }
  template <class Count>
  KOKKOS_FUNCTION void add(Sums& sums, Count count, Link position, Index n, Index d, Index h, Index w, Index c) const {
    const auto from = channels_of<dense>(x, n, d, h, w, c);
    for (Index k = 0; k < count; ++k) {
      const auto v = static_cast<Compute>(from[k]);
      const bool better = sums.where[k] < 0 || replaces(v, sums.maximum[k]);
      sums.maximum[k] = better ? v : sums.maximum[k];
      sums.where[k] = better ? static_cast<std::int32_t>(position) : sums.where[k];
    }
  }
  template <class Count>
  KOKKOS_FUNCTION void write(const Sums& sums, Count count, const Window&, Index n, Index d, Index h, Index w,
                             Index c) const {
    const auto is_clipped = [&](Index k) { return relu && sums.where[k] >= 0 && !(sums.maximum[k] > 0); };
    const auto to = channels_of<dense>(y, n, d, h, w, c);
    for (Index k = 0; k < count; ++k)
      to[k] = static_cast<T>(is_clipped(k) ? unless_negative(sums.maximum[k]) : sums.maximum[k]);
    if (!wants_argmax) return;
    const auto positions = channels_of<dense>(argmax, n, d, h, w, c);
    for (Index k = 0; k < count; ++k) positions[k] = is_clipped(k) ? -1 : sums.where[k];
  }
};

template <class Windows, class T, class Exec, bool dense = false>
struct MaxBackward {
  using Compute = parameter_type_t<T>;
  using Link = Index;  ///< position of this input in the window of an output
  static constexpr Index block = channel_block<Exec>;
  struct Sums {
    Compute value[block];
  };
  Windows windows;
  Tensor<const T, Exec> dy;
  Tensor<const std::int32_t, Exec> argmax;
  Tensor<T, Exec> dx;

  KOKKOS_FUNCTION Interval sources(int s, Index i) const { return windows.outputs(s, i); }
  KOKKOS_FUNCTION static Link first_link() { return 0; }
  KOKKOS_FUNCTION Link link(Link outer, int s, Index i, Index o) const {
    return outer * windows.extent(s, o) + windows.position(s, o, i);
  }
  template <class Count>
  KOKKOS_FUNCTION void start(Sums& sums, Count count) const {
    for (Index k = 0; k < count; ++k) sums.value[k] = 0;
  }
  template <class Count>
  KOKKOS_FUNCTION void add(Sums& sums, Count count, Link position, Index n, Index d, Index h, Index w, Index c) const {
    const auto from = channels_of<dense>(dy, n, d, h, w, c);
    const auto positions = channels_of<dense>(argmax, n, d, h, w, c);
    for (Index k = 0; k < count; ++k) {
      const auto g = static_cast<Compute>(from[k]);
      sums.value[k] += positions[k] == position ? g : Compute(0);
    }
  }
  template <class Count>
  KOKKOS_FUNCTION void write(const Sums& sums, Count count, const Window&, Index n, Index d, Index h, Index w,
                             Index c) const {
    const auto to = channels_of<dense>(dx, n, d, h, w, c);
    for (Index k = 0; k < count; ++k) to[k] = static_cast<T>(sums.value[k]);
  }
};

/// Sums are double. The sum is divided, not multiplied by a reciprocal: so the mean of equal numbers is this number.
template <class Windows, class T, class Exec, bool dense = false>
struct MeanForward {
  using Link = double;  ///< weight of an input
  static constexpr Index block = channel_block<Exec>;
  struct Sums {
    double value[block];
  };
  Windows windows;
  Tensor<const T, Exec> x;
  Tensor<T, Exec> y;

  KOKKOS_FUNCTION Interval sources(int s, Index o) const { return windows.inputs(s, o); }
  KOKKOS_FUNCTION static Link first_link() { return 1; }
  KOKKOS_FUNCTION Link link(Link outer, int s, Index o, Index i) const { return outer * windows.weight(s, o, i); }
  template <class Count>
  KOKKOS_FUNCTION void start(Sums& sums, Count count) const {
    for (Index k = 0; k < count; ++k) sums.value[k] = 0;
  }
  template <class Count>
  KOKKOS_FUNCTION void add(Sums& sums, Count count, Link weight, Index n, Index d, Index h, Index w, Index c) const {
    const auto from = channels_of<dense>(x, n, d, h, w, c);
    for (Index k = 0; k < count; ++k) sums.value[k] += weight * static_cast<double>(from[k]);
  }
  template <class Count>
  KOKKOS_FUNCTION void write(const Sums& sums, Count count, const Window& window, Index n, Index d, Index h, Index w,
                             Index c) const {
    // The sum over a window without inputs is 0: any divisor gives the mean 0.
    const Index inputs = windows.divisor(window);
    const double divisor = inputs > 0 ? static_cast<double>(inputs) : 1.0;
    const auto to = channels_of<dense>(y, n, d, h, w, c);
    for (Index k = 0; k < count; ++k) to[k] = static_cast<T>(sums.value[k] / divisor);
  }
};

template <class Windows, class T, class Exec, bool dense = false>
struct MeanBackward {
  using Link = typename Windows::Share;
  static constexpr Index block = channel_block<Exec>;
  struct Sums {
    double value[block];
  };
  Windows windows;
  Tensor<const T, Exec> dy;
  Tensor<T, Exec> dx;

  KOKKOS_FUNCTION Interval sources(int s, Index i) const { return windows.outputs(s, i); }
  KOKKOS_FUNCTION static Link first_link() { return 1; }
  KOKKOS_FUNCTION Link link(Link outer, int s, Index i, Index o) const { return outer * windows.share(s, o, i); }
  template <class Count>
  KOKKOS_FUNCTION void start(Sums& sums, Count count) const {
    for (Index k = 0; k < count; ++k) sums.value[k] = 0;
  }
  template <class Count>
  KOKKOS_FUNCTION void add(Sums& sums, Count count, Link share, Index n, Index d, Index h, Index w, Index c) const {
    const auto from = channels_of<dense>(dy, n, d, h, w, c);
    for (Index k = 0; k < count; ++k) sums.value[k] += windows.part(share, static_cast<double>(from[k]));
  }
  template <class Count>
  KOKKOS_FUNCTION void write(const Sums& sums, Count count, const Window&, Index n, Index d, Index h, Index w,
                             Index c) const {
    const auto to = channels_of<dense>(dx, n, d, h, w, c);
    for (Index k = 0; k < count; ++k) to[k] = static_cast<T>(sums.value[k]);
  }
};

/// The loop around one of the kernels above. `rows` are the results'.
template <class Kernel>
struct Gather {
  Rows rows;
  Kernel kernel;

  KOKKOS_FUNCTION void operator()(const Index i) const {
    Index n, d, h, w, c;
    if constexpr (Kernel::block == 1) {
      rows.element(i, n, d, h, w, c);
      channels({kernel.sources(0, d), kernel.sources(1, h), kernel.sources(2, w)}, n, d, h, w, c, whole_block);
    } else {
      rows.row(i, n, d, h);
      const Interval in_d = kernel.sources(0, d), in_h = kernel.sources(1, h);
      for (w = 0; w < rows.width; ++w) pixel(in_d, in_h, n, d, h, w);
    }
  }

  KOKKOS_FUNCTION void pixel(const Interval& in_d, const Interval& in_h, Index n, Index d, Index h, Index w) const {
    const Window window{in_d, in_h, kernel.sources(2, w)};
    Index c = 0;
    for (; c + Kernel::block <= rows.channels; c += Kernel::block) channels(window, n, d, h, w, c, whole_block);
    if (c < rows.channels) channels(window, n, d, h, w, c, rows.channels - c);
  }

 private:
  /// A block's size as a constant lets the compiler keep its sums in registers.
  static constexpr std::integral_constant<Index, Kernel::block> whole_block{};

  template <class Count>
  KOKKOS_FUNCTION void channels(const Window& from, Index n, Index d, Index h, Index w, Index c, Count count) const {
    typename Kernel::Sums sums;
    kernel.start(sums, count);
    for (Index sd = from.d.lo; sd < from.d.hi; ++sd) {
      const auto link_d = kernel.link(Kernel::first_link(), 0, d, sd);
      for (Index sh = from.h.lo; sh < from.h.hi; ++sh) {
        const auto link_h = kernel.link(link_d, 1, h, sh);
        for (Index sw = from.w.lo; sw < from.w.hi; ++sw) {
          const auto link = kernel.link(link_h, 2, w, sw);
          // GCC would fuse the channel loops of two sources and compute the second link once per channel: twice the
          // time of linear interpolation's backward pass.
          if constexpr (Kernel::block > 1) asm volatile("");
          kernel.add(sums, count, link, n, sd, sh, sw, c);
        }
      }
    }
    kernel.write(sums, count, from, n, d, h, w, c);
  }
};

template <class Exec, class Kernel, class View>
void gather(const Exec& exec, const char* label, const View& result, const Kernel& kernel) {
  const Rows rows = rows_of(result);
  if (rows.elements() == 0) return;
  Kokkos::parallel_for(label, Range<Exec>(exec, 0, Kernel::block == 1 ? rows.elements() : rows.rows()),
                       Gather<Kernel>{rows, kernel});
}

/// gather() with the kernel that make(std::bool_constant<dense>()) returns: dense if all views are so, on a host.
template <class Exec, class Make, class Result, class... Views>
void gather_channels(const Exec& exec, const char* label, const Make& make, const Result& result,
                     const Views&... others) {
  if constexpr (runs_on_host<Exec>) {
    if (has_contiguous_channels(result) && (has_contiguous_channels(others) && ...)) {
      gather(exec, label, result, make(std::true_type()));
      return;
    }
  }
  gather(exec, label, result, make(std::false_type()));
}

}  // namespace aloni::nn::local::detail
