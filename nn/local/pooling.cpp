#include <aloni/nn/local/pooling.hpp>

#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/column_sums.hpp>
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

struct PoolTaps {
  PoolTap list[most_pool_taps];
  Index count = 0;
};

inline bool fit_taps(Index rows, Index columns) { return rows > 0 && rows * columns <= most_pool_taps; }

/// The elements, in `x`, of the windows in the row (od, oh) that lie inside the rows of inputs. @pre fit_taps()
template <class View>
PoolTaps taps_of(const PoolWindows& windows, const View& x, Index od, Index oh) {
  const PoolingProblem& p = windows.p;
  const Interval d = windows.inputs(0, od), h = windows.inputs(1, oh);
  PoolTaps taps;
  for (Index id = d.lo; id < d.hi; ++id)
    for (Index ih = h.lo; ih < h.hi; ++ih) {
      const Index row = windows.position(0, od, id) * p.window[1] + windows.position(1, oh, ih);
      const Index from = (id - d.lo) * stride_of(x, 1) + (ih - h.lo) * stride_of(x, 2);
      for (Index k = 0; k < p.window[2]; ++k)
        taps.list[taps.count++] = {from + k * stride_of(x, 3), static_cast<std::int32_t>(row * p.window[2] + k)};
    }
  return taps;
}

/// Max pooling of one row of outputs by the vector kernels of a host. @pre contiguous channels
template <class T, class Exec>
struct MaxForwardRow {
  Gather<MaxForward<PoolWindows, T, Exec, true>> all;
  const PoolKernels<T>* kernels;
  Interval inner;  ///< the windows of a row that lie inside it

  void operator()(const Index r) const {
    const auto& [windows, x, y, argmax, wants_argmax, relu] = all.kernel;
    const PoolingProblem& p = windows.p;
    Index n, od, oh;
    all.rows.row(r, n, od, oh);
    const Interval d = windows.inputs(0, od), h = windows.inputs(1, oh);
    // Pixels whose windows lie inside the row share one list of taps. Pixels at the edges are computed one by one.
    const Interval vectors = fit_taps(length(d) * length(h), p.window[2]) ? inner : Interval{0, 0};
    for (Index ow = 0; ow < vectors.lo; ++ow) all.pixel(d, h, n, od, oh, ow);
    for (Index ow = vectors.hi; ow < p.output[2]; ++ow) all.pixel(d, h, n, od, oh, ow);
    if (vectors.empty()) return;
    const PoolTaps taps = taps_of(windows, x, od, oh);
    T* const to = &y(n, od, oh, vectors.lo, 0);
    const Index y_pixel = stride_of(y, 3);
    kernels->max_forward({.x = &x(n, d.lo, h.lo, vectors.lo * p.stride[2] + p.offset[2], 0),
                          .x_end = &x(n, d.hi - 1, h.hi - 1, p.input[2] - 1, 0) + p.channels,
                          .x_pixel = p.stride[2] * stride_of(x, 3),
                          .taps = taps.list,
                          .num_taps = taps.count,
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

/// Gradients of rows of inputs by the vector kernels of a host, for a loop over rows of inputs, or of windows if these
/// do not overlap. @pre contiguous channels
template <class T, class Exec>
struct MaxBackwardRows {
  Rows rows;  ///< of the loop
  MaxBackward<PoolWindows, T, Exec> kernel;
  const PoolKernels<T>* kernels;
  Interval inner;  ///< the windows of a row that lie inside it

  void fill(T* row, Index begin, Index end) const {
    const Index channels = kernel.windows.p.channels, pixel = stride_of(kernel.dx, 3);
    if (pixel == channels)
      std::fill(row + begin * pixel, row + std::max(begin, end) * pixel, T(0));
    else
      for (Index w = begin; w < end; ++w) std::fill(row + w * pixel, row + w * pixel + channels, T(0));
  }

  /// Of the windows `pixels` of a row. `column`: that of the taps' first element in the window.
  MaxBackwardArguments<T> arguments(Index n, Index id, Index ih, Index od, Index oh, const Interval& pixels,
                                    Index column, const PoolTap* taps, Index num_taps, Index reach) const {
    const auto& [windows, dy, argmax, dx] = kernel;
    const PoolingProblem& p = windows.p;
    const Index dx_pixel = stride_of(dx, 3), dy_pixel = stride_of(dy, 3), argmax_pixel = stride_of(argmax, 3);
    const T* const from = &dy(n, od, oh, 0, 0);
    const std::int32_t* const positions = &argmax(n, od, oh, 0, 0);
    T* const to = &dx(n, id, ih, 0, 0);
    return {.dy = from + pixels.lo * dy_pixel,
            .dy_end = from + (p.output[2] - 1) * dy_pixel + p.channels,
            .dy_pixel = dy_pixel,
            .argmax = positions + pixels.lo * argmax_pixel,
            .argmax_end = positions + (p.output[2] - 1) * argmax_pixel + p.channels,
            .argmax_pixel = argmax_pixel,
            .taps = taps,
            .num_taps = num_taps,
            .reach = reach,
            .dx = to + (pixels.lo * p.stride[2] + p.offset[2] + column) * dx_pixel,
            .dx_end = to + (p.input[2] - 1) * dx_pixel + p.channels,
            .dx_stride = p.stride[2] * dx_pixel,
            .dense = dx_pixel == p.channels,
            .pixels = length(pixels),
            .channels = p.channels};
  }

  /// Adds what the element in `column` of the windows `pixels` of one row passes on to a row of inputs.
  void add(Index n, Index id, Index ih, Index od, Index oh, const Interval& pixels, Index column) const {
    const PoolWindows& windows = kernel.windows;
    const Index row = windows.position(0, od, id) * windows.p.window[1] + windows.position(1, oh, ih);
    const PoolTap tap{0, static_cast<std::int32_t>(row * windows.p.window[2] + column)};
    if (!pixels.empty()) kernels->max_backward(arguments(n, id, ih, od, oh, pixels, column, &tap, 1, 0));
  }
};

/// An index of the loop is a row of inputs: each row of windows that contains it, and each column of the window, adds
/// its part.
template <class T, class Exec>
struct MaxBackwardByInputs : MaxBackwardRows<T, Exec> {
  void operator()(const Index r) const {
    const PoolWindows& windows = this->kernel.windows;
    const PoolingProblem& p = windows.p;
    Index n, id, ih;
    this->rows.row(r, n, id, ih);
    this->fill(&this->kernel.dx(n, id, ih, 0, 0), 0, p.input[2]);
    const Interval d = windows.outputs(0, id), h = windows.outputs(1, ih);
    for (Index od = d.lo; od < d.hi; ++od)
      for (Index oh = h.lo; oh < h.hi; ++oh)
        for (Index column = 0; column < p.window[2]; ++column)
          this->add(n, id, ih, od, oh, outputs_within(p, 2, column + p.offset[2], 1), column);
  }
};

/// An index of the loop is a row of windows, which do not overlap: it sets the rows of inputs from its first row up to
/// the first one of the next windows. The first windows set the rows before them too, the last ones those behind them.
template <class T, class Exec>
struct MaxBackwardByWindows : MaxBackwardRows<T, Exec> {
  static bool serves(const PoolingProblem& p) {
    return p.window[0] <= p.stride[0] && p.window[1] <= p.stride[1] && p.window[2] == p.stride[2] &&
           fit_taps(p.window[0] * p.window[1], p.window[2]);
  }

  void operator()(const Index r) const {
    const auto& [windows, dy, argmax, dx] = this->kernel;
    const PoolingProblem& p = windows.p;
    const Interval inner = this->inner;
    Index n, od, oh;
    this->rows.row(r, n, od, oh);
    const Interval d = windows.inputs(0, od), h = windows.inputs(1, oh);
    Interval columns{0, 0};  // of the windows inside the row
    if (!inner.empty()) {
      columns = {inner.lo * p.stride[2] + p.offset[2], inner.hi * p.stride[2] + p.offset[2]};
      if (length(d) * length(h) > 0) {
        const PoolTaps taps = taps_of(windows, dx, od, oh);
        this->kernels->max_backward_disjoint(this->arguments(n, d.lo, h.lo, od, oh, inner, 0, taps.list, taps.count,
                                                             (p.window[2] - 1) * stride_of(dx, 3)));
      }
    }
    // Vectors of the last window may have written into the columns behind it.
    const Interval all_d = owned(0, od), all_h = owned(1, oh);
    for (Index id = all_d.lo; id < all_d.hi; ++id)
      for (Index ih = all_h.lo; ih < all_h.hi; ++ih) {
        T* const row = &dx(n, id, ih, 0, 0);
        if (id < d.lo || id >= d.hi || ih < h.lo || ih >= h.hi) {
          this->fill(row, 0, p.input[2]);
          continue;
        }
        this->fill(row, 0, columns.lo);
        this->fill(row, columns.hi, p.input[2]);
        if (length(inner) == p.output[2]) continue;
        for (Index column = 0; column < p.window[2]; ++column) {
          const Interval outputs = outputs_within(p, 2, column + p.offset[2], 1);
          this->add(n, id, ih, od, oh, {outputs.lo, std::min(outputs.hi, inner.lo)}, column);
          this->add(n, id, ih, od, oh, {std::max(outputs.lo, inner.hi), outputs.hi}, column);
        }
      }
  }

 private:
  /// The inputs of dimension s that the row `o` of windows sets.
  Interval owned(int s, Index o) const {
    const PoolingProblem& p = this->kernel.windows.p;
    const auto first = [&](Index window) {
      return std::clamp(window * p.stride[s] + p.offset[s], Index{0}, p.input[s]);
    };
    return {o == 0 ? 0 : first(o), o + 1 == p.output[s] ? p.input[s] : first(o + 1)};
  }
};

/// The windows of a row that lie inside it.
inline Interval inner_windows(const PoolingProblem& p) {
  const Interval inner = outputs_within(p, 2, p.offset[2], p.window[2]);
  return inner.empty() ? Interval{0, 0} : inner;
}

/// Whether a host has vector kernels for activations of type T.
template <class T, class Exec>
inline constexpr bool has_pool_kernels = runs_on_host<Exec> && !is_16_bit(element_type<T>);

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

/// On a host. An index of the loop is a block of channels of a sample. @pre contiguous channels
template <class T, class Exec>
struct GlobalAverageBlocks {
  GlobalAverageForward<T, Exec> all;
  ColumnBlocks blocks;

  void operator()(const Index i) const {
    const auto& [scale, rows, x, y] = all;
    const Index n = blocks.matrix(i), first = blocks.first(i), length = blocks.length(i), pixel = stride_of(x, 3);
    ColumnSums sums(length);
    for (Index d = 0; d < rows.depth; ++d)
      for (Index h = 0; h < rows.height; ++h) {
        const T* const row = &x(n, d, h, 0, first);
        for (Index w = 0; w < rows.width; ++w) sums.add(row + w * pixel);
      }
    for (Index k = 0; k < length; ++k) y(n, 0, 0, 0, first + k) = static_cast<parameter_type_t<T>>(scale * sums[k]);
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
  constexpr auto label = "aloni::nn::max_pool_forward";
  if constexpr (detail::has_pool_kernels<T, Exec>) {
    const detail::Rows rows = detail::rows_of(y);
    if (contiguous && rows.elements() > 0) {
      Kokkos::parallel_for(
          label, detail::Range<Exec>(exec, 0, rows.rows()),
          detail::MaxForwardRow<T, Exec>{
              {rows, {{p}, x, y, argmax, wants_argmax, relu}}, &detail::pool_kernels<T>(), detail::inner_windows(p)});
      return;
    }
  }
  detail::gather(exec, label, y,
                 detail::MaxForward<detail::PoolWindows, T, Exec>{{p}, x, y, argmax, wants_argmax, relu});
}

template <class T, class Exec>
void max_pool_backward(const Exec& exec, const PoolingProblem& p, InTensor<T, Exec> dy,
                       InTensor<std::int32_t, Exec> argmax, Tensor<T, Exec> dx) {
  constexpr auto operation = "aloni::nn::local::max_pool_backward";
  detail::check_boxes(operation, p, "dx", dx, "dy", dy);
  detail::check_same_extents(operation, "argmax", argmax, dy);
  constexpr auto label = "aloni::nn::max_pool_backward";
  const detail::MaxBackward<detail::PoolWindows, T, Exec> kernel{{p}, dy, argmax, dx};
  if constexpr (detail::has_pool_kernels<T, Exec>) {
    if (dy.size() > 0 && dx.size() > 0 && detail::has_contiguous_channels(dx) && detail::has_contiguous_channels(dy) &&
        detail::has_contiguous_channels(argmax)) {
      const auto loop = [&]<class Body>(const detail::Rows& rows, std::type_identity<Body>) {
        Kokkos::parallel_for(label, detail::Range<Exec>(exec, 0, rows.rows()),
                             Body{{rows, kernel, &detail::pool_kernels<T>(), detail::inner_windows(p)}});
      };
      using ByWindows = detail::MaxBackwardByWindows<T, Exec>;
      if (ByWindows::serves(p))
        loop(detail::rows_of(dy), std::type_identity<ByWindows>{});
      else
        loop(detail::rows_of(dx), std::type_identity<detail::MaxBackwardByInputs<T, Exec>>{});
      return;
    }
  }
  detail::gather(exec, label, dx, kernel);
}

template <class T, class Exec>
void average_pool_forward(const Exec& exec, const PoolingProblem& p, AverageDivisor divisor, InTensor<T, Exec> x,
                          Tensor<T, Exec> y) {
  detail::check_boxes("aloni::nn::local::average_pool_forward", p, "x", x, "y", y);
  const auto kernel = [&]<bool dense>(std::bool_constant<dense>) {
    return detail::MeanForward<detail::PoolWindows, T, Exec, dense>{{p, divisor}, x, y};
  };
  detail::gather_channels(exec, "aloni::nn::average_pool_forward", kernel, y, x);
}

template <class T, class Exec>
void average_pool_backward(const Exec& exec, const PoolingProblem& p, AverageDivisor divisor, InTensor<T, Exec> dy,
                           Tensor<T, Exec> dx) {
  detail::check_boxes("aloni::nn::local::average_pool_backward", p, "dx", dx, "dy", dy);
  const auto kernel = [&]<bool dense>(std::bool_constant<dense>) {
    return detail::MeanBackward<detail::PoolWindows, T, Exec, dense>{{p, divisor}, dy, dx};
  };
  detail::gather_channels(exec, "aloni::nn::average_pool_backward", kernel, dx, dy);
}

template <class T, class Exec>
void global_average_forward(const Exec& exec, double scale, InTensor<T, Exec> x,
                            OutTensor<parameter_type_t<T>, Exec> y) {
  const detail::Rows rows = detail::rows_of(x);
  detail::check_extents("aloni::nn::local::global_average_forward", "y", y, {rows.samples, 1, 1, 1, rows.channels});
  constexpr auto label = "aloni::nn::global_average_forward";
  const detail::GlobalAverageForward<T, Exec> kernel{scale, rows, x, y};
  if constexpr (detail::runs_on_host<Exec>) {
    if (rows.elements() > 0 && rows.channels >= detail::least_columns && detail::has_contiguous_channels(x)) {
      const detail::ColumnBlocks blocks = detail::blocks_of_columns(rows.channels, rows.samples, exec.concurrency());
      Kokkos::parallel_for(label, detail::Range<Exec>(exec, 0, blocks.count()),
                           detail::GlobalAverageBlocks<T, Exec>{kernel, blocks});
      return;
    }
  }
  Kokkos::parallel_for(label, detail::Range<Exec>(exec, 0, rows.samples * rows.channels), kernel);
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
