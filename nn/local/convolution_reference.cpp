#include <aloni/nn/local/detail/convolution_backends.hpp>
#include <aloni/nn/local/detail/execution.hpp>

// The seven loops of the definition, with sums in double. Tests compare every other implementation with it. It is clear
// rather than fast, and parallel over the elements of the result, so it runs on any execution space.

namespace aloni::nn::local::detail {

/// A weight, rounded to T, for products with values of type T.
template <class T>
KOKKOS_INLINE_FUNCTION double factor(parameter_type_t<T> weight) {
  return static_cast<double>(static_cast<T>(weight));
}

template <class T, class Exec>
void reference_forward(const Exec& exec, const ConvolutionProblem& p, const Tensor<const T, Exec>& x,
                       const Tensor<const parameter_type_t<T>, Exec>& w,
                       const Array<const parameter_type_t<T>, Exec>& bias, const Tensor<T, Exec>& y) {
  const Rows rows = rows_of(y);
  const bool has_bias = bias.extent(0) > 0;
  const Index channels = p.channels_per_group(), filters = p.filters_per_group();
  Kokkos::parallel_for(
      "aloni::nn::reference_convolution_forward", Range<Exec>(exec, 0, rows.elements()), KOKKOS_LAMBDA(const Index i) {
        Index n, od, oh, ow, f;
        rows.element(i, n, od, oh, ow, f);
        const Index first = f / filters * channels;  // first channel that this filter reads
        double sum = has_bias ? static_cast<double>(bias(f)) : 0.0;
        for (Index kd = 0; kd < p.kernel[0]; ++kd) {
          const Index id = od * p.stride[0] + kd * p.dilation[0] + p.offset[0];
          if (id < 0 || id >= p.input[0]) continue;
          for (Index kh = 0; kh < p.kernel[1]; ++kh) {
            const Index ih = oh * p.stride[1] + kh * p.dilation[1] + p.offset[1];
            if (ih < 0 || ih >= p.input[1]) continue;
            for (Index kw = 0; kw < p.kernel[2]; ++kw) {
              const Index iw = ow * p.stride[2] + kw * p.dilation[2] + p.offset[2];
              if (iw < 0 || iw >= p.input[2]) continue;
              for (Index c = 0; c < channels; ++c) {
                sum += static_cast<double>(x(n, id, ih, iw, first + c)) * factor<T>(w(f, kd, kh, kw, c));
              }
            }
          }
        }
        y(n, od, oh, ow, f) = static_cast<T>(sum);
      });
}

/// The output index that reads input `i` through kernel index k; -1 if there is none. The reference shares no code with
/// the backends.
KOKKOS_INLINE_FUNCTION Index output_reading(const ConvolutionProblem& p, int s, Index i, Index k) {
  const Index scaled = i - p.offset[s] - k * p.dilation[s];
  if (scaled < 0 || scaled % p.stride[s] != 0) return -1;
  const Index o = scaled / p.stride[s];
  return o < p.output[s] ? o : -1;
}

template <class T, class Exec>
void reference_backward_data(const Exec& exec, const ConvolutionProblem& p, const Tensor<const T, Exec>& dy,
                             const Tensor<const parameter_type_t<T>, Exec>& w, const Tensor<T, Exec>& dx) {
  const Rows rows = rows_of(dx);
  const Index channels = p.channels_per_group(), filters = p.filters_per_group();
  Kokkos::parallel_for(
      "aloni::nn::reference_convolution_backward_data", Range<Exec>(exec, 0, rows.elements()),
      KOKKOS_LAMBDA(const Index i) {
        Index n, id, ih, iw, c;
        rows.element(i, n, id, ih, iw, c);
        const Index first = c / channels * filters, last = first + filters;  // the filters that read this channel
        double sum = 0;
        for (Index kd = 0; kd < p.kernel[0]; ++kd) {
          const Index od = output_reading(p, 0, id, kd);
          if (od < 0) continue;
          for (Index kh = 0; kh < p.kernel[1]; ++kh) {
            const Index oh = output_reading(p, 1, ih, kh);
            if (oh < 0) continue;
            for (Index kw = 0; kw < p.kernel[2]; ++kw) {
              const Index ow = output_reading(p, 2, iw, kw);
              if (ow < 0) continue;
              for (Index f = first; f < last; ++f) {
                sum += static_cast<double>(dy(n, od, oh, ow, f)) * factor<T>(w(f, kd, kh, kw, c % channels));
              }
            }
          }
        }
        dx(n, id, ih, iw, c) = static_cast<T>(sum);
      });
}

template <class T, class Exec>
void reference_backward_filter(const Exec& exec, const ConvolutionProblem& p, const Tensor<const T, Exec>& x,
                               const Tensor<const T, Exec>& dy, const Tensor<parameter_type_t<T>, Exec>& dw,
                               const Array<parameter_type_t<T>, Exec>& db) {
  const Rows rows = rows_of(dw);
  const Index channels = p.channels_per_group(), filters = p.filters_per_group();
  Kokkos::parallel_for(
      "aloni::nn::reference_convolution_backward_filter", Range<Exec>(exec, 0, rows.elements()),
      KOKKOS_LAMBDA(const Index i) {
        Index f, kd, kh, kw, c;
        rows.element(i, f, kd, kh, kw, c);
        const Index channel = f / filters * channels + c;
        double sum = 0;
        for (Index n = 0; n < p.samples; ++n) {
          for (Index od = 0; od < p.output[0]; ++od) {
            const Index id = od * p.stride[0] + kd * p.dilation[0] + p.offset[0];
            if (id < 0 || id >= p.input[0]) continue;
            for (Index oh = 0; oh < p.output[1]; ++oh) {
              const Index ih = oh * p.stride[1] + kh * p.dilation[1] + p.offset[1];
              if (ih < 0 || ih >= p.input[1]) continue;
              for (Index ow = 0; ow < p.output[2]; ++ow) {
                const Index iw = ow * p.stride[2] + kw * p.dilation[2] + p.offset[2];
                if (iw < 0 || iw >= p.input[2]) continue;
                sum += static_cast<double>(dy(n, od, oh, ow, f)) * static_cast<double>(x(n, id, ih, iw, channel));
              }
            }
          }
        }
        dw(f, kd, kh, kw, c) = static_cast<parameter_type_t<T>>(sum);
      });
  if (db.extent(0) == 0) return;
  Kokkos::parallel_for(
      "aloni::nn::reference_convolution_backward_bias", Range<Exec>(exec, 0, p.filters), KOKKOS_LAMBDA(const Index f) {
        double sum = 0;
        for (Index n = 0; n < p.samples; ++n)
          for (Index od = 0; od < p.output[0]; ++od)
            for (Index oh = 0; oh < p.output[1]; ++oh)
              for (Index ow = 0; ow < p.output[2]; ++ow) sum += static_cast<double>(dy(n, od, oh, ow, f));
        db(f) = static_cast<parameter_type_t<T>>(sum);
      });
}

template <class T, class Exec>
class ReferenceConvolution final : public LocalConvolution<T, Exec> {
 public:
  using LocalConvolution<T, Exec>::LocalConvolution;
  std::string implementation(ConvolutionPass) const override { return "reference"; }
  std::size_t workspace_bytes() const override { return 0; }

 private:
  void run_forward(const Exec& exec, const Tensor<const T, Exec>& x, const Tensor<const parameter_type_t<T>, Exec>& w,
                   const Array<const parameter_type_t<T>, Exec>& bias, const Tensor<T, Exec>& y) override {
    reference_forward<T>(exec, this->problem(), x, w, bias, y);
  }
  void run_backward_data(const Exec& exec, const Tensor<const T, Exec>& dy,
                         const Tensor<const parameter_type_t<T>, Exec>& w, const Tensor<T, Exec>& dx) override {
    reference_backward_data<T>(exec, this->problem(), dy, w, dx);
  }
  void run_backward_filter(const Exec& exec, const Tensor<const T, Exec>& x, const Tensor<const T, Exec>& dy,
                           const Tensor<parameter_type_t<T>, Exec>& dw,
                           const Array<parameter_type_t<T>, Exec>& db) override {
    reference_backward_filter<T>(exec, this->problem(), x, dy, dw, db);
  }
};

template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_reference_convolution(const ConvolutionProblem& problem, const Exec&,
                                                                      ConvolutionPasses passes) {
  return std::make_unique<ReferenceConvolution<T, Exec>>(problem, passes);
}

#define INSTANTIATE(T, Exec)                                                               \
  template std::unique_ptr<LocalConvolution<T, Exec>> make_reference_convolution<T, Exec>( \
      const ConvolutionProblem&, const Exec&, ConvolutionPasses);
ALONI_INSTANTIATE_LAYERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local::detail
