#include <aloni/nn/compiled_activations.hpp>
#include <aloni/nn/local/detail/convolution_backends.hpp>
#include <aloni/nn/local/detail/depthwise_kernels.hpp>
#include <aloni/nn/local/detail/row_walker.hpp>

#include <algorithm>
#include <numeric>
#include <vector>

// Depthwise convolution on a host. Rows of the result are shared out among the threads; detail/depthwise_kernels.hpp
// does the arithmetic. Memory limits these convolutions, not arithmetic, so rows are read and written in place. Pixels
// whose windows lie inside the row run together. Pixels at its ends run one by one with the taps that they have, so no
// zeros are copied.
//
// Backward-data is the same sum as forward, over dy with the taps in reverse order, for every residue of a column
// modulo the stride. Filters that share a channel (a depth multiplier) read a copied row with each channel repeated for
// each of them. Views whose channels are not contiguous are copied row by row too.

namespace aloni::nn::local::detail {

/// How the pixels of a row read another row: pixel q reads through tap m column first + q * step + m * tap, if it is
/// inside.
struct Reach {
  Index pixels, taps;
  Index first, step, tap;
  Index width;  ///< of the source row

  bool inside(Index q, Index m) const {
    const Index column = first + q * step + m * tap;
    return column >= 0 && column < width;
  }
  /// The pixels [begin, end) that read inside through all taps.
  void interior(Index& begin, Index& end) const {
    const Index last = first + std::max<Index>(0, taps - 1) * tap, lo = std::min(first, last),
                hi = std::max(first, last);
    begin = lo >= 0 ? 0 : std::min(pixels, (-lo + step - 1) / step);
    end = hi >= width ? begin : std::clamp<Index>((width - 1 - hi) / step + 1, begin, pixels);
    if (taps == 0) begin = 0, end = pixels;
  }
};

template <class T, class Exec>
class DepthwiseConvolution final : public LocalConvolution<T, Exec> {
 public:
  DepthwiseConvolution(const ConvolutionProblem& problem, const Exec& exec, ConvolutionPasses passes)
      : LocalConvolution<T, Exec>(problem, passes),
        p_(problem),
        kernels_(depthwise_kernels<T>()),
        threads_(std::max<Index>(1, exec.concurrency())),
        multiplier_(problem.filters_per_group()),
        taps_(problem.kernel[0] * problem.kernel[1] * problem.kernel[2]) {
    RowScratch<T>& s = scratch_;
    auto slots = [&](Index d, Index h, Index width) {
      s.slots_d = std::max(s.slots_d, d);
      s.slots_h = std::max(s.slots_h, h);
      s.slot = std::max(s.slot, width * p_.filters);
    };
    auto span = [&](int i) { return (p_.kernel[i] - 1) * p_.dilation[i] + 1; };
    if (passes.forward || passes.backward_data) weights_ = allocate(exec, taps_ * p_.filters);
    if (passes.forward) {
      slots(span(0), span(1), p_.input[2]);
      s.row = p_.output[2] * p_.filters;
    }
    if (passes.backward_data) {
      slots((span(0) - 1) / p_.stride[0] + 1, (span(1) - 1) / p_.stride[1] + 1, p_.output[2]);
      s.row = std::max(s.row, p_.input[2] * p_.filters);
    }
    if (passes.backward_filter) {
      slots(span(0), span(1), p_.input[2]);
      s.row = std::max(s.row, p_.output[2] * p_.filters);
      s.sums = (taps_ + 1) * p_.filters;
    }
    scratch_memory_ = allocate(exec, threads_ * s.elements());
    s.use(scratch_memory_.data(), threads_, p_.kernel[0] * p_.kernel[1]);
    if (!passes.backward_filter) return;
    x_rows_.resize(threads_, taps_);
    kernel_rows_.resize(threads_, taps_);
    x_.resize(threads_, taps_);
    sums_.resize(threads_, taps_);
  }

  std::string implementation(ConvolutionPass) const override {
    return std::string("direct depthwise ") + kernels_.name;
  }
  std::size_t workspace_bytes() const override { return (weights_.size() + scratch_memory_.size()) * sizeof(T); }

 private:
  using Memory = Kokkos::View<T*, typename Exec::memory_space>;

  // Most of the workspace is for views that need copies. Without them its pages stay untouched and cost no memory.
  static Memory allocate(const Exec& exec, Index elements) {
    return Memory(Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, "aloni::nn::depthwise_convolution_workspace"),
                  static_cast<std::size_t>(elements));
  }

  /// filters, taps -> taps, filters
  void pack_weights(const Exec& exec, const Tensor<const T, Exec>& w) const {
    share_out(exec, threads_, "aloni::nn::depthwise_convolution_pack_filters", filter_blocks(p_.filters),
              [=, this](Index, Index begin, Index end) {
                pack_filters(w.data(), p_.filters, taps_, p_.filters, begin, end, weights_.data());
              });
  }

  bool in_place(const Strided<const T>& x) const { return x.c == 1 && multiplier_ == 1; }

  /// A row of x with one value per filter. Pixels are x.w elements apart, or `filters` elements in a copy.
  const T* x_row(RowCache<T>& rows, const Strided<const T>& x, Index n, Index id, Index ih) const {
    if (in_place(x)) return x.row(n, id, ih);
    return rows.row(x, n, id, ih, p_.input[1], p_.input[0], 0, p_.input[2], p_.input[2], p_.filters, multiplier_);
  }

  /// Runs the kernel over the pixels and taps of `reach`; `a` has the other arguments.
  void run_row(DepthwiseRowArguments<T> a, const Reach& reach, Index x_pixel, Index w_first, Index w_tap) const {
    Index begin, end;
    reach.interior(begin, end);
    T* const y = a.y;
    a.x_pixel = reach.step * x_pixel;
    a.x_tap = reach.tap * x_pixel;
    a.w_tap = w_tap;
    auto run = [&](Index pixel, Index pixels, Index tap, Index taps) {
      a.x_first = (reach.first + pixel * reach.step + tap * reach.tap) * x_pixel;
      a.w_first = w_first + tap * w_tap;
      a.taps = taps;
      a.pixels = pixels;
      a.y = y + pixel * a.y_pixel;
      kernels_.row(a);
    };
    auto run_alone = [&](Index q) {
      Index tap = 0, tap_end = reach.taps;
      while (tap < tap_end && !reach.inside(q, tap)) ++tap;
      while (tap < tap_end && !reach.inside(q, tap_end - 1)) --tap_end;
      run(q, 1, tap, tap_end - tap);
    };
    for (Index q = 0; q < begin; ++q) run_alone(q);
    run(begin, end - begin, 0, reach.taps);
    for (Index q = end; q < reach.pixels; ++q) run_alone(q);
  }

  void run_forward(const Exec& exec, const Tensor<const T, Exec>& x, const Tensor<const T, Exec>& w,
                   const Array<const T, Exec>& bias, const Tensor<T, Exec>& y) override {
    pack_weights(exec, w);
    share_out(exec, threads_, "aloni::nn::depthwise_convolution_forward", rows_of(y).rows(),
              [=, this, from = strided(x), to = strided(y), b = bias.extent(0) > 0 ? bias.data() : nullptr](
                  Index thread, Index begin, Index end) { forward_rows(thread, begin, end, from, b, to); });
  }

  void forward_rows(Index thread, Index begin, Index end, const Strided<const T>& x, const T* bias,
                    const Strided<T>& y) {
    auto rows = scratch_.cache(thread);
    T* const buffer = scratch_.row_of(thread);
    const Reach reach{p_.output[2], p_.kernel[2], p_.offset[2], p_.stride[2], p_.dilation[2], p_.input[2]};
    DepthwiseRowArguments<T> a{};
    a.terms = scratch_.terms_of(thread);
    a.bias = bias;
    a.y_pixel = y.c == 1 ? y.w : p_.filters;
    a.channels = p_.filters;
    scratch_.template walk<ConvolutionPass::forward>(
        p_, thread, begin, end, weights_.data(), p_.kernel[2] * p_.filters,
        [&](Index n, Index id, Index ih) { return x_row(rows, x, n, id, ih); },
        [&](Index n, Index od, Index oh, Index num_terms) {
          T* const out = y.row(n, od, oh);
          a.num_terms = num_terms;
          a.y = y.c == 1 ? out : buffer;
          run_row(a, reach, in_place(x) ? x.w : p_.filters, 0, p_.filters);
          if (y.c != 1) write_row(buffer, p_.output[2], p_.filters, out, y);
        });
  }

  void run_backward_data(const Exec& exec, const Tensor<const T, Exec>& dy, const Tensor<const T, Exec>& w,
                         const Tensor<T, Exec>& dx) override {
    pack_weights(exec, w);
    share_out(exec, threads_, "aloni::nn::depthwise_convolution_backward_data", rows_of(dx).rows(),
              [=, this, from = strided(dy), to = strided(dx)](Index thread, Index begin, Index end) {
                backward_data_rows(thread, begin, end, from, to);
              });
  }

  void backward_data_rows(Index thread, Index begin, Index end, const Strided<const T>& dy, const Strided<T>& dx) {
    auto rows = scratch_.cache(thread);
    T* const buffer = scratch_.row_of(thread);
    const bool to_place = dx.c == 1 && multiplier_ == 1;
    const Index pixel = to_place ? dx.w : p_.filters;  // of the row written
    DepthwiseRowArguments<T> a{};
    a.terms = scratch_.terms_of(thread);
    a.y_pixel = p_.stride[2] * pixel;
    a.channels = p_.filters;
    RowTerm<T>* const terms = scratch_.terms_of(thread);
    scratch_.template walk<ConvolutionPass::backward_data>(
        p_, thread, begin, end, weights_.data(), p_.kernel[2] * p_.filters,
        [&](Index n, Index od, Index oh) {
          if (dy.c == 1) return dy.row(n, od, oh);
          return rows.row(dy, n, od, oh, p_.output[1], p_.output[0], 0, p_.output[2], p_.output[2], p_.filters);
        },
        [&](Index n, Index id, Index ih, Index num_terms) {
          a.num_terms = num_terms;
          // Ascending addresses: the row that is not cached yet comes last. It takes a fifth of the time of the
          // opposite order.
          std::reverse(terms, terms + a.num_terms);
          T* const out = dx.row(n, id, ih);
          T* const row = to_place ? out : buffer;
          for (Index residue = 0; residue < std::min(p_.stride[2], p_.input[2]); ++residue) {
            a.y = row + residue * pixel;
            Index last_tap, every;
            const Reach reach = columns_of(residue, last_tap, every);
            run_row(a, reach, dy.c == 1 ? dy.w : p_.filters, last_tap * p_.filters, -every * p_.filters);
          }
          if (!to_place) add_filters_of_channels(buffer, out, dx);
        });
  }

  /// dx of a row: the sums over the filters that share a channel.
  void add_filters_of_channels(const T* from, T* out, const Strided<T>& dx) const {
    const Index channels = p_.channels, multiplier = multiplier_;
    for (Index q = 0; q < p_.input[2]; ++q)
      for (Index c = 0; c < channels; ++c, from += multiplier)
        out[q * dx.w + c * dx.c] = std::accumulate(from, from + multiplier, T{0});
  }

  /// Columns residue, residue + stride, … of dx meet only the taps last_tap, last_tap - every, ….
  Reach columns_of(Index residue, Index& last_tap, Index& every) const {
    const Index stride = p_.stride[2], dilation = p_.dilation[2];
    every = stride / std::gcd(stride, dilation);
    last_tap = p_.kernel[2] - 1;
    while (last_tap >= 0 && (residue - p_.offset[2] - last_tap * dilation) % stride != 0) --last_tap;
    return {.pixels = (p_.input[2] - residue + stride - 1) / stride,
            .taps = last_tap < 0 ? 0 : last_tap / every + 1,
            .first = (residue - p_.offset[2] - last_tap * dilation) / stride,
            .step = 1,
            .tap = every * dilation / stride,
            .width = p_.output[2]};
  }

  void run_backward_filter(const Exec& exec, const Tensor<const T, Exec>& x, const Tensor<const T, Exec>& dy,
                           const Tensor<T, Exec>& dw, const Array<T, Exec>& db) override {
    const Index work = rows_of(dy).rows();
    share_out(exec, threads_, "aloni::nn::depthwise_convolution_backward_filter", work,
              [=, this, from_x = strided(x), from_dy = strided(dy)](Index thread, Index begin, Index end) {
                filter_sums(thread, begin, end, from_x, from_dy);
              });
    add_threads(exec, "aloni::nn::depthwise_convolution_add_threads", scratch_, threads_, std::min(threads_, work),
                p_.filters, p_.filters, taps_, dw, db);
  }

  /// Adds over rows [begin, end) of dy: sums[tap, filter], then sums[filter] of dy itself.
  void filter_sums(Index thread, Index begin, Index end, const Strided<const T>& x, const Strided<const T>& dy) {
    auto rows = scratch_.cache(thread);
    T* const sums = scratch_.sums_of(thread);
    std::fill(sums, sums + scratch_.sums, T{0});
    T* const buffer = scratch_.row_of(thread);
    const T** const x_rows = x_rows_.of(thread);  // rows that meet a row of dy
    const T** const used_x = x_.of(thread);
    T** const used_sums = sums_.of(thread);
    Index* const kernel_rows = kernel_rows_.of(thread);
    const Reach reach{p_.output[2], p_.kernel[2], p_.offset[2], p_.stride[2], p_.dilation[2], p_.input[2]};
    Index inner_begin, inner_end;
    reach.interior(inner_begin, inner_end);
    const Index pixel = in_place(x) ? x.w : p_.filters;
    DepthwiseFilterArguments<T> a{};
    a.x = used_x;
    a.sums = used_sums;
    a.bias_sums = sums + taps_ * p_.filters;
    a.x_pixel = reach.step * pixel;
    a.dy_pixel = dy.c == 1 ? dy.w : p_.filters;
    a.channels = p_.filters;
    const Rows outputs = output_rows(p_);
    for (Index r = begin; r < end; ++r) {
      Index n, od, oh, num_rows = 0;
      outputs.row(r, n, od, oh);
      const T* dy_row = dy.row(n, od, oh);
      if (dy.c != 1) {
        read_row(dy_row, dy, p_.output[2], p_.filters, buffer, p_.filters);
        dy_row = buffer;
      }
      for_each_kernel_row<ConvolutionPass::forward>(p_, od, oh, [&](Index kernel_row, Index id, Index ih) {
        x_rows[num_rows] = x_row(rows, x, n, id, ih);
        kernel_rows[num_rows++] = kernel_row;
      });
      auto add = [&](Index q, Index pixels) {
        a.values = 0;
        for (Index i = 0; i < num_rows; ++i)
          for (Index m = 0; m < reach.taps; ++m) {
            if (!reach.inside(q, m)) continue;
            used_x[a.values] = x_rows[i] + (reach.first + q * reach.step + m * reach.tap) * pixel;
            used_sums[a.values++] = sums + (kernel_rows[i] * reach.taps + m) * p_.filters;
          }
        a.dy = dy_row + q * a.dy_pixel;
        a.pixels = pixels;
        kernels_.filter(a);
      };
      // Enough pixels to pay for adding their sums to the total, few enough for the first-level cache.
      constexpr Index chunk = 32;
      for (Index q = 0; q < inner_begin; ++q) add(q, 1);
      for (Index q = inner_begin; q < inner_end; q += chunk) add(q, std::min(chunk, inner_end - q));
      for (Index q = inner_end; q < p_.output[2]; ++q) add(q, 1);
    }
  }

  const ConvolutionProblem p_;
  const DepthwiseKernels<T>& kernels_;
  const Index threads_, multiplier_, taps_;
  Memory weights_, scratch_memory_;
  RowScratch<T> scratch_;
  PerThread<Index> kernel_rows_;
  PerThread<const T*> x_rows_, x_;
  PerThread<T*> sums_;
};

template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_depthwise_convolution(const ConvolutionProblem& problem,
                                                                      const Exec& exec, ConvolutionPasses passes) {
  return std::make_unique<DepthwiseConvolution<T, Exec>>(problem, exec, passes);
}

using Host = Kokkos::DefaultHostExecutionSpace;
#define INSTANTIATE(T)                                                                     \
  template std::unique_ptr<LocalConvolution<T, Host>> make_depthwise_convolution<T, Host>( \
      const ConvolutionProblem&, const Host&, ConvolutionPasses);
INSTANTIATE(float)
ALONI_WITH_DOUBLE(INSTANTIATE(double))
#undef INSTANTIATE

}  // namespace aloni::nn::local::detail
