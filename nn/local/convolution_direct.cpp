#include <aloni/nn/compiled_activations.hpp>
#include <aloni/nn/local/detail/convolution_backends.hpp>
#include <aloni/nn/local/detail/direct_kernels.hpp>
#include <aloni/nn/local/detail/group_by_group.hpp>
#include <aloni/nn/local/detail/row_walker.hpp>

#include <algorithm>
#include <vector>

// Direct convolution on a host. Rows of the result are shared out among the threads; detail/direct_kernels.hpp does the
// arithmetic.
//
// Forward: each output row is a sum over the input rows under the kernel. Rows that extend beyond the box in width are
// copied once, with zeros as padding, into the row cache of the thread. All other rows are read in place.
// Backward-data: for each row of dx, one product of rows of dy with the filters gives the contribution of each output
// pixel to kernel width × channels neighbouring values. Contributions are added where they overlap. This needs no
// padding and takes any stride. Vectors run over kernel width × channels, which fills them even with few channels.
// Backward-filter: each thread adds over its own blocks of rows; then the sums of the threads are added in the order of
// the threads. Groups run one after the other. With one channel in each group, vectors over the filters of a group
// would be almost empty: convolution_depthwise.cpp computes these problems.

namespace aloni::nn::local::detail {

template <class T, class Exec>
class DirectConvolution final : public LocalConvolution<T, Exec> {
 public:
  DirectConvolution(const ConvolutionProblem& problem, const Exec& exec, ConvolutionPasses passes)
      : LocalConvolution<T, Exec>(problem, passes),
        p_(problem),
        kernels_(direct_kernels<T>()),
        threads_(std::max<Index>(1, exec.concurrency())),
        values_(problem.kernel[0] * problem.kernel[1] * problem.kernel[2] * problem.channels),
        padded_filters_(rounded_up(std::max<Index>(1, problem.filters), kernels_.lanes)),
        padded_columns_(rounded_up(std::max<Index>(1, problem.kernel[2] * problem.channels), kernels_.lanes)) {
    first_column_ = p_.offset[2];
    columns_ = (std::max<Index>(1, p_.output[2]) - 1) * p_.stride[2] + (p_.kernel[2] - 1) * p_.dilation[2] + 1;
    auto span = [&](int s, Index outputs) {
      return (outputs - 1) * p_.stride[s] + (p_.kernel[s] - 1) * p_.dilation[s] + 1;
    };
    RowScratch<T>& s = scratch_;
    if (passes.forward) {
      weights_ = allocate(exec, values_ * padded_filters_);
      bias_ = allocate(exec, padded_filters_);
      s.slots_d = span(0, 1);
      s.slots_h = span(1, 1);
      s.slot = columns_ * p_.channels;
      s.row = p_.output[2] * padded_filters_;
    }
    if (passes.backward_data) {
      weights_data_ = allocate(exec, p_.kernel[0] * p_.kernel[1] * p_.filters * padded_columns_);
      zeros_ = allocate(exec, padded_columns_);
      s.slots_d = std::max(s.slots_d, (p_.kernel[0] - 1) * p_.dilation[0] / p_.stride[0] + 1);
      s.slots_h = std::max(s.slots_h, (p_.kernel[1] - 1) * p_.dilation[1] / p_.stride[1] + 1);
      s.slot = std::max(s.slot, p_.output[2] * p_.filters);
      s.row = std::max(s.row, p_.output[2] * padded_columns_);
    }
    if (passes.backward_filter) {
      // Enough pixels to pay for adding the sums of a block to the total, few enough for the first-level cache.
      block_rows_ = std::clamp<Index>((192 + p_.output[2]) / std::max<Index>(1, p_.output[2]), 1,
                                      std::max<Index>(1, p_.output[1]));
      s.slots_h = std::max(s.slots_h, span(1, block_rows_));
      s.slots_d = std::max<Index>(s.slots_d, 1);
      s.slot = std::max(s.slot, columns_ * p_.channels);
      s.row = std::max(s.row, block_rows_ * p_.output[2] * padded_filters_);
      s.sums = (values_ + 1) * padded_filters_;
    }
    scratch_memory_ = allocate(exec, threads_ * s.elements());
    s.use(scratch_memory_.data(), threads_, p_.kernel[0] * p_.kernel[1]);
    x_rows_.resize(threads_, block_rows_);
    dy_rows_.resize(threads_, 2 * block_rows_);
  }

  std::string implementation(ConvolutionPass) const override { return std::string("direct ") + kernels_.name; }
  std::size_t workspace_bytes() const override {
    return (weights_.size() + bias_.size() + weights_data_.size() + zeros_.size() + scratch_memory_.size()) * sizeof(T);
  }

 private:
  using Memory = Kokkos::View<T*, typename Exec::memory_space>;

  static Memory allocate(const Exec& exec, Index elements) {
    return Memory(Kokkos::view_alloc(exec, "aloni::nn::direct_convolution_workspace"),
                  static_cast<std::size_t>(elements));
  }

  void run_forward(const Exec& exec, const Tensor<const T, Exec>& x, const Tensor<const T, Exec>& w,
                   const Array<const T, Exec>& bias, const Tensor<T, Exec>& y) override {
    share_out(exec, threads_, "aloni::nn::direct_convolution_pack_filters", filter_blocks(padded_filters_),
              [=, this, packed_bias = bias_.data()](Index, Index begin, Index end) {
                pack_filters(w.data(), p_.filters, values_, padded_filters_, begin, end, weights_.data());
                for (Index f = begin * filter_block; f < std::min(end * filter_block, padded_filters_); ++f)
                  packed_bias[f] = f < p_.filters && bias.extent(0) > 0 ? bias(f) : T{0};
              });
    const auto from = strided(x);
    const auto to = strided(y);
    share_out(exec, threads_, "aloni::nn::direct_convolution_forward", rows_of(y).rows(),
              [=, this](Index thread, Index begin, Index end) { forward_rows(thread, begin, end, from, to); });
  }

  void forward_rows(Index thread, Index begin, Index end, const Strided<const T>& x, const Strided<T>& y) {
    const bool in_place = x.c == 1 && first_column_ >= 0 && first_column_ + columns_ <= p_.input[2];
    const Index pixel = in_place ? x.w : p_.channels;
    auto rows = scratch_.cache(thread, (p_.kernel[0] - 1) * p_.dilation[0] + 1, (p_.kernel[1] - 1) * p_.dilation[1] + 1,
                               columns_ * p_.channels);
    T* const buffer = scratch_.row_of(thread);
    RowArguments<T> a{.terms = scratch_.terms_of(thread),
                      .num_terms = 0,
                      .taps = p_.kernel[2],
                      .channels = p_.channels,
                      .x_pixel = p_.stride[2] * pixel,
                      .x_tap = p_.dilation[2] * pixel,
                      .w_tap = p_.channels * padded_filters_,
                      .bias = bias_.data(),
                      .filters = p_.filters,
                      .padded = padded_filters_,
                      .y = nullptr,
                      .pixels = p_.output[2],
                      .y_pixel = y.c == 1 ? y.w : p_.filters};
    if (a.x_tap == a.channels) {  // neighbouring taps are neighbours in memory: one longer loop
      a.channels *= a.taps;
      a.taps = 1;
    }
    scratch_.template walk<ConvolutionPass::forward>(
        p_, thread, begin, end, weights_.data(), p_.kernel[2] * p_.channels * padded_filters_,
        [&](Index n, Index id, Index ih) {
          if (in_place) return x.row(n, id, ih) + first_column_ * x.w;
          return rows.row(x, n, id, ih, p_.input[1], p_.input[0], first_column_, columns_, p_.input[2], p_.channels);
        },
        [&](Index n, Index od, Index oh, Index num_terms) {
          T* const out = y.row(n, od, oh);
          a.num_terms = num_terms;
          a.y = y.c == 1 ? out : buffer;
          kernels_.row(a);
          if (y.c != 1) write_row(buffer, p_.output[2], p_.filters, out, y);
        });
  }

  void run_backward_data(const Exec& exec, const Tensor<const T, Exec>& dy, const Tensor<const T, Exec>& w,
                         const Tensor<T, Exec>& dx) override {
    const Index rows = p_.kernel[0] * p_.kernel[1], columns = p_.kernel[2] * p_.channels;
    // filters, kernel rows, columns -> kernel rows, filters, padded columns
    share_out(exec, threads_, "aloni::nn::direct_convolution_pack_filters", rows * p_.filters,
              [=, this, packed = weights_data_.data(), from = w.data()](Index, Index begin, Index end) {
                for (Index i = begin; i < end; ++i) {
                  const Index row = i / p_.filters, f = i % p_.filters;
                  const T* const source = from + (f * rows + row) * columns;
                  T* const out = packed + i * padded_columns_;
                  std::copy(source, source + columns, out);
                  std::fill(out + columns, out + padded_columns_, T{0});
                }
              });
    const auto from = strided(dy);
    const auto to = strided(dx);
    share_out(exec, threads_, "aloni::nn::direct_convolution_backward_data", rows_of(dx).rows(),
              [=, this](Index thread, Index begin, Index end) { backward_data_rows(thread, begin, end, from, to); });
  }

  void backward_data_rows(Index thread, Index begin, Index end, const Strided<const T>& dy, const Strided<T>& dx) {
    const bool in_place = dy.c == 1;
    const Index width = p_.output[2];
    auto rows = scratch_.cache(thread, (p_.kernel[0] - 1) * p_.dilation[0] / p_.stride[0] + 1,
                               (p_.kernel[1] - 1) * p_.dilation[1] / p_.stride[1] + 1, width * p_.filters);
    T* const contributions = scratch_.row_of(thread);
    RowArguments<T> a{.terms = scratch_.terms_of(thread),
                      .num_terms = 0,
                      .taps = 1,
                      .channels = p_.filters,
                      .x_pixel = in_place ? dy.w : p_.filters,
                      .x_tap = 0,
                      .w_tap = 0,
                      .bias = zeros_.data(),
                      .filters = padded_columns_,
                      .padded = padded_columns_,
                      .y = contributions,
                      .pixels = width,
                      .y_pixel = padded_columns_};
    scratch_.template walk<ConvolutionPass::backward_data>(
        p_, thread, begin, end, weights_data_.data(), p_.filters * padded_columns_,
        [&](Index n, Index od, Index oh) {
          if (in_place) return dy.row(n, od, oh);
          return rows.row(dy, n, od, oh, p_.output[1], p_.output[0], 0, width, width, p_.filters);
        },
        [&](Index n, Index id, Index ih, Index num_terms) {
          T* const out = dx.row(n, id, ih);
          if (dx.c == 1 && dx.w == p_.channels) {
            std::fill(out, out + p_.input[2] * p_.channels, T{0});
          } else {
            for (Index q = 0; q < p_.input[2]; ++q)
              for (Index c = 0; c < p_.channels; ++c) out[q * dx.w + c * dx.c] = T{0};
          }
          if (num_terms == 0) return;
          a.num_terms = num_terms;
          kernels_.row(a);
          add_contributions(contributions, out, dx.w, dx.c);
        });
  }

  void add_contributions(const T* contributions, T* out, Index pixel, Index channel) const {
    const Index channels = p_.channels, dilation = p_.dilation[2];
    const bool contiguous = channel == 1 && pixel == channels && dilation == 1;
    for (Index ow = 0; ow < p_.output[2]; ++ow, contributions += padded_columns_) {
      const Index first = ow * p_.stride[2] + p_.offset[2];  // column of tap 0
      if (contiguous) {
        const Index begin = std::clamp<Index>(-first, 0, p_.kernel[2]);
        const Index end = std::clamp<Index>(p_.input[2] - first, begin, p_.kernel[2]);
        T* const sum = out + (first + begin) * channels;
        const T* const term = contributions + begin * channels;
        for (Index i = 0; i < (end - begin) * channels; ++i) sum[i] += term[i];
      } else {
        for (Index kw = 0; kw < p_.kernel[2]; ++kw) {
          const Index iw = first + kw * dilation;
          if (iw < 0 || iw >= p_.input[2]) continue;
          for (Index c = 0; c < channels; ++c) out[iw * pixel + c * channel] += contributions[kw * channels + c];
        }
      }
    }
  }

  void run_backward_filter(const Exec& exec, const Tensor<const T, Exec>& x, const Tensor<const T, Exec>& dy,
                           const Tensor<T, Exec>& dw, const Array<T, Exec>& db) override {
    const Index blocks = (p_.output[1] + block_rows_ - 1) / block_rows_;
    const Index work = p_.output[2] > 0 ? p_.samples * p_.output[0] * blocks : 0;
    const auto from_x = strided(x);
    const auto from_dy = strided(dy);
    share_out(
        exec, threads_, "aloni::nn::direct_convolution_backward_filter", work,
        [=, this](Index thread, Index begin, Index end) { filter_sums(thread, begin, end, blocks, from_x, from_dy); });

    add_threads(exec, "aloni::nn::direct_convolution_add_threads", scratch_, threads_, std::min(threads_, work),
                p_.filters, padded_filters_, values_, dw, db);
  }

  /// Adds over blocks [begin, end) of output rows: sums[tap, channel, filter], then sums[filter] of dy itself.
  void filter_sums(Index thread, Index begin, Index end, Index blocks, const Strided<const T>& x,
                   const Strided<const T>& dy) {
    const Index channels = p_.channels, width = p_.output[2];
    const bool in_place = x.c == 1 && first_column_ >= 0 && first_column_ + columns_ <= p_.input[2];
    // Lanes beyond the filters may read neighbouring pixels, and their sums are not used. They must not read beyond the
    // tensor.
    const bool dy_in_place = dy.c == 1 && (dy.w <= padded_filters_ || padded_filters_ == p_.filters);
    const Index dy_pixel = dy_in_place ? dy.w : padded_filters_;
    const T* const dy_end =
        dy.row(p_.samples - 1, p_.output[0] - 1, p_.output[1] - 1) + (width - 1) * dy.w + p_.filters;
    const Index pixel = in_place ? x.w : channels;
    auto rows = scratch_.cache(thread, 1, scratch_.slots_h, columns_ * channels);
    T* const sums = scratch_.sums_of(thread);
    std::fill(sums, sums + scratch_.sums, T{0});
    const T** const all_dy = dy_rows_.of(thread);    // of this block
    const T** const used_dy = all_dy + block_rows_;  // those that meet an input row
    const T** const used_x = x_rows_.of(thread);
    FilterArguments<T> a{.x = used_x,
                         .dy = used_dy,
                         .rows = 0,
                         .pixels = width,
                         .x_pixel = p_.stride[2] * pixel,
                         .dy_pixel = dy_pixel,
                         .values = 0,
                         .padded = padded_filters_,
                         .sum = nullptr};
    // Neighbouring taps are neighbours in memory: one call for all of them.
    const bool taps_together = p_.dilation[2] * pixel == channels || p_.kernel[2] == 1;
    for (Index i = begin; i < end; ++i) {
      const Index first = i % blocks * block_rows_, last = std::min(first + block_rows_, p_.output[1]);
      const Index od = i / blocks % p_.output[0], n = i / blocks / p_.output[0];
      for (Index oh = first; oh < last; ++oh) {
        const T* const row = dy.row(n, od, oh);
        const bool readable = dy_in_place && row + (width - 1) * dy.w + padded_filters_ <= dy_end;
        all_dy[oh - first] = readable ? row : packed_dy_row(thread, oh - first, dy, row, dy_pixel);
      }
      a.dy = all_dy;
      a.rows = last - first;
      a.sum = sums + values_ * padded_filters_;
      kernels_.column_sums(a);
      a.dy = used_dy;
      for (Index kd = 0; kd < p_.kernel[0]; ++kd) {
        const Index id = source_of<ConvolutionPass::forward>(p_, 0, od, kd);
        if (id < 0) continue;
        rows.forget();
        for (Index kh = 0; kh < p_.kernel[1]; ++kh) {
          a.rows = 0;
          for (Index oh = first; oh < last; ++oh) {
            const Index ih = source_of<ConvolutionPass::forward>(p_, 1, oh, kh);
            if (ih < 0) continue;
            used_dy[a.rows] = all_dy[oh - first];
            used_x[a.rows++] = in_place ? x.row(n, id, ih) + first_column_ * x.w
                                        : rows.row(x, n, id, ih, p_.input[1], p_.input[0], first_column_, columns_,
                                                   p_.input[2], channels);
          }
          if (a.rows == 0) continue;
          a.sum = sums + (kd * p_.kernel[1] + kh) * p_.kernel[2] * channels * padded_filters_;
          a.values = taps_together ? p_.kernel[2] * channels : channels;
          for (Index kw = 0; kw < (taps_together ? 1 : p_.kernel[2]); ++kw) {
            kernels_.filter(a);
            a.sum += channels * padded_filters_;
            for (Index r = 0; r < a.rows; ++r) used_x[r] += p_.dilation[2] * pixel;
          }
        }
      }
    }
  }

  /// A copy of a row of dy with `pixel` elements from one pixel to the next. The last pixel is readable up to the
  /// padded filters.
  const T* packed_dy_row(Index thread, Index slot, const Strided<const T>& dy, const T* from, Index pixel) const {
    T* const out = scratch_.row_of(thread) + slot * p_.output[2] * padded_filters_;
    read_row(from, dy, p_.output[2], p_.filters, out, pixel);
    return out;
  }

  const ConvolutionProblem p_;
  const DirectKernels<T>& kernels_;
  const Index threads_, values_, padded_filters_, padded_columns_;  // values: of one filter
  Index first_column_, columns_;                                    // input columns that a row of the output reads
  Index block_rows_ = 1;
  Memory weights_, bias_, weights_data_, zeros_, scratch_memory_;
  RowScratch<T> scratch_;
  PerThread<const T*> x_rows_, dy_rows_;
};

template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_direct_convolution(const ConvolutionProblem& problem, const Exec& exec,
                                                                   ConvolutionPasses passes) {
  if (problem.groups == 1) return std::make_unique<DirectConvolution<T, Exec>>(problem, exec, passes);
  if (problem.channels == problem.groups && problem.filters > 0) {
    return make_depthwise_convolution<T, Exec>(problem, exec, passes);
  }
  return std::make_unique<GroupByGroup<T, Exec>>(
      problem, passes, std::make_unique<DirectConvolution<T, Exec>>(one_group(problem), exec, passes));
}

using Host = Kokkos::DefaultHostExecutionSpace;
#define INSTANTIATE(T)                                                                  \
  template std::unique_ptr<LocalConvolution<T, Host>> make_direct_convolution<T, Host>( \
      const ConvolutionProblem&, const Host&, ConvolutionPasses);
INSTANTIATE(float)
ALONI_WITH_DOUBLE(INSTANTIATE(double))
#undef INSTANTIATE

}  // namespace aloni::nn::local::detail
