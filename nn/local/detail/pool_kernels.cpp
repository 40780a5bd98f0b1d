#include <aloni/nn/local/detail/pool_kernels.hpp>

#include <aloni/nn/compiled_activations.hpp>
#include <aloni/nn/local/detail/vector_types.hpp>

#include <cstring>
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

/// Copies `count` < 2 `block` elements in pieces of constant size: a loop over single ones takes twice the time.
template <int block, class T>
[[gnu::always_inline]] inline void copy_lanes(const T* from, T* to, Index count) {
  if constexpr (block > 0) {
    const bool has_block = (count & block) != 0;
    if (has_block) std::memcpy(to, from, block * sizeof(T));
    copy_lanes<block / 2>(from + (has_block ? block : 0), to + (has_block ? block : 0), count);
  }
}

/// The first `count` elements; the other lanes are 0.
template <class V, class T>
[[gnu::always_inline]] inline V first_lanes(const T* from, Index count) {
  T values[sizeof(V) / sizeof(T)] = {};
  copy_lanes<sizeof(V) / sizeof(T)>(from, values, count);
  return *reinterpret_cast<const V*>(values);
}

/// Writes the first `count` lanes.
template <class V, class T>
[[gnu::always_inline]] inline void write_lanes(const V& lanes, T* to, Index count) {
  T values[sizeof(V) / sizeof(T)];
  *reinterpret_cast<V*>(values) = lanes;
  copy_lanes<sizeof(V) / sizeof(T)>(values, to, count);
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
    write_lanes(maximum, a.y + p * a.y_pixel + c, inside);
    if (a.argmax != nullptr)
      write_lanes(__builtin_convertvector(where, Narrow), a.argmax + p * a.argmax_pixel + c, inside);
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
template <class T, int lanes>
[[gnu::always_inline]] inline Index vectors_backward(const MaxBackwardArguments<T>& a, Index c) {
  if (c + lanes <= a.channels) return a.pixels;
  Index vectors = readable_pixels(a.dense ? a.pixels : 0, a.dx_end - a.dx, a.dx_stride, a.reach + c + lanes);
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
  const std::int32_t place = a.taps[0].position;
  const I position = I{} + place;
  for (Index c = 0; c < a.channels; c += lanes) {
    const Index vectors = vectors_backward<T, lanes>(a, c), inside = smaller(lanes, a.channels - c);
    // Lanes beyond the channels add zero to the next pixel.
    const I is_inside = lane < I{} + static_cast<IntegerOf<T>>(inside);
    for (Index p = 0; p < vectors; ++p) {
      const I here = __builtin_convertvector(*reinterpret_cast<const Narrow*>(a.argmax + p * a.argmax_pixel + c), I);
      const V dy = *reinterpret_cast<const V*>(a.dy + p * a.dy_pixel + c);
      *reinterpret_cast<V*>(a.dx + p * a.dx_stride + c) += ((here == position) & is_inside) ? dy : V{};
    }
    for (Index p = vectors; p < a.pixels; ++p)
      for (Index i = c; i < c + inside; ++i)
        a.dx[p * a.dx_stride + i] += a.argmax[p * a.argmax_pixel + i] == place ? a.dy[p * a.dy_pixel + i] : T(0);
  }
}

/// `taps`, `vectors` and `inside` are as in max_forward_channels.
template <class T, int lanes, int taps>
[[gnu::always_inline]] inline void max_backward_channels(const MaxBackwardArguments<T>& a, Index c, Index vectors,
                                                         Index inside) {
  using V = Vector<T, lanes>;
  using I = Vector<IntegerOf<T>, lanes>;
  using Narrow = Vector<std::int32_t, lanes>;
  const Index num_taps = taps > 0 ? taps : a.num_taps;
  const auto pass_on = [&](const Narrow& narrow, const V& dy, const auto& write) __attribute__((always_inline)) {
    const I here = __builtin_convertvector(narrow, I);
    const V sum = V{} + dy;  // -0 becomes +0, as in sums
#pragma GCC unroll 4
    for (Index t = 0; t < num_taps; ++t) write(a.taps[t].x, here == I{} + a.taps[t].position ? sum : V{});
  };
  for (Index p = 0; p < vectors; ++p) {
    T* const dx = a.dx + p * a.dx_stride + c;
    pass_on(
        *reinterpret_cast<const Narrow*>(a.argmax + p * a.argmax_pixel + c),
        *reinterpret_cast<const V*>(a.dy + p * a.dy_pixel + c),
        [&](Index x, const V& gradient) __attribute__((always_inline)) { *reinterpret_cast<V*>(dx + x) = gradient; });
  }
  for (Index p = vectors; p < a.pixels; ++p) {
    T* const dx = a.dx + p * a.dx_stride + c;
    pass_on(
        first_lanes<Narrow>(a.argmax + p * a.argmax_pixel + c, inside),
        first_lanes<V>(a.dy + p * a.dy_pixel + c, inside),
        [&](Index x, const V& gradient) __attribute__((always_inline)) { write_lanes(gradient, dx + x, inside); });
  }
}

/// Of windows that do not overlap: sets the gradient.
template <class T, int lanes>
[[gnu::always_inline]] inline void max_backward_disjoint(const MaxBackwardArguments<T>& a) {
  // Partly filled vectors come first, as in the forward pass.
  for (Index c = (a.channels - 1) / lanes * lanes; c >= 0; c -= lanes) {
    const Index vectors = vectors_backward<T, lanes>(a, c), inside = smaller(lanes, a.channels - c);
    if (a.num_taps == 4)
      max_backward_channels<T, lanes, 4>(a, c, vectors, inside);
    else
      max_backward_channels<T, lanes, 0>(a, c, vectors, inside);
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
