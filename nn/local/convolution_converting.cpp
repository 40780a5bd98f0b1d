#include <aloni/nn/local/detail/convolution_backends.hpp>
#include <aloni/nn/local/detail/elementwise.hpp>
#include <aloni/nn/local/detail/filter_copy.hpp>

#include <string>

// Convolution of 16-bit activations in float, for problems without a correct kernel in oneDNN or cuDNN, and for
// backends that have only float: copies the arguments to float, runs a convolution of float and rounds the result.
// Copies take little time compared with a convolution. On a host they lie in scratch memory that all convolutions
// share.

namespace aloni::nn::local::detail {

namespace {

template <class T, class Exec>
class ConvertingConvolution final : public LocalConvolution<T, Exec> {
 public:
  ConvertingConvolution(const ConvolutionProblem& p, const Exec& exec, ConvolutionPasses passes,
                        ConvolutionBackend of_floats, const std::shared_ptr<FilterOrders>& orders)
      : LocalConvolution<T, Exec>(p, passes),
        filters_(filter_copy_of<RoundedFilters>(orders)),
        owns_filters_(!orders || orders->copy != filters_) {
    passes.dense_input = passes.dense_output = true;
    floats_ = make_local_convolution<float, Exec>(of_floats, p, exec, passes, orders);
    const Index input = p.samples * p.input[0] * p.input[1] * p.input[2] * p.channels;
    const Index output = p.samples * p.output[0] * p.output[1] * p.output[2] * p.filters;
    if constexpr (runs_on_host<Exec>) {
      owns_scratch_ = !orders;
      scratch_ = orders ? orders->scratch() : std::make_shared<Scratch>();
      output_at_ = Scratch::round_up(static_cast<std::size_t>(input) * sizeof(float));
      scratch_->of_callers().reserve(output_at_ + static_cast<std::size_t>(output) * sizeof(float));
    } else {
      const auto room = [&](const std::string& label, Index elements) {
        return Memory(Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, label), static_cast<std::size_t>(elements));
      };
      input_ = room("aloni::nn::convolution_input_as_floats", input);
      output_ = room("aloni::nn::convolution_output_as_floats", output);
    }
    if (passes.forward || passes.backward_data) {
      filters_->reserve(exec, "aloni::nn::convolution_rounded_filters",
                        p.filters * p.kernel[0] * p.kernel[1] * p.kernel[2] * p.channels_per_group());
    }
  }

  std::string implementation(ConvolutionPass pass) const override {
    return floats_->implementation(pass) + " in copies of float";
  }
  std::size_t workspace_bytes() const override {
    return (input_.size() + output_.size()) * sizeof(float) + (owns_filters_ ? filters_->bytes() : 0) +
           (owns_scratch_ ? scratch_->bytes() : 0) + floats_->workspace_bytes();
  }
  void set_filter_version(std::uint64_t version) override {
    LocalConvolution<T, Exec>::set_filter_version(version);
    floats_->set_filter_version(version);
  }

 private:
  using Memory = Kokkos::View<float*, typename Exec::memory_space>;
  using RoundedFilters = FilterCopy<float, Rounded<T>, Exec>;
  using In = Tensor<const T, Exec>;
  using Out = Tensor<T, Exec>;
  using Floats = Tensor<float, Exec>;

  float* input() const {
    if constexpr (runs_on_host<Exec>) return reinterpret_cast<float*>(scratch_->of_callers().data());
    return input_.data();
  }
  float* output() const {
    if constexpr (runs_on_host<Exec>) return reinterpret_cast<float*>(scratch_->of_callers().data() + output_at_);
    return output_.data();
  }
  template <class View>
  static Floats over(float* memory, const View& like) {
    return dense_tensor<float, Exec>(memory, like.extent(0), like.extent(1), like.extent(2), like.extent(3),
                                     like.extent(4));
  }
  static Floats as_floats(const Exec& exec, const In& v, float* memory) {
    const Floats copy = over(memory, v);
    elementwise<Exec, Convert<float>, float, T>(exec, "aloni::nn::convolution_as_floats", {}, copy, v);
    return copy;
  }
  Floats rounded(const Exec& exec, const Tensor<const float, Exec>& w) {
    return filters_->of(exec, w, this->filters_version());
  }
  static void round(const Exec& exec, const Floats& from, const Out& to) {
    elementwise<Exec, Convert<T>, T, float>(exec, "aloni::nn::convolution_round", {}, to, from);
  }

  bool fuses_relu() const override { return true; }  // the convolution of float applies it
  void run_forward(const Exec& exec, const In& x, const Tensor<const float, Exec>& w,
                   const Array<const float, Exec>& bias, const Out& y) override {
    floats_->forward(exec, as_floats(exec, x, input()), rounded(exec, w), bias, over(output(), y));
    round(exec, over(output(), y), y);
  }
  void run_backward_data(const Exec& exec, const In& dy, const Tensor<const float, Exec>& w, const Out& dx) override {
    floats_->backward_data(exec, as_floats(exec, dy, output()), rounded(exec, w), over(input(), dx));
    round(exec, over(input(), dx), dx);
  }
  void run_backward_filter(const Exec& exec, const In& x, const In& dy, const Tensor<float, Exec>& dw,
                           const Array<float, Exec>& db) override {
    floats_->backward_filter(exec, as_floats(exec, x, input()), as_floats(exec, dy, output()), dw, db);
  }

  std::unique_ptr<LocalConvolution<float, Exec>> floats_;
  std::shared_ptr<Scratch> scratch_;  ///< of the copies on a host
  std::size_t output_at_ = 0;         ///< in the scratch memory
  Memory input_, output_;             ///< the copies on a device
  std::shared_ptr<RoundedFilters> filters_;
  bool owns_filters_, owns_scratch_ = false;
};

}  // namespace

template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_converting_convolution(const ConvolutionProblem& problem,
                                                                       const Exec& exec, ConvolutionPasses passes,
                                                                       ConvolutionBackend of_floats,
                                                                       const std::shared_ptr<FilterOrders>& orders) {
  return std::make_unique<ConvertingConvolution<T, Exec>>(problem, exec, passes, of_floats, orders);
}

#define INSTANTIATE(T, Exec)                                                                \
  template std::unique_ptr<LocalConvolution<T, Exec>> make_converting_convolution<T, Exec>( \
      const ConvolutionProblem&, const Exec&, ConvolutionPasses, ConvolutionBackend,        \
      const std::shared_ptr<FilterOrders>&);
ALONI_INSTANTIATE_16_BIT(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local::detail
