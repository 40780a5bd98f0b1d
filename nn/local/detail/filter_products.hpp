#pragma once
// The gradient of the filters as matrix products: for each tap of the kernel and each row of outputs, the pixels of dy
// times the pixels of x that the tap multiplies. Strides are strides of the second matrix, so nothing is copied.
//
//   if (multiplies_for_filters(problem)) set_filter_products(exec, padded_problem(problem), product, x, dy, dw);
//
// oneDNN 2.6 computes this gradient at 0.3 to 0.7 of the rate of its other passes in three cases: one tap, strides, or
// long rows. Its matrix products reach 0.9. docs/experiments/convolution.md has the figures.
#include <aloni/nn/local/detail/execution.hpp>
#include <aloni/nn/local/detail/padded_problem.hpp>

#include <algorithm>
#include <array>
#include <type_traits>

namespace aloni::nn::local::detail {

/// Memory of activations: pixel (n, d, h, w) starts at data + n·strides[0] + … + w·strides[3], and its channels follow
/// each other.
struct Pixels {
  const float* data = nullptr;
  std::array<Index, 4> strides{};
};

inline const float* pixel_at(const Pixels& pixels, Index n, Index d, Index h, Index w) {
  return pixels.data + n * pixels.strides[0] + d * pixels.strides[1] + h * pixels.strides[2] + w * pixels.strides[3];
}

/// (m, n, k, a, a_stride, b, b_stride, c, c_stride): c += aᵀ·b for row-major matrices, a: k × m, b: k × n. On the
/// calling thread if it is one of several in a parallel region.
using AddProduct = void (*)(Index, Index, Index, const float*, Index, const float*, Index, float*, Index);

/// One call for each row that a tap reads, or for all rows at once if they lie behind each other.
class FilterProducts {
 public:
  FilterProducts(const PaddedProblem& problem, AddProduct product, Pixels x, Pixels dy, float* dw)
      : p_(problem), product_(product), x_(x), dy_(dy), dw_(dw) {
    extents_ = {p_.samples, p_.output[0], p_.output[1], p_.output[2]};
    if (p_.kernel[0] * p_.kernel[1] * p_.kernel[2] > 1) return;
    // With one tap, rows whose pixels continue in the next row are one long row.
    for (std::size_t outer = 3; outer-- > 0;) {
      if (padding_of(outer) > 0 || padding_of(3) > 0) return;
      const Index stride = outer == 0 ? 1 : p_.stride[outer - 1];
      const auto continues = [&](const Pixels& pixels, Index step, Index inner) {
        return extents_[outer] == 1 || pixels.strides[outer] * step == pixels.strides[3] * inner * extents_[3];
      };
      if (!continues(x_, stride, p_.stride[2]) || !continues(dy_, 1, 1)) return;
      extents_[3] *= extents_[outer];
      extents_[outer] = 1;
    }
  }

  /// The rows [filter_begin, filter_end) and columns [channel_begin, channel_end) of the gradient.
  void operator()(Index filter_begin, Index filter_end, Index channel_begin, Index channel_end) const {
    const Index taps = p_.kernel[0] * p_.kernel[1] * p_.kernel[2], row = taps * p_.channels;
    for (Index f = filter_begin; f < filter_end; ++f)
      for (Index t = 0; t < taps; ++t)
        std::fill(dw_ + f * row + t * p_.channels + channel_begin, dw_ + f * row + t * p_.channels + channel_end, 0.0F);
    for (Index n = 0; n < extents_[0]; ++n)
      for (Index d = 0; d < extents_[1]; ++d)
        for (Index h = 0; h < extents_[2]; ++h)
          for (Index t = 0; t < taps; ++t) {
            const std::array<Index, 3> k{t / (p_.kernel[1] * p_.kernel[2]), t / p_.kernel[2] % p_.kernel[1],
                                         t % p_.kernel[2]};
            const Index from_d = input_of(0, d, k[0]), from_h = input_of(1, h, k[1]);
            if (from_d < 0 || from_d >= p_.input[0] || from_h < 0 || from_h >= p_.input[1]) continue;
            // Outputs [begin, end) of the row read the tap inside the input.
            const Index shift = input_of(2, 0, k[2]), stride = p_.stride[2];
            const Index begin = shift >= 0 ? 0 : (stride - 1 - shift) / stride;
            const Index end = is_long() ? extents_[3] : std::min(extents_[3], (p_.input[2] - 1 - shift) / stride + 1);
            if (begin >= end || shift >= p_.input[2]) continue;
            for (Index w = begin; w < end; w += longest_product)
              product_(filter_end - filter_begin, channel_end - channel_begin, std::min(longest_product, end - w),
                       pixel_at(dy_, n, d, h, w) + filter_begin, dy_.strides[3],
                       pixel_at(x_, n, from_d, from_h, w * stride + shift) + channel_begin, stride * x_.strides[3],
                       dw_ + filter_begin * row + t * p_.channels + channel_begin, row);
          }
  }

 private:
  /// In pixels. oneDNN copies its operands: longer products take more memory, and no less time.
  static constexpr Index longest_product = 2048;

  /// In the dimension of samples, and in the spatial ones.
  Index padding_of(std::size_t dimension) const {
    return dimension == 0 ? 0 : p_.padding_before[dimension - 1] + p_.padding_after[dimension - 1];
  }
  bool is_long() const { return extents_[3] != p_.output[2]; }
  Index input_of(std::size_t s, Index output, Index tap) const {
    return output * p_.stride[s] + tap * p_.dilation[s] - p_.padding_before[s];
  }

  PaddedProblem p_;
  AddProduct product_;
  Pixels x_, dy_;
  float* dw_;
  std::array<Index, 4> extents_{};  // of the loops: samples, depth, height, width
};

/// dw: dense, filters × taps × channels; overwritten. Each thread computes a part of the filters, or of the channels.
template <class Exec>
void set_filter_products(const Exec& exec, const PaddedProblem& p, AddProduct product, const Pixels& x,
                         const Pixels& dy, float* dw) {
  const FilterProducts products(p, product, x, dy, dw);
  constexpr Index unit = 16;  // parts are whole vectors
  const bool by_filters = p.filters >= p.channels;
  const Index length = std::max(p.filters, p.channels), units = (length + unit - 1) / unit;
  const Index parts = std::min<Index>(exec.concurrency(), units);
  Kokkos::parallel_for(
      "aloni::nn::filter_products", Range<Exec>(exec, 0, parts, Kokkos::ChunkSize(1)), [=](const Index i) {
        const Index lo = i * units / parts * unit, hi = std::min(length, (i + 1) * units / parts * unit);
        if (by_filters)
          products(lo, hi, 0, p.channels);
        else
          products(0, p.filters, lo, hi);
      });
}

/// sums: of each channel of dy, in double and rounded once.
template <class Exec>
void sum_pixels(const Exec& exec, const PaddedProblem& p, const Pixels& dy, float* sums) {
  constexpr Index block = 64;
  Kokkos::parallel_for("aloni::nn::sum_pixels",
                       Range<Exec>(exec, 0, (p.filters + block - 1) / block, Kokkos::ChunkSize(1)), [=](const Index i) {
                         const Index first = i * block, count = std::min(block, p.filters - first);
                         double all[block] = {};
                         for (Index n = 0; n < p.samples; ++n)
                           for (Index d = 0; d < p.output[0]; ++d)
                             for (Index h = 0; h < p.output[1]; ++h)
                               for (Index w = 0; w < p.output[2]; ++w) {
                                 const float* const pixel = pixel_at(dy, n, d, h, w) + first;
                                 for (Index c = 0; c < count; ++c) all[c] += static_cast<double>(pixel[c]);
                               }
                         for (Index c = 0; c < count; ++c) sums[first + c] = static_cast<float>(all[c]);
                       });
}

}  // namespace aloni::nn::local::detail
