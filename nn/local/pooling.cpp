#include <aloni/nn/local/pooling.hpp>

#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/execution.hpp>
#include <aloni/nn/local/detail/pool_kernels.hpp>

#include <algorithm>
#include <limits>

namespace aloni::nn::local {

namespace detail {

template <class View>
void check_pool_views(const char* operation, const PoolingProblem& p, const char* x_name, const View& x,
                      const char* y_name, const auto& y) {
  validate(p);
  check_extents(operation, x_name, x, {p.samples, p.input[0], p.input[1], p.input[2], p.channels});
  check_extents(operation, y_name, y, {p.samples, p.output[0], p.output[1], p.output[2], p.channels});
}

/// The part [begin, end) of the window at output index o that lies in the input, in dimension s.
struct WindowPart {
  Index begin, end;
};
KOKKOS_INLINE_FUNCTION WindowPart window_part(const PoolingProblem& p, int s, Index o) {
  const Index first = o * p.stride[s] + p.offset[s];
  const Index begin = first < 0 ? -first : 0;
  const Index room = p.input[s] - first;
  return {begin, room < p.window[s] ? room : p.window[s]};
}

/// The outputs [begin, end) whose windows contain input i, in dimension s.
KOKKOS_INLINE_FUNCTION WindowPart windows_with(const PoolingProblem& p, int s, Index i) {
  // o * stride ≤ i - offset and o * stride > i - offset - window
  const Index last = i - p.offset[s], first = last - p.window[s] + 1;
  if (last < 0) return {0, 0};
  const Index begin = first <= 0 ? 0 : (first + p.stride[s] - 1) / p.stride[s];
  const Index end = last / p.stride[s] + 1;
  return {begin, end < p.output[s] ? end : p.output[s]};
}

/// Whether `candidate` replaces the maximum so far: larger, or the first NaN.
template <class T>
KOKKOS_INLINE_FUNCTION bool replaces(T candidate, T maximum) {
  return candidate > maximum || (candidate != candidate && maximum == maximum);
}

template <class T, class Exec>
struct MaxForward {
  PoolingProblem p;
  Rows rows;
  Tensor<const T, Exec> x;
  Tensor<T, Exec> y;
  Tensor<std::int32_t, Exec> argmax;
  bool wants_argmax;
  parameter_type_t<T> lowest;

  KOKKOS_FUNCTION void operator()(const Index i) const {
    Index n, od, oh, ow, c;
    rows.element(i, n, od, oh, ow, c);
    const auto d = window_part(p, 0, od), h = window_part(p, 1, oh), w = window_part(p, 2, ow);
    parameter_type_t<T> maximum = lowest;
    std::int32_t where = -1;
    for (Index kd = d.begin; kd < d.end; ++kd)
      for (Index kh = h.begin; kh < h.end; ++kh)
        for (Index kw = w.begin; kw < w.end; ++kw) {
          const auto v = static_cast<parameter_type_t<T>>(x(n, od * p.stride[0] + p.offset[0] + kd,
                                                            oh * p.stride[1] + p.offset[1] + kh,
                                                            ow * p.stride[2] + p.offset[2] + kw, c));
          if (where < 0 || replaces(v, maximum)) {
            maximum = v;
            where = static_cast<std::int32_t>((kd * p.window[1] + kh) * p.window[2] + kw);
          }
        }
    y(n, od, oh, ow, c) = static_cast<T>(maximum);
    if (wants_argmax) argmax(n, od, oh, ow, c) = where;
  }
};

/// One row of outputs on a host. @pre contiguous channels
template <class T, class Exec>
struct MaxForwardRow {
  MaxForward<T, Exec> element;
  const PoolKernels<T>* kernels;

  void operator()(const Index r) const {
    const PoolingProblem& p = element.p;
    Index n, od, oh;
    element.rows.row(r, n, od, oh);
    const auto d = window_part(p, 0, od), h = window_part(p, 1, oh);
    const Index depth = d.end - d.begin, height = h.end - h.begin;
    // Pixels whose windows lie within the row share one list of taps; those at the edges are done alone.
    const Index first = p.offset[2] >= 0 ? 0 : (-p.offset[2] + p.stride[2] - 1) / p.stride[2];
    const Index room = p.input[2] - p.window[2] - p.offset[2];
    const Index last = room < 0 ? 0 : room / p.stride[2] + 1;
    constexpr Index most_taps = 64;  // larger windows are rare
    if (depth <= 0 || height <= 0 || depth * height * p.window[2] > most_taps || first >= last) {
      for (Index ow = 0; ow < p.output[2]; ++ow) pixel(n, od, oh, ow);
      return;
    }
    const Index end = last < p.output[2] ? last : p.output[2];
    for (Index ow = 0; ow < first && ow < p.output[2]; ++ow) pixel(n, od, oh, ow);
    if (first < end) {
      const auto stride = [](const auto& v, int i) { return static_cast<Index>(v.stride(i)); };
      PoolTap taps[most_taps];
      Index count = 0;
      for (Index kd = 0; kd < depth; ++kd)
        for (Index kh = 0; kh < height; ++kh)
          for (Index kw = 0; kw < p.window[2]; ++kw)
            taps[count++] = {
                kd * stride(element.x, 1) + kh * stride(element.x, 2) + kw * stride(element.x, 3),
                static_cast<std::int32_t>(((d.begin + kd) * p.window[1] + h.begin + kh) * p.window[2] + kw)};
      const Index id = od * p.stride[0] + p.offset[0] + d.begin, ih = oh * p.stride[1] + p.offset[1] + h.begin;
      const T* const x = &element.x(n, id, ih, first * p.stride[2] + p.offset[2], 0);
      T* const y = &element.y(n, od, oh, first, 0);
      const Index y_pixel = stride(element.y, 3);
      kernels->max_forward({.x = x,
                            .x_end = &element.x(n, id + depth - 1, ih + height - 1, p.input[2] - 1, 0) + p.channels,
                            .x_pixel = p.stride[2] * stride(element.x, 3),
                            .taps = taps,
                            .num_taps = count,
                            .y = y,
                            .y_end = y + (end - first - 1) * y_pixel + p.channels,
                            .y_pixel = y_pixel,
                            .argmax = element.wants_argmax ? &element.argmax(n, od, oh, first, 0) : nullptr,
                            .argmax_pixel = element.wants_argmax ? stride(element.argmax, 3) : 0,
                            .pixels = end - first,
                            .channels = p.channels});
    }
    for (Index ow = end > first ? end : first; ow < p.output[2]; ++ow) pixel(n, od, oh, ow);
  }

  void pixel(Index n, Index od, Index oh, Index ow) const {
    const PoolingProblem& p = element.p;
    const Index i = (((n * p.output[0] + od) * p.output[1] + oh) * p.output[2] + ow) * p.channels;
    for (Index c = 0; c < p.channels; ++c) element(i + c);
  }
};

/// Channels that a host computes together where there are no vector kernels for the type.
constexpr Index channels_at_once = 16;

/// One row of outputs on a host, of any strides.
template <class T, class Exec>
struct MaxForwardPixels {
  MaxForward<T, Exec> element;

  void operator()(const Index r) const {
    const PoolingProblem& p = element.p;
    Index n, od, oh;
    element.rows.row(r, n, od, oh);
    const auto d = window_part(p, 0, od), h = window_part(p, 1, oh);
    for (Index ow = 0; ow < p.output[2]; ++ow) {
      const auto w = window_part(p, 2, ow);
      for (Index first = 0; first < p.channels; first += channels_at_once) {
        const Index count = std::min(channels_at_once, p.channels - first);
        parameter_type_t<T> maximum[channels_at_once];
        std::int32_t where[channels_at_once];
        for (Index c = 0; c < count; ++c) maximum[c] = element.lowest, where[c] = -1;
        for (Index kd = d.begin; kd < d.end; ++kd)
          for (Index kh = h.begin; kh < h.end; ++kh)
            for (Index kw = w.begin; kw < w.end; ++kw) {
              const Index id = od * p.stride[0] + p.offset[0] + kd, ih = oh * p.stride[1] + p.offset[1] + kh,
                          iw = ow * p.stride[2] + p.offset[2] + kw;
              const auto position = static_cast<std::int32_t>((kd * p.window[1] + kh) * p.window[2] + kw);
              for (Index c = 0; c < count; ++c) {
                const auto v = static_cast<parameter_type_t<T>>(element.x(n, id, ih, iw, first + c));
                const bool better = where[c] < 0 || replaces(v, maximum[c]);
                maximum[c] = better ? v : maximum[c];
                where[c] = better ? position : where[c];
              }
            }
        for (Index c = 0; c < count; ++c) element.y(n, od, oh, ow, first + c) = static_cast<T>(maximum[c]);
        if (!element.wants_argmax) continue;
        for (Index c = 0; c < count; ++c) element.argmax(n, od, oh, ow, first + c) = where[c];
      }
    }
  }
};

template <class T, class Exec>
struct MaxBackward {
  PoolingProblem p;
  Rows rows;
  Tensor<const T, Exec> dy;
  Tensor<const std::int32_t, Exec> argmax;
  Tensor<T, Exec> dx;

  KOKKOS_FUNCTION void operator()(const Index i) const {
    Index n, id, ih, iw, c;
    rows.element(i, n, id, ih, iw, c);
    const auto d = windows_with(p, 0, id), h = windows_with(p, 1, ih), w = windows_with(p, 2, iw);
    parameter_type_t<T> sum = 0;
    for (Index od = d.begin; od < d.end; ++od)
      for (Index oh = h.begin; oh < h.end; ++oh)
        for (Index ow = w.begin; ow < w.end; ++ow) {
          const Index kd = id - od * p.stride[0] - p.offset[0], kh = ih - oh * p.stride[1] - p.offset[1],
                      kw = iw - ow * p.stride[2] - p.offset[2];
          if (argmax(n, od, oh, ow, c) == (kd * p.window[1] + kh) * p.window[2] + kw)
            sum += static_cast<parameter_type_t<T>>(dy(n, od, oh, ow, c));
        }
    dx(n, id, ih, iw, c) = static_cast<T>(sum);
  }
};

/// One row of inputs on a host: each row of windows that contains it, and each column of the window, adds what it has for
/// this row. @pre contiguous channels
template <class T, class Exec>
struct MaxBackwardRow {
  MaxBackward<T, Exec> element;
  const PoolKernels<T>* kernels;

  void operator()(const Index r) const {
    const PoolingProblem& p = element.p;
    Index n, id, ih;
    element.rows.row(r, n, id, ih);
    const auto d = windows_with(p, 0, id), h = windows_with(p, 1, ih);
    const auto stride = [](const auto& v, int i) { return static_cast<Index>(v.stride(i)); };
    const Index dx_pixel = stride(element.dx, 3), dy_pixel = stride(element.dy, 3),
                argmax_pixel = stride(element.argmax, 3);
    T* const dx = &element.dx(n, id, ih, 0, 0);
    T* const dx_end = dx + (p.input[2] - 1) * dx_pixel + p.channels;
    if (dx_pixel == p.channels) {
      std::fill(dx, dx_end, T(0));
    } else {
      for (Index iw = 0; iw < p.input[2]; ++iw) std::fill(dx + iw * dx_pixel, dx + iw * dx_pixel + p.channels, T(0));
    }
    for (Index od = d.begin; od < d.end; ++od)
      for (Index oh = h.begin; oh < h.end; ++oh) {
        const Index kd = id - od * p.stride[0] - p.offset[0], kh = ih - oh * p.stride[1] - p.offset[1];
        const T* const dy = &element.dy(n, od, oh, 0, 0);
        const std::int32_t* const argmax = &element.argmax(n, od, oh, 0, 0);
        for (Index kw = 0; kw < p.window[2]; ++kw) {
          const Index shift = kw + p.offset[2];  // iw = ow * stride + shift
          const Index first = shift >= 0 ? 0 : (-shift + p.stride[2] - 1) / p.stride[2];
          const Index room = p.input[2] - 1 - shift;
          const Index last = room < 0 ? 0 : room / p.stride[2] + 1;
          const Index end = last < p.output[2] ? last : p.output[2];
          if (first >= end) continue;
          kernels->max_backward({.dy = dy + first * dy_pixel,
                                 .dy_end = dy + (p.output[2] - 1) * dy_pixel + p.channels,
                                 .dy_pixel = dy_pixel,
                                 .argmax = argmax + first * argmax_pixel,
                                 .argmax_end = argmax + (p.output[2] - 1) * argmax_pixel + p.channels,
                                 .argmax_pixel = argmax_pixel,
                                 .position = static_cast<std::int32_t>((kd * p.window[1] + kh) * p.window[2] + kw),
                                 .dx = dx + (first * p.stride[2] + shift) * dx_pixel,
                                 .dx_end = dx_end,
                                 .dx_pixel = p.stride[2] * dx_pixel,
                                 .dense = dx_pixel == p.channels,
                                 .pixels = end - first,
                                 .channels = p.channels});
        }
      }
  }
};

/// One row of inputs on a host, of any strides.
template <class T, class Exec>
struct MaxBackwardPixels {
  MaxBackward<T, Exec> element;

  void operator()(const Index r) const {
    const PoolingProblem& p = element.p;
    Index n, id, ih;
    element.rows.row(r, n, id, ih);
    const auto d = windows_with(p, 0, id), h = windows_with(p, 1, ih);
    for (Index iw = 0; iw < p.input[2]; ++iw) {
      const auto w = windows_with(p, 2, iw);
      for (Index first = 0; first < p.channels; first += channels_at_once) {
        const Index count = std::min(channels_at_once, p.channels - first);
        parameter_type_t<T> sum[channels_at_once] = {};
        for (Index od = d.begin; od < d.end; ++od)
          for (Index oh = h.begin; oh < h.end; ++oh)
            for (Index ow = w.begin; ow < w.end; ++ow) {
              const Index kd = id - od * p.stride[0] - p.offset[0], kh = ih - oh * p.stride[1] - p.offset[1],
                          kw = iw - ow * p.stride[2] - p.offset[2];
              const Index position = (kd * p.window[1] + kh) * p.window[2] + kw;
              for (Index c = 0; c < count; ++c) {
                const auto g = static_cast<parameter_type_t<T>>(element.dy(n, od, oh, ow, first + c));
                sum[c] += element.argmax(n, od, oh, ow, first + c) == position ? g : 0;
              }
            }
        for (Index c = 0; c < count; ++c) element.dx(n, id, ih, iw, first + c) = static_cast<T>(sum[c]);
      }
    }
  }
};

template <class T, class Exec>
struct AverageForward {
  PoolingProblem p;
  AverageDivisor divisor;
  Rows rows;
  Tensor<const T, Exec> x;
  Tensor<T, Exec> y;

  KOKKOS_FUNCTION void operator()(const Index i) const {
    Index n, od, oh, ow, c;
    rows.element(i, n, od, oh, ow, c);
    const auto d = window_part(p, 0, od), h = window_part(p, 1, oh), w = window_part(p, 2, ow);
    double sum = 0;
    Index count = 0;
    for (Index kd = d.begin; kd < d.end; ++kd)
      for (Index kh = h.begin; kh < h.end; ++kh)
        for (Index kw = w.begin; kw < w.end; ++kw, ++count)
          sum += static_cast<double>(x(n, od * p.stride[0] + p.offset[0] + kd, oh * p.stride[1] + p.offset[1] + kh,
                                       ow * p.stride[2] + p.offset[2] + kw, c));
    if (divisor == AverageDivisor::window) count = p.window[0] * p.window[1] * p.window[2];
    y(n, od, oh, ow, c) = count > 0 ? static_cast<T>(sum / static_cast<double>(count)) : T(0);
  }
};

template <class T, class Exec>
struct AverageBackward {
  PoolingProblem p;
  AverageDivisor divisor;
  Rows rows;
  Tensor<const T, Exec> dy;
  Tensor<T, Exec> dx;

  KOKKOS_FUNCTION void operator()(const Index i) const {
    Index n, id, ih, iw, c;
    rows.element(i, n, id, ih, iw, c);
    const auto d = windows_with(p, 0, id), h = windows_with(p, 1, ih), w = windows_with(p, 2, iw);
    double sum = 0;
    for (Index od = d.begin; od < d.end; ++od)
      for (Index oh = h.begin; oh < h.end; ++oh)
        for (Index ow = w.begin; ow < w.end; ++ow) {
          Index count = p.window[0] * p.window[1] * p.window[2];
          if (divisor == AverageDivisor::in_domain) {
            const auto pd = window_part(p, 0, od), ph = window_part(p, 1, oh), pw = window_part(p, 2, ow);
            count = (pd.end - pd.begin) * (ph.end - ph.begin) * (pw.end - pw.begin);  // contains i, hence positive
          }
          sum += static_cast<double>(dy(n, od, oh, ow, c)) / static_cast<double>(count);
        }
    dx(n, id, ih, iw, c) = static_cast<T>(sum);
  }
};

template <class T, class Exec>
struct GlobalAverageForward {
  double scale;
  Rows rows;  // of x
  Tensor<const T, Exec> x;
  Tensor<parameter_type_t<T>, Exec> y;

  KOKKOS_FUNCTION void operator()(const Index i) const {
    const Index n = i / rows.channels, c = i % rows.channels;
    double sum = 0;
    for (Index d = 0; d < rows.depth; ++d)
      for (Index h = 0; h < rows.height; ++h)
        for (Index w = 0; w < rows.width; ++w) sum += static_cast<double>(x(n, d, h, w, c));
    y(n, 0, 0, 0, c) = static_cast<parameter_type_t<T>>(scale * sum);
  }
};

template <class T, class Exec>
struct GlobalAverageBackward {
  double scale;
  Rows rows;
  Tensor<const T, Exec> dy;
  Tensor<T, Exec> dx;

  KOKKOS_FUNCTION void operator()(const Index i) const {
    Index n, d, h, w, c;
    rows.element(i, n, d, h, w, c);
    dx(n, d, h, w, c) = static_cast<T>(scale * static_cast<double>(dy(n, 0, 0, 0, c)));
  }
};

}  // namespace detail

template <class T, class Exec>
void max_pool_forward(const Exec& exec, const PoolingProblem& p, InTensor<T, Exec> x, Tensor<T, Exec> y,
                      OutTensor<std::int32_t, Exec> argmax) {
  constexpr auto operation = "aloni::nn::local::max_pool_forward";
  detail::check_pool_views(operation, p, "x", x, "y", y);
  const bool wants_argmax = argmax.data() != nullptr && argmax.size() > 0;
  if (wants_argmax) detail::check_same_extents(operation, "argmax", argmax, y);
  if (y.size() == 0) return;
  const detail::Rows rows = detail::rows_of(y);
  const detail::MaxForward<T, Exec> element{
      p, rows, x, y, argmax, wants_argmax, -std::numeric_limits<parameter_type_t<T>>::infinity()};
  if constexpr (std::is_same_v<T, comm::bfloat16>) {
    Kokkos::parallel_for("aloni::nn::max_pool_forward", detail::Range<Exec>(exec, 0, rows.rows()),
                         detail::MaxForwardPixels<T, Exec>{element});
    return;
  } else if constexpr (detail::runs_on_host<Exec>) {
    if (detail::has_contiguous_channels(x) && detail::has_contiguous_channels(y) &&
        (!wants_argmax || detail::has_contiguous_channels(argmax))) {
      Kokkos::parallel_for("aloni::nn::max_pool_forward", detail::Range<Exec>(exec, 0, rows.rows()),
                           detail::MaxForwardRow<T, Exec>{element, &detail::pool_kernels<T>()});
      return;
    }
  }
  Kokkos::parallel_for("aloni::nn::max_pool_forward", detail::Range<Exec>(exec, 0, rows.elements()), element);
}

template <class T, class Exec>
void max_pool_backward(const Exec& exec, const PoolingProblem& p, InTensor<T, Exec> dy,
                       InTensor<std::int32_t, Exec> argmax, Tensor<T, Exec> dx) {
  constexpr auto operation = "aloni::nn::local::max_pool_backward";
  detail::check_pool_views(operation, p, "dx", dx, "dy", dy);
  detail::check_same_extents(operation, "argmax", argmax, dy);
  if (dx.size() == 0) return;
  const detail::Rows rows = detail::rows_of(dx);
  const detail::MaxBackward<T, Exec> element{p, rows, dy, argmax, dx};
  if constexpr (std::is_same_v<T, comm::bfloat16>) {
    Kokkos::parallel_for("aloni::nn::max_pool_backward", detail::Range<Exec>(exec, 0, rows.rows()),
                         detail::MaxBackwardPixels<T, Exec>{element});
    return;
  } else if constexpr (detail::runs_on_host<Exec>) {
    if (dy.size() > 0 && detail::has_contiguous_channels(dx) && detail::has_contiguous_channels(dy) &&
        detail::has_contiguous_channels(argmax)) {
      Kokkos::parallel_for("aloni::nn::max_pool_backward", detail::Range<Exec>(exec, 0, rows.rows()),
                           detail::MaxBackwardRow<T, Exec>{element, &detail::pool_kernels<T>()});
      return;
    }
  }
  Kokkos::parallel_for("aloni::nn::max_pool_backward", detail::Range<Exec>(exec, 0, rows.elements()), element);
}

template <class T, class Exec>
void average_pool_forward(const Exec& exec, const PoolingProblem& p, AverageDivisor divisor, InTensor<T, Exec> x,
                          Tensor<T, Exec> y) {
  detail::check_pool_views("aloni::nn::local::average_pool_forward", p, "x", x, "y", y);
  const detail::Rows rows = detail::rows_of(y);
  Kokkos::parallel_for("aloni::nn::average_pool_forward", detail::Range<Exec>(exec, 0, rows.elements()),
                       detail::AverageForward<T, Exec>{p, divisor, rows, x, y});
}

template <class T, class Exec>
void average_pool_backward(const Exec& exec, const PoolingProblem& p, AverageDivisor divisor, InTensor<T, Exec> dy,
                           Tensor<T, Exec> dx) {
  detail::check_pool_views("aloni::nn::local::average_pool_backward", p, "dx", dx, "dy", dy);
  const detail::Rows rows = detail::rows_of(dx);
  Kokkos::parallel_for("aloni::nn::average_pool_backward", detail::Range<Exec>(exec, 0, rows.elements()),
                       detail::AverageBackward<T, Exec>{p, divisor, rows, dy, dx});
}

template <class T, class Exec>
void global_average_forward(const Exec& exec, double scale, InTensor<T, Exec> x,
                            OutTensor<parameter_type_t<T>, Exec> y) {
  const detail::Rows rows = detail::rows_of(x);
  detail::check_extents("aloni::nn::local::global_average_forward", "y", y, {rows.samples, 1, 1, 1, rows.channels});
  Kokkos::parallel_for("aloni::nn::global_average_forward", detail::Range<Exec>(exec, 0, rows.samples * rows.channels),
                       detail::GlobalAverageForward<T, Exec>{scale, rows, x, y});
}

template <class T, class Exec>
void global_average_backward(const Exec& exec, double scale, InTensor<T, Exec> dy, Tensor<T, Exec> dx) {
  const detail::Rows rows = detail::rows_of(dx);
  detail::check_extents("aloni::nn::local::global_average_backward", "dy", dy, {rows.samples, 1, 1, 1, rows.channels});
  Kokkos::parallel_for("aloni::nn::global_average_backward", detail::Range<Exec>(exec, 0, rows.elements()),
                       detail::GlobalAverageBackward<T, Exec>{scale, rows, dy, dx});
}

#define INSTANTIATE(T, Exec)                                                                                          \
  template void max_pool_forward<T, Exec>(const Exec&, const PoolingProblem&, InTensor<T, Exec>, Tensor<T, Exec>,     \
                                          OutTensor<std::int32_t, Exec>);                                             \
  template void max_pool_backward<T, Exec>(const Exec&, const PoolingProblem&, InTensor<T, Exec>,                     \
                                           InTensor<std::int32_t, Exec>, Tensor<T, Exec>);                            \
  template void average_pool_forward<T, Exec>(const Exec&, const PoolingProblem&, AverageDivisor, InTensor<T, Exec>,  \
                                              Tensor<T, Exec>);                                                       \
  template void average_pool_backward<T, Exec>(const Exec&, const PoolingProblem&, AverageDivisor, InTensor<T, Exec>, \
                                               Tensor<T, Exec>);                                                      \
  template void global_average_forward<T, Exec>(const Exec&, double, InTensor<T, Exec>,                               \
                                                OutTensor<parameter_type_t<T>, Exec>);                                \
  template void global_average_backward<T, Exec>(const Exec&, double, InTensor<T, Exec>, Tensor<T, Exec>);
ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE)
INSTANTIATE(comm::bfloat16, Kokkos::DefaultHostExecutionSpace)
#undef INSTANTIATE

}  // namespace aloni::nn::local
