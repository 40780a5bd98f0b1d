#include <aloni/nn/local/resampling.hpp>

#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/execution.hpp>

namespace aloni::nn::local {

namespace detail {

using Interval = halo::Range;

/// Windows and readers in local indices.
struct LocalMap {
  ResamplingProblem p;

  /// What the local output o reads. @pre validate(p)
  KOKKOS_FUNCTION Interval window(int s, Index o) const {
    const Interval w = p.map[s].window(p.output_lower[s] + o);
    return {w.lo - p.input_lower[s], w.hi - p.input_lower[s]};
  }
  /// The local outputs that read the local input i.
  KOKKOS_FUNCTION Interval readers(int s, Index i) const {
    const Interval r = p.map[s].output_range(p.input_lower[s] + i, p.input_lower[s] + i + 1);
    const Index lo = r.lo - p.output_lower[s], hi = r.hi - p.output_lower[s];
    return {lo > 0 ? lo : 0, hi < p.output[s] ? hi : p.output[s]};
  }
  KOKKOS_FUNCTION double weight(int s, Index o, Index i) const {
    return p.map[s].weight(p.output_lower[s] + o, p.input_lower[s] + i);
  }
  KOKKOS_FUNCTION bool averages() const { return p.map[0].rule == halo::RangeRule::adaptive; }
};

/// `Pixel` computes channels [c, end) at one place, at most Pixel::block of them: windows are found once for these. On a host a row
/// of places and blocks wide enough for vectors, on a device one channel.
template <class Pixel>
struct AllPixels {
  Rows rows;
  Pixel pixel;

  KOKKOS_FUNCTION void operator()(const Index i) const {
    Index n, d, h, w, c;
    if constexpr (Pixel::block == 1) {
      rows.element(i, n, d, h, w, c);
      pixel(pixel.outer(d, h), n, d, h, w, c, c + 1);
    } else {
      rows.row(i, n, d, h);
      const auto outer = pixel.outer(d, h);
      for (w = 0; w < rows.width; ++w) {
        for (c = 0; c < rows.channels; c += Pixel::block) {
          const Index end = c + Pixel::block;
          pixel(outer, n, d, h, w, c, end < rows.channels ? end : rows.channels);
        }
      }
    }
  }
};

template <class Exec, class Pixel, class View>
void for_all_pixels(const Exec& exec, const char* label, const View& written, const Pixel& pixel) {
  const Rows rows = rows_of(written);
  if (rows.elements() == 0) return;
  Kokkos::parallel_for(label, Range<Exec>(exec, 0, Pixel::block == 1 ? rows.elements() : rows.rows()),
                       AllPixels<Pixel>{rows, pixel});
}

template <class Exec>
inline constexpr Index channel_block = runs_on_host<Exec> ? 16 : 1;

/// Intervals of depth and height, which all places of a row share.
struct Outer {
  Interval d, h;
};

template <class T, class Exec>
struct AdaptiveMaxForward {
  static constexpr Index block = channel_block<Exec>;
  LocalMap map;
  Tensor<const T, Exec> x;
  Tensor<T, Exec> y;
  Tensor<std::int32_t, Exec> argmax;
  bool wants_argmax;

  KOKKOS_FUNCTION Outer outer(Index od, Index oh) const { return {map.window(0, od), map.window(1, oh)}; }

  KOKKOS_FUNCTION void operator()(const Outer& in, Index n, Index od, Index oh, Index ow, Index c, Index end) const {
    const Interval w = map.window(2, ow);
    parameter_type_t<T> best[block];
    std::int32_t where[block], position = 0;
    for (Index k = 0; k < end - c; ++k) {
      best[k] = static_cast<parameter_type_t<T>>(x(n, in.d.lo, in.h.lo, w.lo, c + k));
      where[k] = 0;
    }
    for (Index id = in.d.lo; id < in.d.hi; ++id)
      for (Index ih = in.h.lo; ih < in.h.hi; ++ih)
        for (Index iw = w.lo; iw < w.hi; ++iw, ++position)
          for (Index k = 0; k < end - c; ++k) {
            const auto v = static_cast<parameter_type_t<T>>(x(n, id, ih, iw, c + k));
            if (v > best[k] || (v != v && best[k] == best[k])) {
              best[k] = v;
              where[k] = position;
            }
          }
    for (Index k = 0; k < end - c; ++k) {
      y(n, od, oh, ow, c + k) = static_cast<T>(best[k]);
      if (wants_argmax) argmax(n, od, oh, ow, c + k) = where[k];
    }
  }
};

template <class T, class Exec>
struct AdaptiveMaxBackward {
  static constexpr Index block = channel_block<Exec>;
  LocalMap map;
  Tensor<const T, Exec> dy;
  Tensor<const std::int32_t, Exec> argmax;
  Tensor<T, Exec> dx;

  KOKKOS_FUNCTION Outer outer(Index id, Index ih) const { return {map.readers(0, id), map.readers(1, ih)}; }

  KOKKOS_FUNCTION void operator()(const Outer& from, Index n, Index id, Index ih, Index iw, Index c, Index end) const {
    const Interval w = map.readers(2, iw);
    parameter_type_t<T> sum[block];
    for (Index k = 0; k < end - c; ++k) sum[k] = 0;
    for (Index od = from.d.lo; od < from.d.hi; ++od) {
      const Interval in_d = map.window(0, od);
      for (Index oh = from.h.lo; oh < from.h.hi; ++oh) {
        const Interval in_h = map.window(1, oh);
        const Index row = (id - in_d.lo) * (in_h.hi - in_h.lo) + ih - in_h.lo;
        for (Index ow = w.lo; ow < w.hi; ++ow) {
          const Interval in_w = map.window(2, ow);
          const Index position = row * (in_w.hi - in_w.lo) + iw - in_w.lo;
          for (Index k = 0; k < end - c; ++k)
            if (argmax(n, od, oh, ow, c + k) == position)
              sum[k] += static_cast<parameter_type_t<T>>(dy(n, od, oh, ow, c + k));
        }
      }
    }
    for (Index k = 0; k < end - c; ++k) dx(n, id, ih, iw, c + k) = static_cast<T>(sum[k]);
  }
};

template <class T, class Exec>
struct ResampleForward {
  static constexpr Index block = channel_block<Exec>;
  LocalMap map;
  Tensor<const T, Exec> x;
  Tensor<T, Exec> y;

  KOKKOS_FUNCTION Outer outer(Index od, Index oh) const { return {map.window(0, od), map.window(1, oh)}; }

  KOKKOS_FUNCTION void operator()(const Outer& in, Index n, Index od, Index oh, Index ow, Index c, Index end) const {
    const Interval w = map.window(2, ow);
    double sum[block];
    for (Index k = 0; k < end - c; ++k) sum[k] = 0;
    for (Index id = in.d.lo; id < in.d.hi; ++id) {
      const double weight_d = map.weight(0, od, id);
      for (Index ih = in.h.lo; ih < in.h.hi; ++ih) {
        const double weight_h = weight_d * map.weight(1, oh, ih);
        for (Index iw = w.lo; iw < w.hi; ++iw) {
          const double weight = weight_h * map.weight(2, ow, iw);
          for (Index k = 0; k < end - c; ++k) sum[k] += weight * static_cast<double>(x(n, id, ih, iw, c + k));
        }
      }
    }
    // A mean is divided, not multiplied by a reciprocal: that of equal numbers is this number.
    const Index count = map.averages() ? (in.d.hi - in.d.lo) * (in.h.hi - in.h.lo) * (w.hi - w.lo) : 1;
    for (Index k = 0; k < end - c; ++k) y(n, od, oh, ow, c + k) = static_cast<T>(sum[k] / static_cast<double>(count));
  }
};

template <class T, class Exec>
struct ResampleBackward {
  static constexpr Index block = channel_block<Exec>;
  LocalMap map;
  Tensor<const T, Exec> dy;
  Tensor<T, Exec> dx;

  KOKKOS_FUNCTION Outer outer(Index id, Index ih) const { return {map.readers(0, id), map.readers(1, ih)}; }

  /// d y(o) / d x(i), one dimension's factor.
  KOKKOS_FUNCTION double factor(int s, Index o, Index i) const {
    if (!map.averages()) return map.weight(s, o, i);
    const Interval window = map.window(s, o);
    return 1.0 / static_cast<double>(window.hi - window.lo);
  }

  KOKKOS_FUNCTION void operator()(const Outer& from, Index n, Index id, Index ih, Index iw, Index c, Index end) const {
    const Interval w = map.readers(2, iw);
    double sum[block];
    for (Index k = 0; k < end - c; ++k) sum[k] = 0;
    for (Index od = from.d.lo; od < from.d.hi; ++od) {
      const double factor_d = factor(0, od, id);
      for (Index oh = from.h.lo; oh < from.h.hi; ++oh) {
        const double factor_h = factor_d * factor(1, oh, ih);
        for (Index ow = w.lo; ow < w.hi; ++ow) {
          const double f = factor_h * factor(2, ow, iw);
          for (Index k = 0; k < end - c; ++k) sum[k] += f * static_cast<double>(dy(n, od, oh, ow, c + k));
        }
      }
    }
    for (Index k = 0; k < end - c; ++k) dx(n, id, ih, iw, c + k) = static_cast<T>(sum[k]);
  }
};

template <class X, class Y>
void check_resampling(const char* operation, const ResamplingProblem& p, const char* x_name, const X& x,
                      const char* y_name, const Y& y) {
  validate(p);
  check_extents(operation, x_name, x, {p.samples, p.input[0], p.input[1], p.input[2], p.channels});
  check_extents(operation, y_name, y, {p.samples, p.output[0], p.output[1], p.output[2], p.channels});
}

inline void check_adaptive(const char* operation, const ResamplingProblem& p) {
  check(p.map[0].rule == halo::RangeRule::adaptive, operation, "problem", to_string(p), "the adaptive rule");
}

}  // namespace detail

template <class T, class Exec>
void adaptive_max_pool_forward(const Exec& exec, const ResamplingProblem& p, InTensor<T, Exec> x, Tensor<T, Exec> y,
                               OutTensor<std::int32_t, Exec> argmax) {
  constexpr auto operation = "aloni::nn::local::adaptive_max_pool_forward";
  detail::check_resampling(operation, p, "x", x, "y", y);
  detail::check_adaptive(operation, p);
  const bool wants_argmax = argmax.data() != nullptr && argmax.size() > 0;
  if (wants_argmax) detail::check_same_extents(operation, "argmax", argmax, y);
  detail::for_all_pixels(exec, "aloni::nn::adaptive_max_pool_forward", y,
                         detail::AdaptiveMaxForward<T, Exec>{{p}, x, y, argmax, wants_argmax});
}

template <class T, class Exec>
void adaptive_max_pool_backward(const Exec& exec, const ResamplingProblem& p, InTensor<T, Exec> dy,
                                InTensor<std::int32_t, Exec> argmax, Tensor<T, Exec> dx) {
  constexpr auto operation = "aloni::nn::local::adaptive_max_pool_backward";
  detail::check_resampling(operation, p, "dx", dx, "dy", dy);
  detail::check_adaptive(operation, p);
  detail::check_same_extents(operation, "argmax", argmax, dy);
  detail::for_all_pixels(exec, "aloni::nn::adaptive_max_pool_backward", dx,
                         detail::AdaptiveMaxBackward<T, Exec>{{p}, dy, argmax, dx});
}

template <class T, class Exec>
void resample_forward(const Exec& exec, const ResamplingProblem& p, InTensor<T, Exec> x, Tensor<T, Exec> y) {
  detail::check_resampling("aloni::nn::local::resample_forward", p, "x", x, "y", y);
  detail::for_all_pixels(exec, "aloni::nn::resample_forward", y, detail::ResampleForward<T, Exec>{{p}, x, y});
}

template <class T, class Exec>
void resample_backward(const Exec& exec, const ResamplingProblem& p, InTensor<T, Exec> dy, Tensor<T, Exec> dx) {
  detail::check_resampling("aloni::nn::local::resample_backward", p, "dx", dx, "dy", dy);
  detail::for_all_pixels(exec, "aloni::nn::resample_backward", dx, detail::ResampleBackward<T, Exec>{{p}, dy, dx});
}

#define INSTANTIATE(T, Exec)                                                                                          \
  template void adaptive_max_pool_forward<T, Exec>(const Exec&, const ResamplingProblem&, InTensor<T, Exec>,          \
                                                   Tensor<T, Exec>, OutTensor<std::int32_t, Exec>);                   \
  template void adaptive_max_pool_backward<T, Exec>(const Exec&, const ResamplingProblem&, InTensor<T, Exec>,         \
                                                    InTensor<std::int32_t, Exec>, Tensor<T, Exec>);                   \
  template void resample_forward<T, Exec>(const Exec&, const ResamplingProblem&, InTensor<T, Exec>, Tensor<T, Exec>); \
  template void resample_backward<T, Exec>(const Exec&, const ResamplingProblem&, InTensor<T, Exec>, Tensor<T, Exec>);
ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE)
INSTANTIATE(comm::bfloat16, Kokkos::DefaultHostExecutionSpace)
#undef INSTANTIATE

}  // namespace aloni::nn::local
