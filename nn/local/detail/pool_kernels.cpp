#include <aloni/nn/local/detail/pool_kernels.hpp>

#include <aloni/nn/compiled_activations.hpp>
#include <aloni/nn/local/detail/vector_types.hpp>

#include <type_traits>

namespace aloni::nn::local::detail {

namespace {

/// The integer with the size of a floating-point type: vectors of positions have the lanes of the values.
template <class T>
using IntegerOf = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;

template <class T>
[[gnu::always_inline]] inline void max_forward_single(const MaxForwardArguments<T>& a, const T* x, T* y,
                                                      std::int32_t* argmax) {
  T maximum = x[a.taps[0].x];
  std::int32_t where = a.taps[0].position;
  for (Index t = 1; t < a.num_taps; ++t) {
    const T v = x[a.taps[t].x];
    const bool better = v > maximum || (v != v && maximum == maximum);
    maximum = better ? v : maximum;
    where = better ? a.taps[t].position : where;
  }
  *y = maximum;
  if (argmax != nullptr) *argmax = where;
}

/// Number of pixels, from the first one, that have `reach` elements before the end of their row.
[[gnu::always_inline]] inline Index readable_pixels(Index elements, Index pixel, Index reach) {
  return elements < reach ? 0 : pixel <= 0 ? 1 : (elements - reach) / pixel + 1;
}

[[gnu::always_inline]] inline Index smaller(Index a, Index b) { return a < b ? a : b; }

template <class T, int lanes>
[[gnu::always_inline]] inline void max_forward(const MaxForwardArguments<T>& a) {
  using V = Vector<T, lanes>;
  using I = Vector<IntegerOf<T>, lanes>;
  using Narrow = Vector<std::int32_t, lanes>;
  Index reach = 0;  // of the furthest tap
  for (Index t = 0; t < a.num_taps; ++t) reach = a.taps[t].x > reach ? a.taps[t].x : reach;
  // The last, partly filled vector of each pixel comes first: later vectors overwrite the lanes that it writes into the
  // next pixel. In rows with gaps between pixels this is not allowed: the gaps are not part of the tensor.
  const bool gaps = a.y_pixel != a.channels || (a.argmax != nullptr && a.argmax_pixel != a.channels);
  for (Index c = (a.channels - 1) / lanes * lanes; c >= 0; c -= lanes) {
    Index vectors = a.pixels;
    if (c + lanes > a.channels) {
      vectors = gaps ? 0
                     : smaller(a.pixels, smaller(readable_pixels(a.y_end - a.y, a.y_pixel, c + lanes),
                                                 readable_pixels(a.x_end - a.x, a.x_pixel, reach + c + lanes)));
    }
    for (Index p = 0; p < vectors; ++p) {
      const T* const x = a.x + p * a.x_pixel + c;
      V maximum = *reinterpret_cast<const V*>(x + a.taps[0].x);
      I where = I{} + a.taps[0].position;
      for (Index t = 1; t < a.num_taps; ++t) {
        const V v = *reinterpret_cast<const V*>(x + a.taps[t].x);
        const I better = (v > maximum) | ((v != v) & (maximum == maximum));
        maximum = better ? v : maximum;
        where = better ? I{} + a.taps[t].position : where;
      }
      *reinterpret_cast<V*>(a.y + p * a.y_pixel + c) = maximum;
      if (a.argmax != nullptr) {
        *reinterpret_cast<Narrow*>(a.argmax + p * a.argmax_pixel + c) = __builtin_convertvector(where, Narrow);
      }
    }
    for (Index p = vectors; p < a.pixels; ++p)
      for (Index i = c; i < smaller(c + lanes, a.channels); ++i)
        max_forward_single(a, a.x + p * a.x_pixel + i, a.y + p * a.y_pixel + i,
                           a.argmax == nullptr ? nullptr : a.argmax + p * a.argmax_pixel + i);
  }
}

template <class T, int lanes>
[[gnu::always_inline]] inline void max_backward(const MaxBackwardArguments<T>& a) {
  using V = Vector<T, lanes>;
  using I = Vector<IntegerOf<T>, lanes>;
  using Narrow = Vector<std::int32_t, lanes>;
  I lane;
  for (int i = 0; i < lanes; ++i) lane[i] = i;
  const I position = I{} + a.position;
  for (Index c = 0; c < a.channels; c += lanes) {
    Index vectors = a.pixels;
    if (c + lanes > a.channels) {
      vectors = !a.dense ? 0
                         : smaller(smaller(a.pixels, readable_pixels(a.dx_end - a.dx, a.dx_pixel, c + lanes)),
                                   smaller(readable_pixels(a.dy_end - a.dy, a.dy_pixel, c + lanes),
                                           readable_pixels(a.argmax_end - a.argmax, a.argmax_pixel, c + lanes)));
    }
    // Lanes beyond the channels add zero to the next pixel.
    const I inside = lane < I{} + static_cast<IntegerOf<T>>(smaller(lanes, a.channels - c));
    for (Index p = 0; p < vectors; ++p) {
      const I here = __builtin_convertvector(*reinterpret_cast<const Narrow*>(a.argmax + p * a.argmax_pixel + c), I);
      const V dy = *reinterpret_cast<const V*>(a.dy + p * a.dy_pixel + c);
      *reinterpret_cast<V*>(a.dx + p * a.dx_pixel + c) += ((here == position) & inside) ? dy : V{};
    }
    for (Index p = vectors; p < a.pixels; ++p)
      for (Index i = c; i < smaller(c + lanes, a.channels); ++i) {
        a.dx[p * a.dx_pixel + i] += a.argmax[p * a.argmax_pixel + i] == a.position ? a.dy[p * a.dy_pixel + i] : T(0);
      }
  }
}

template <class T>
void max_forward_baseline(const MaxForwardArguments<T>& a) {
  max_forward<T, 16 / sizeof(T)>(a);
}
template <class T>
void max_backward_baseline(const MaxBackwardArguments<T>& a) {
  max_backward<T, 16 / sizeof(T)>(a);
}
template <class T>
constexpr PoolKernels<T> baseline{max_forward_baseline<T>, max_backward_baseline<T>};

#if defined(__x86_64__)
template <class T>
__attribute__((target("avx2"))) void max_forward_avx2(const MaxForwardArguments<T>& a) {
  max_forward<T, 32 / sizeof(T)>(a);
}
template <class T>
__attribute__((target("avx2"))) void max_backward_avx2(const MaxBackwardArguments<T>& a) {
  max_backward<T, 32 / sizeof(T)>(a);
}
template <class T>
constexpr PoolKernels<T> avx2{max_forward_avx2<T>, max_backward_avx2<T>};
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
