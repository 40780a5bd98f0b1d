#include <aloni/nn/local/detail/pool_kernels.hpp>

#include <aloni/nn/compiled_activations.hpp>
#include <aloni/nn/local/detail/vector_types.hpp>

#include <type_traits>

namespace aloni::nn::local::detail {

namespace {

/// The integer with the size of a floating-point type: vectors of positions have the lanes of the values.
template <class T>
using IntegerOf = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;

/// Number of pixels, of the first `pixels`, that have `reach` elements before the end of their row. Without a division:
/// rows are short, and nearly all of their pixels have them.
[[gnu::always_inline]] inline Index readable_pixels(Index pixels, Index elements, Index pixel, Index reach) {
  while (pixels > 0 && (pixels - 1) * pixel + reach > elements) --pixels;
  return pixels;
}

[[gnu::always_inline]] inline Index smaller(Index a, Index b) { return a < b ? a : b; }

/// The first `count` elements; the other lanes are 0.
template <class V, class T>
[[gnu::always_inline]] inline V first_lanes(const T* from, Index count) {
  T values[sizeof(V) / sizeof(T)] = {};
  for (Index i = 0; i < count; ++i) values[i] = from[i];
  return *reinterpret_cast<const V*>(values);
}

/// `taps`: the number of them if the compiler is to unroll their loop, otherwise 0. `vectors`: pixels that may read and
/// write whole vectors; the others take `inside` lanes.
template <class T, int lanes, int taps, bool relu>
[[gnu::always_inline]] inline void max_forward_channels(const MaxForwardArguments<T>& a, Index c, Index vectors,
                                                        Index inside) {
  using V = Vector<T, lanes>;
  using I = Vector<IntegerOf<T>, lanes>;
  using Narrow = Vector<std::int32_t, lanes>;
  const Index num_taps = taps > 0 ? taps : a.num_taps;
  const auto find = [&](const auto& read, V& maximum, I& where) __attribute__((always_inline)) {
    maximum = read(a.taps[0].x);
    where = I{} + a.taps[0].position;
#pragma GCC unroll 4
    for (Index t = 1; t < num_taps; ++t) {
      const V v = read(a.taps[t].x);
      const I better = ~(v <= maximum) & (maximum == maximum);  // a NaN is the maximum, the first one of them
      maximum = better ? v : maximum;
      where = better ? I{} + a.taps[t].position : where;
    }
    if constexpr (relu) {
      where = maximum > V{} ? where : I{} - 1;
      maximum = maximum < V{} ? V{} : maximum;  // a NaN stays, and -0
    }
  };
  V maximum;
  I where;
  for (Index p = 0; p < vectors; ++p) {
    const T* const x = a.x + p * a.x_pixel + c;
    find(
        [&](Index i) __attribute__((always_inline)) { return *reinterpret_cast<const V*>(x + i); }, maximum, where);
    *reinterpret_cast<V*>(a.y + p * a.y_pixel + c) = maximum;
    if (a.argmax != nullptr)
      *reinterpret_cast<Narrow*>(a.argmax + p * a.argmax_pixel + c) = __builtin_convertvector(where, Narrow);
  }
  for (Index p = vectors; p < a.pixels; ++p) {
    const T* const x = a.x + p * a.x_pixel + c;
    find(
        [&](Index i) __attribute__((always_inline)) { return first_lanes<V>(x + i, inside); }, maximum, where);
    for (Index i = 0; i < inside; ++i) a.y[p * a.y_pixel + c + i] = maximum[i];
    if (a.argmax != nullptr)
      for (Index i = 0; i < inside; ++i) a.argmax[p * a.argmax_pixel + c + i] = static_cast<std::int32_t>(where[i]);
  }
}

template <class T, int lanes, bool relu>
[[gnu::always_inline]] inline void max_forward(const MaxForwardArguments<T>& a) {
  Index reach = 0;  // of the furthest tap
  for (Index t = 0; t < a.num_taps; ++t) reach = a.taps[t].x > reach ? a.taps[t].x : reach;
  // The last, partly filled vector of each pixel comes first: later vectors overwrite the lanes that it writes into the
  // next pixel. In rows with gaps between pixels this is not allowed: the gaps are not part of the tensor.
  const bool gaps = a.y_pixel != a.channels || (a.argmax != nullptr && a.argmax_pixel != a.channels);
  for (Index c = (a.channels - 1) / lanes * lanes; c >= 0; c -= lanes) {
    Index vectors = a.pixels;
    if (c + lanes > a.channels) {
      vectors = readable_pixels(gaps ? 0 : a.pixels, a.y_end - a.y, a.y_pixel, c + lanes);
      vectors = readable_pixels(vectors, a.x_end - a.x, a.x_pixel, reach + c + lanes);
    }
    const Index inside = smaller(lanes, a.channels - c);
    if (a.num_taps == 4)
      max_forward_channels<T, lanes, 4, relu>(a, c, vectors, inside);
    else
      max_forward_channels<T, lanes, 0, relu>(a, c, vectors, inside);
  }
}

/// The pixels of max_backward and max_backward_disjoint that may read and write a whole vector from channel c on.
/// `reach`: of the gradient of a window, behind its first pixel.
template <class T, int lanes>
[[gnu::always_inline]] inline Index vectors_backward(const MaxBackwardArguments<T>& a, Index c, Index reach) {
  if (c + lanes <= a.channels) return a.pixels;
  Index vectors = readable_pixels(a.dense ? a.pixels : 0, a.dx_end - a.dx, a.dx_stride, reach + c + lanes);
  vectors = readable_pixels(vectors, a.dy_end - a.dy, a.dy_pixel, c + lanes);
  return readable_pixels(vectors, a.argmax_end - a.argmax, a.argmax_pixel, c + lanes);
}

/// Of windows that may overlap: adds to the gradient.
template <class T, int lanes>
[[gnu::always_inline]] inline void max_backward(const MaxBackwardArguments<T>& a) {
  using V = Vector<T, lanes>;
  using I = Vector<IntegerOf<T>, lanes>;
  using Narrow = Vector<std::int32_t, lanes>;
  I lane;
  for (int i = 0; i < lanes; ++i) lane[i] = i;
  const I position = I{} + a.position;
  for (Index c = 0; c < a.channels; c += lanes) {
    const Index vectors = vectors_backward<T, lanes>(a, c, 0), inside = smaller(lanes, a.channels - c);
    // Lanes beyond the channels add zero to the next pixel.
    const I is_inside = lane < I{} + static_cast<IntegerOf<T>>(inside);
    for (Index p = 0; p < vectors; ++p) {
      const I here = __builtin_convertvector(*reinterpret_cast<const Narrow*>(a.argmax + p * a.argmax_pixel + c), I);
      const V dy = *reinterpret_cast<const V*>(a.dy + p * a.dy_pixel + c);
      *reinterpret_cast<V*>(a.dx + p * a.dx_stride + c) += ((here == position) & is_inside) ? dy : V{};
    }
    for (Index p = vectors; p < a.pixels; ++p)
      for (Index i = c; i < c + inside; ++i) {
        a.dx[p * a.dx_stride + i] += a.argmax[p * a.argmax_pixel + i] == a.position ? a.dy[p * a.dy_pixel + i] : T(0);
      }
  }
}

/// Of `columns` ≥ 1 neighbouring columns of windows that do not overlap: sets the gradient.
template <class T, int lanes>
[[gnu::always_inline]] inline void max_backward_disjoint(const MaxBackwardArguments<T>& a) {
  using V = Vector<T, lanes>;
  using I = Vector<IntegerOf<T>, lanes>;
  using Narrow = Vector<std::int32_t, lanes>;
  // Partly filled vectors come first, as in the forward pass.
  for (Index c = (a.channels - 1) / lanes * lanes; c >= 0; c -= lanes) {
    const Index vectors = vectors_backward<T, lanes>(a, c, (a.columns - 1) * a.dx_pixel);
    const Index inside = smaller(lanes, a.channels - c);
    for (Index p = 0; p < a.pixels; ++p) {
      const bool whole = p < vectors;
      const auto* const argmax = a.argmax + p * a.argmax_pixel + c;
      const T* const from = a.dy + p * a.dy_pixel + c;
      const Narrow narrow = whole ? *reinterpret_cast<const Narrow*>(argmax) : first_lanes<Narrow>(argmax, inside);
      const I here = __builtin_convertvector(narrow, I);
      // -0 becomes +0, as in sums.
      const V dy = V{} + (whole ? *reinterpret_cast<const V*>(from) : first_lanes<V>(from, inside));
      T* dx = a.dx + p * a.dx_stride + c;
      for (Index k = 0; k < a.columns; ++k, dx += a.dx_pixel) {
        const V gradient = here == I{} + static_cast<IntegerOf<T>>(a.position + k) ? dy : V{};
        if (whole)
          *reinterpret_cast<V*>(dx) = gradient;
        else
          for (Index i = 0; i < inside; ++i) dx[i] = gradient[i];
      }
    }
  }
}

template <class T>
void max_forward_baseline(const MaxForwardArguments<T>& a) {
  a.relu ? max_forward<T, 16 / sizeof(T), true>(a) : max_forward<T, 16 / sizeof(T), false>(a);
}
template <class T>
void max_backward_baseline(const MaxBackwardArguments<T>& a) {
  max_backward<T, 16 / sizeof(T)>(a);
}
template <class T>
void max_backward_disjoint_baseline(const MaxBackwardArguments<T>& a) {
  max_backward_disjoint<T, 16 / sizeof(T)>(a);
}
template <class T>
constexpr PoolKernels<T> baseline{max_forward_baseline<T>, max_backward_baseline<T>, max_backward_disjoint_baseline<T>};

#if defined(__x86_64__)
template <class T>
__attribute__((target("avx2"))) void max_forward_avx2(const MaxForwardArguments<T>& a) {
  a.relu ? max_forward<T, 32 / sizeof(T), true>(a) : max_forward<T, 32 / sizeof(T), false>(a);
}
template <class T>
__attribute__((target("avx2"))) void max_backward_avx2(const MaxBackwardArguments<T>& a) {
  max_backward<T, 32 / sizeof(T)>(a);
}
template <class T>
__attribute__((target("avx2"))) void max_backward_disjoint_avx2(const MaxBackwardArguments<T>& a) {
  max_backward_disjoint<T, 32 / sizeof(T)>(a);
}
template <class T>
constexpr PoolKernels<T> avx2{max_forward_avx2<T>, max_backward_avx2<T>, max_backward_disjoint_avx2<T>};
#endif

}  // namespace

template <class T>
const PoolKernels<T>& pool_kernels() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) return avx2<T>;
#endif
  return baseline<T>;
}

template const PoolKernels<float>& pool_kernels<float>();
ALONI_WITH_DOUBLE(template const PoolKernels<double>& pool_kernels<double>();)

}  // namespace aloni::nn::local::detail
