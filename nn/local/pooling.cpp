#include <aloni/nn/local/pooling.hpp>

#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/execution.hpp>

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
  T lowest;

  KOKKOS_FUNCTION void operator()(const Index i) const {
    Index n, od, oh, ow, c;
    rows.element(i, n, od, oh, ow, c);
    const auto d = window_part(p, 0, od), h = window_part(p, 1, oh), w = window_part(p, 2, ow);
    T maximum = lowest;
    std::int32_t where = -1;
    for (Index kd = d.begin; kd < d.end; ++kd)
      for (Index kh = h.begin; kh < h.end; ++kh)
        for (Index kw = w.begin; kw < w.end; ++kw) {
          const T v = x(n, od * p.stride[0] + p.offset[0] + kd, oh * p.stride[1] + p.offset[1] + kh,
                        ow * p.stride[2] + p.offset[2] + kw, c);
          if (where < 0 || replaces(v, maximum)) {
            maximum = v;
            where = static_cast<std::int32_t>((kd * p.window[1] + kh) * p.window[2] + kw);
          }
        }
    y(n, od, oh, ow, c) = maximum;
    if (wants_argmax) argmax(n, od, oh, ow, c) = where;
  }
};

/// One row of outputs on a host: for each output pixel and each element of its window, a loop over channels without branches.
template <class T, class Exec>
struct MaxForwardRow {
  MaxForward<T, Exec> element;

  void operator()(const Index r) const {
    const PoolingProblem& p = element.p;
    Index n, od, oh;
    element.rows.row(r, n, od, oh);
    const auto d = window_part(p, 0, od), h = window_part(p, 1, oh);
    const Index channels = p.channels;
    const Index x_h = static_cast<Index>(element.x.stride(2)), x_w = static_cast<Index>(element.x.stride(3));
    const Index x_d = static_cast<Index>(element.x.stride(1)), y_w = static_cast<Index>(element.y.stride(3));
    const Index a_w = element.wants_argmax ? static_cast<Index>(element.argmax.stride(3)) : 0;
    const T* const from = element.x.data() + n * static_cast<Index>(element.x.stride(0)) +
                          (od * p.stride[0] + p.offset[0]) * x_d + (oh * p.stride[1] + p.offset[1]) * x_h;
    T* y = &element.y(n, od, oh, 0, 0);
    std::int32_t* argmax = element.wants_argmax ? &element.argmax(n, od, oh, 0, 0) : nullptr;
    for (Index ow = 0; ow < p.output[2]; ++ow, y += y_w, argmax += a_w) {
      const auto w = window_part(p, 2, ow);
      const bool empty = d.begin >= d.end || h.begin >= h.end || w.begin >= w.end;
      const T* const window = from + (ow * p.stride[2] + p.offset[2]) * x_w;
      constexpr Index block = 16;  // maxima of a few channels stay in registers
      for (Index c0 = 0; c0 < channels; c0 += block) {
        const Index count = channels - c0 < block ? channels - c0 : block;
        T maximum[block];
        std::int32_t where[block];
        if (empty) {
          for (Index c = 0; c < count; ++c) maximum[c] = element.lowest, where[c] = -1;
        } else {
          const T* const first = window + d.begin * x_d + h.begin * x_h + w.begin * x_w + c0;
          const auto position = static_cast<std::int32_t>((d.begin * p.window[1] + h.begin) * p.window[2] + w.begin);
          for (Index c = 0; c < count; ++c) maximum[c] = first[c], where[c] = position;
        }
        for (Index kd = d.begin; kd < d.end; ++kd)
          for (Index kh = h.begin; kh < h.end; ++kh)
            for (Index kw = w.begin; kw < w.end; ++kw) {
              const T* const v = window + kd * x_d + kh * x_h + kw * x_w + c0;
              const auto position = static_cast<std::int32_t>((kd * p.window[1] + kh) * p.window[2] + kw);
              for (Index c = 0; c < count; ++c) {
                const bool better = replaces(v[c], maximum[c]);
                maximum[c] = better ? v[c] : maximum[c];
                where[c] = better ? position : where[c];
              }
            }
        for (Index c = 0; c < count; ++c) y[c0 + c] = maximum[c];
        if (element.wants_argmax)
          for (Index c = 0; c < count; ++c) argmax[c0 + c] = where[c];
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
    T sum = 0;
    for (Index od = d.begin; od < d.end; ++od)
      for (Index oh = h.begin; oh < h.end; ++oh)
        for (Index ow = w.begin; ow < w.end; ++ow) {
          const Index kd = id - od * p.stride[0] - p.offset[0], kh = ih - oh * p.stride[1] - p.offset[1],
                      kw = iw - ow * p.stride[2] - p.offset[2];
          if (argmax(n, od, oh, ow, c) == (kd * p.window[1] + kh) * p.window[2] + kw) sum += dy(n, od, oh, ow, c);
        }
    dx(n, id, ih, iw, c) = sum;
  }
};

/// One row of inputs on a host: loops over channels without branches.
template <class T, class Exec>
struct MaxBackwardRow {
  MaxBackward<T, Exec> element;

  void operator()(const Index r) const {
    const PoolingProblem& p = element.p;
    Index n, id, ih;
    element.rows.row(r, n, id, ih);
    const auto d = windows_with(p, 0, id), h = windows_with(p, 1, ih);
    const Index channels = p.channels, dx_w = static_cast<Index>(element.dx.stride(3));
    const Index dy_w = static_cast<Index>(element.dy.stride(3)), a_w = static_cast<Index>(element.argmax.stride(3));
    T* dx = &element.dx(n, id, ih, 0, 0);
    for (Index iw = 0; iw < p.input[2]; ++iw, dx += dx_w) {
      const auto w = windows_with(p, 2, iw);
      for (Index c = 0; c < channels; ++c) dx[c] = 0;
      for (Index od = d.begin; od < d.end; ++od)
        for (Index oh = h.begin; oh < h.end; ++oh) {
          const Index kd = id - od * p.stride[0] - p.offset[0], kh = ih - oh * p.stride[1] - p.offset[1];
          const T* const dy_row = &element.dy(n, od, oh, 0, 0);
          const std::int32_t* const a_row = &element.argmax(n, od, oh, 0, 0);
          for (Index ow = w.begin; ow < w.end; ++ow) {
            const Index kw = iw - ow * p.stride[2] - p.offset[2];
            const auto position = static_cast<std::int32_t>((kd * p.window[1] + kh) * p.window[2] + kw);
            const T* const dy = dy_row + ow * dy_w;
            const std::int32_t* const a = a_row + ow * a_w;
            for (Index c = 0; c < channels; ++c) dx[c] += a[c] == position ? dy[c] : T(0);
          }
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
  Tensor<T, Exec> y;

  KOKKOS_FUNCTION void operator()(const Index i) const {
    const Index n = i / rows.channels, c = i % rows.channels;
    double sum = 0;
    for (Index d = 0; d < rows.depth; ++d)
      for (Index h = 0; h < rows.height; ++h)
        for (Index w = 0; w < rows.width; ++w) sum += static_cast<double>(x(n, d, h, w, c));
    y(n, 0, 0, 0, c) = static_cast<T>(scale * sum);
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
  const detail::MaxForward<T, Exec> element{p, rows, x, y, argmax, wants_argmax, -std::numeric_limits<T>::infinity()};
  if constexpr (detail::runs_on_host<Exec>) {
    if (detail::has_contiguous_channels(x) && detail::has_contiguous_channels(y) &&
        (!wants_argmax || detail::has_contiguous_channels(argmax))) {
      Kokkos::parallel_for("aloni::nn::max_pool_forward", detail::Range<Exec>(exec, 0, rows.rows()),
                           detail::MaxForwardRow<T, Exec>{element});
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
  if constexpr (detail::runs_on_host<Exec>) {
    if (dy.size() > 0 && detail::has_contiguous_channels(dx) && detail::has_contiguous_channels(dy) &&
        detail::has_contiguous_channels(argmax)) {
      Kokkos::parallel_for("aloni::nn::max_pool_backward", detail::Range<Exec>(exec, 0, rows.rows()),
                           detail::MaxBackwardRow<T, Exec>{element});
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
void global_average_forward(const Exec& exec, double scale, InTensor<T, Exec> x, Tensor<T, Exec> y) {
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

#define INSTANTIATE(T, Exec)                                                                                           \
  template void max_pool_forward<T, Exec>(const Exec&, const PoolingProblem&, InTensor<T, Exec>, Tensor<T, Exec>,      \
                                          OutTensor<std::int32_t, Exec>);                                              \
  template void max_pool_backward<T, Exec>(const Exec&, const PoolingProblem&, InTensor<T, Exec>,                      \
                                           InTensor<std::int32_t, Exec>, Tensor<T, Exec>);                             \
  template void average_pool_forward<T, Exec>(const Exec&, const PoolingProblem&, AverageDivisor, InTensor<T, Exec>,   \
                                              Tensor<T, Exec>);                                                        \
  template void average_pool_backward<T, Exec>(const Exec&, const PoolingProblem&, AverageDivisor, InTensor<T, Exec>,  \
                                               Tensor<T, Exec>);                                                       \
  template void global_average_forward<T, Exec>(const Exec&, double, InTensor<T, Exec>, Tensor<T, Exec>);              \
  template void global_average_backward<T, Exec>(const Exec&, double, InTensor<T, Exec>, Tensor<T, Exec>);
ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local
