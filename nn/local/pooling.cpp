#include <aloni/nn/local/pooling.hpp>

#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/execution.hpp>
#include <aloni/nn/local/detail/pool_kernels.hpp>
#include <aloni/nn/local/detail/window_kernels.hpp>

#include <algorithm>
#include <type_traits>

namespace aloni::nn::local {

namespace detail {

/// Windows of equal extents and strides. `divisor` is for means.
struct PoolWindows {
  using Share = Index;  ///< dy is divided by it
  PoolingProblem p;
  AverageDivisor average = AverageDivisor::window;

  KOKKOS_FUNCTION Interval inputs(int s, Index o) const {
    const Index first = o * p.stride[s] + p.offset[s], end = first + p.window[s];
    return {first < 0 ? 0 : first, p.input[s] < end ? p.input[s] : end};
  }
  KOKKOS_FUNCTION Interval outputs(int s, Index i) const {
    // o * stride ≤ i - offset and o * stride > i - offset - window
    const Index last = i - p.offset[s], first = last - p.window[s] + 1;
    if (last < 0) return {0, 0};
    const Index begin = first <= 0 ? 0 : (first + p.stride[s] - 1) / p.stride[s];
    const Index end = last / p.stride[s] + 1;
    return {begin, end < p.output[s] ? end : p.output[s]};
  }
  KOKKOS_FUNCTION Index extent(int s, Index) const { return p.window[s]; }
  KOKKOS_FUNCTION Index position(int s, Index o, Index i) const { return i - o * p.stride[s] - p.offset[s]; }

  KOKKOS_FUNCTION static double weight(int, Index, Index) { return 1; }
  KOKKOS_FUNCTION Index divisor(const Window& inputs) const {
    return average == AverageDivisor::window ? p.window[0] * p.window[1] * p.window[2] : inputs.elements();
  }
  KOKKOS_FUNCTION Share share(int s, Index o, Index) const {
    return average == AverageDivisor::window ? p.window[s] : length(inputs(s, o));
  }
  KOKKOS_FUNCTION static double part(Share share, double dy) { return dy / static_cast<double>(share); }
};

/// Outputs o for which the inputs [o * stride + shift, o * stride + shift + reach) all exist.
KOKKOS_INLINE_FUNCTION Interval outputs_within(const PoolingProblem& p, int s, Index shift, Index reach) {
  const Index room = p.input[s] - reach - shift;
  const Index end = room < 0 ? 0 : room / p.stride[s] + 1;
  return {shift >= 0 ? 0 : (-shift + p.stride[s] - 1) / p.stride[s], end < p.output[s] ? end : p.output[s]};
}

template <class View>
Index stride_of(const View& v, int i) {
  return static_cast<Index>(v.stride(i));
}

/// Max pooling of one row of outputs by the vector kernels of a host. @pre contiguous channels
template <class T, class Exec>
struct MaxForwardRow {
  Gather<MaxForward<PoolWindows, T, Exec>> all;
  const PoolKernels<T>* kernels;
  Interval inner;  ///< the windows of a row that lie inside it

  void operator()(const Index r) const {
    const auto& [windows, x, y, argmax, wants_argmax, relu] = all.kernel;
    const PoolingProblem& p = windows.p;
    Index n, od, oh;
    all.rows.row(r, n, od, oh);
    const Interval d = windows.inputs(0, od), h = windows.inputs(1, oh);
    const Index depth = length(d), height = length(h);
    // Pixels whose windows lie inside the row share one list of taps. Pixels at the edges are computed one by one.
    constexpr Index most_taps = 64;  // larger windows are rare
    const Index num_taps = depth * height * p.window[2];
    const Interval vectors = num_taps == 0 || num_taps > most_taps ? Interval{0, 0} : inner;
    for (Index ow = 0; ow < vectors.lo; ++ow) all.pixel(d, h, n, od, oh, ow);
    for (Index ow = vectors.hi; ow < p.output[2]; ++ow) all.pixel(d, h, n, od, oh, ow);
    if (vectors.empty()) return;
    PoolTap taps[most_taps];
    Index count = 0;
    for (Index id = d.lo; id < d.hi; ++id)
      for (Index ih = h.lo; ih < h.hi; ++ih)
        for (Index kw = 0; kw < p.window[2]; ++kw) {
          const Index position =
              (windows.position(0, od, id) * p.window[1] + windows.position(1, oh, ih)) * p.window[2] + kw;
          taps[count++] = {(id - d.lo) * stride_of(x, 1) + (ih - h.lo) * stride_of(x, 2) + kw * stride_of(x, 3),
                           static_cast<std::int32_t>(position)};
        }
    T* const to = &y(n, od, oh, vectors.lo, 0);
    const Index y_pixel = stride_of(y, 3);
    kernels->max_forward({.x = &x(n, d.lo, h.lo, vectors.lo * p.stride[2] + p.offset[2], 0),
                          .x_end = &x(n, d.hi - 1, h.hi - 1, p.input[2] - 1, 0) + p.channels,
                          .x_pixel = p.stride[2] * stride_of(x, 3),
                          .taps = taps,
                          .num_taps = count,
                          .y = to,
                          .y_end = to + (length(vectors) - 1) * y_pixel + p.channels,
                          .y_pixel = y_pixel,
                          .argmax = wants_argmax ? &argmax(n, od, oh, vectors.lo, 0) : nullptr,
                          .argmax_pixel = wants_argmax ? stride_of(argmax, 3) : 0,
                          .pixels = length(vectors),
                          .channels = p.channels,
                          .relu = relu});
  }
};

/// Gradients of one row of inputs by the vector kernels of a host. @pre contiguous channels
template <class T, class Exec>
struct MaxBackwardRow {
  Gather<MaxBackward<PoolWindows, T, Exec>> all;
  const PoolKernels<T>* kernels;
  Interval inner;  ///< the windows of a row that lie inside it

  void operator()(const Index r) const {
    const auto& [windows, dy, argmax, dx] = all.kernel;
    const PoolingProblem& p = windows.p;
    Index n, id, ih;
    all.rows.row(r, n, id, ih);
    const Interval d = windows.outputs(0, id), h = windows.outputs(1, ih);
    if (p.window[2] == p.stride[2] && length(d) * length(h) == 1)
      set_row(n, id, ih, d.lo, h.lo);
    else
      add_rows(n, id, ih, d, h);
  }

  void fill(T* row, Index begin, Index end) const {
    const auto& dx = all.kernel.dx;
    const Index channels = all.kernel.windows.p.channels, pixel = stride_of(dx, 3);
    if (pixel == channels)
      std::fill(row + begin * pixel, row + std::max(begin, end) * pixel, T(0));
    else
      for (Index w = begin; w < end; ++w) std::fill(row + w * pixel, row + w * pixel + channels, T(0));
  }

  /// For the columns [column, column + columns) of the windows [windows.lo, windows.hi) of a row.
  MaxBackwardArguments<T> arguments(Index n, Index id, Index ih, Index od, Index oh, const Interval& pixels,
                                    Index column, Index columns) const {
    const auto& [windows, dy, argmax, dx] = all.kernel;
    const PoolingProblem& p = windows.p;
    const Index dx_pixel = stride_of(dx, 3), dy_pixel = stride_of(dy, 3), argmax_pixel = stride_of(argmax, 3);
    const T* const from = &dy(n, od, oh, 0, 0);
    const std::int32_t* const positions = &argmax(n, od, oh, 0, 0);
    T* const to = &dx(n, id, ih, 0, 0);
    const Index row = windows.position(0, od, id) * p.window[1] + windows.position(1, oh, ih);
    return {.dy = from + pixels.lo * dy_pixel,
            .dy_end = from + (p.output[2] - 1) * dy_pixel + p.channels,
            .dy_pixel = dy_pixel,
            .argmax = positions + pixels.lo * argmax_pixel,
            .argmax_end = positions + (p.output[2] - 1) * argmax_pixel + p.channels,
            .argmax_pixel = argmax_pixel,
            .position = static_cast<std::int32_t>(row * p.window[2] + column),
            .dx = to + (pixels.lo * p.stride[2] + p.offset[2] + column) * dx_pixel,
            .dx_end = to + (p.input[2] - 1) * dx_pixel + p.channels,
            .dx_stride = p.stride[2] * dx_pixel,
            .dx_pixel = dx_pixel,
            .columns = columns,
            .dense = dx_pixel == p.channels,
            .pixels = length(pixels),
            .channels = p.channels};
  }

  /// One row of windows contains the row of inputs, and its windows do not overlap.
  void set_row(Index n, Index id, Index ih, Index od, Index oh) const {
    const auto& [windows, dy, argmax, dx] = all.kernel;
    const PoolingProblem& p = windows.p;
    T* const to = &dx(n, id, ih, 0, 0);
    Interval inputs{0, 0};  // of the windows inside the row
    if (!inner.empty()) {
      kernels->max_backward_disjoint(arguments(n, id, ih, od, oh, inner, 0, p.window[2]));
      inputs = {inner.lo * p.stride[2] + p.offset[2], inner.hi * p.stride[2] + p.offset[2]};
    }
    fill(to, 0, inputs.lo);
    fill(to, inputs.hi, p.input[2]);
    if (length(inner) == p.output[2]) return;
    // Windows at the edges.
    for (Index column = 0; column < p.window[2]; ++column) {
      const Interval outputs = outputs_within(p, 2, column + p.offset[2], 1);
      for (const Interval& edge :
           {Interval{outputs.lo, std::min(outputs.hi, inner.lo)}, Interval{std::max(outputs.lo, inner.hi), outputs.hi}})
        if (!edge.empty()) kernels->max_backward(arguments(n, id, ih, od, oh, edge, column, 1));
    }
  }

  /// Each row of windows that contains the row of inputs, and each column of the window, adds its part.
  void add_rows(Index n, Index id, Index ih, const Interval& d, const Interval& h) const {
    const PoolingProblem& p = all.kernel.windows.p;
    fill(&all.kernel.dx(n, id, ih, 0, 0), 0, p.input[2]);
    for (Index od = d.lo; od < d.hi; ++od)
      for (Index oh = h.lo; oh < h.hi; ++oh)
        for (Index column = 0; column < p.window[2]; ++column) {
          const Interval inner = outputs_within(p, 2, column + p.offset[2], 1);
          if (!inner.empty()) kernels->max_backward(arguments(n, id, ih, od, oh, inner, column, 1));
        }
  }
};

/// Max pooling: by `Row` where a host has vector kernels for T and `contiguous` holds, otherwise by the general loop.
template <template <class, class> class Row, class T, class Exec, class View, class Kernel>
void max_pool(const Exec& exec, const char* label, const View& result, bool contiguous, const Kernel& kernel) {
  const Rows rows = rows_of(result);
  if (rows.elements() == 0) return;
  if constexpr (runs_on_host<Exec> && !is_16_bit(element_type<T>)) {
    if (contiguous) {
      const PoolingProblem& p = kernel.windows.p;
      Interval inner = outputs_within(p, 2, p.offset[2], p.window[2]);
      if (inner.empty()) inner = {0, 0};
      Kokkos::parallel_for(label, Range<Exec>(exec, 0, rows.rows()),
                           Row<T, Exec>{{rows, kernel}, &pool_kernels<T>(), inner});
      return;
    }
  }
  gather(exec, label, result, kernel);
}

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

  KOKKOS_FUNCTION void element(Index n, Index d, Index h, Index w, Index c) const {
    dx(n, d, h, w, c) = static_cast<T>(scale * static_cast<double>(dy(n, 0, 0, 0, c)));
  }
};

}  // namespace detail

template <class T, class Exec>
void max_pool_forward(const Exec& exec, const PoolingProblem& p, InTensor<T, Exec> x, Tensor<T, Exec> y,
                      OutTensor<std::int32_t, Exec> argmax, bool relu) {
  constexpr auto operation = "aloni::nn::local::max_pool_forward";
  detail::check_boxes(operation, p, "x", x, "y", y);
  const bool wants_argmax = argmax.data() != nullptr && argmax.size() > 0;
  if (wants_argmax) detail::check_same_extents(operation, "argmax", argmax, y);
  const bool contiguous = detail::has_contiguous_channels(x) && detail::has_contiguous_channels(y) &&
                          (!wants_argmax || detail::has_contiguous_channels(argmax));
  detail::max_pool<detail::MaxForwardRow, T>(
      exec, "aloni::nn::max_pool_forward", y, contiguous,
      detail::MaxForward<detail::PoolWindows, T, Exec>{{p}, x, y, argmax, wants_argmax, relu});
}

template <class T, class Exec>
void max_pool_backward(const Exec& exec, const PoolingProblem& p, InTensor<T, Exec> dy,
                       InTensor<std::int32_t, Exec> argmax, Tensor<T, Exec> dx) {
  constexpr auto operation = "aloni::nn::local::max_pool_backward";
  detail::check_boxes(operation, p, "dx", dx, "dy", dy);
  detail::check_same_extents(operation, "argmax", argmax, dy);
  const bool contiguous = dy.size() > 0 && detail::has_contiguous_channels(dx) && detail::has_contiguous_channels(dy) &&
                          detail::has_contiguous_channels(argmax);
  detail::max_pool<detail::MaxBackwardRow, T>(exec, "aloni::nn::max_pool_backward", dx, contiguous,
                                              detail::MaxBackward<detail::PoolWindows, T, Exec>{{p}, dy, argmax, dx});
}

template <class T, class Exec>
void average_pool_forward(const Exec& exec, const PoolingProblem& p, AverageDivisor divisor, InTensor<T, Exec> x,
                          Tensor<T, Exec> y) {
  detail::check_boxes("aloni::nn::local::average_pool_forward", p, "x", x, "y", y);
  detail::gather(exec, "aloni::nn::average_pool_forward", y,
                 detail::MeanForward<detail::PoolWindows, T, Exec>{{p, divisor}, x, y});
}

template <class T, class Exec>
void average_pool_backward(const Exec& exec, const PoolingProblem& p, AverageDivisor divisor, InTensor<T, Exec> dy,
                           Tensor<T, Exec> dx) {
  detail::check_boxes("aloni::nn::local::average_pool_backward", p, "dx", dx, "dy", dy);
  detail::gather(exec, "aloni::nn::average_pool_backward", dx,
                 detail::MeanBackward<detail::PoolWindows, T, Exec>{{p, divisor}, dy, dx});
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
  detail::for_each_element(exec, "aloni::nn::global_average_backward",
                           detail::GlobalAverageBackward<T, Exec>{scale, rows, dy, dx});
}

#define INSTANTIATE(T, Exec)                                                                                          \
  template void max_pool_forward<T, Exec>(const Exec&, const PoolingProblem&, InTensor<T, Exec>, Tensor<T, Exec>,     \
                                          OutTensor<std::int32_t, Exec>, bool);                                       \
  template void max_pool_backward<T, Exec>(const Exec&, const PoolingProblem&, InTensor<T, Exec>,                     \
                                           InTensor<std::int32_t, Exec>, Tensor<T, Exec>);                            \
  template void average_pool_forward<T, Exec>(const Exec&, const PoolingProblem&, AverageDivisor, InTensor<T, Exec>,  \
                                              Tensor<T, Exec>);                                                       \
  template void average_pool_backward<T, Exec>(const Exec&, const PoolingProblem&, AverageDivisor, InTensor<T, Exec>, \
                                               Tensor<T, Exec>);                                                      \
  template void global_average_forward<T, Exec>(const Exec&, double, InTensor<T, Exec>,                               \
                                                OutTensor<parameter_type_t<T>, Exec>);                                \
  template void global_average_backward<T, Exec>(const Exec&, double, InTensor<T, Exec>, Tensor<T, Exec>);
ALONI_INSTANTIATE_LAYERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local
