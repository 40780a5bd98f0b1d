#include <aloni/nn/local/detail/convolution_backends.hpp>
#include <aloni/nn/local/detail/elementwise.hpp>
#include <aloni/nn/local/detail/filter_copy.hpp>

#include <string>

// Convolution of bfloat16 in float, for problems without a correct bfloat16 kernel in oneDNN or cuDNN, and for backends
// that have only float: copies the arguments to float, runs a convolution of float and rounds the result. Copies take
// little time compared with a convolution.

namespace aloni::nn::local::detail {

namespace {

template <class T, class Exec>
class ConvertingConvolution final : public LocalConvolution<T, Exec> {
 public:
  ConvertingConvolution(const ConvolutionProblem& p, const Exec& exec, ConvolutionPasses passes,
                        ConvolutionBackend of_floats)
      : LocalConvolution<T, Exec>(p, passes) {
    passes.dense_input = passes.dense_output = true;
    floats_ = make_local_convolution<float, Exec>(of_floats, p, exec, passes);
    const auto room = [&](const std::string& label, Index elements) {
      return Memory(Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, label), static_cast<std::size_t>(elements));
    };
    input_ =
        room("aloni::nn::convolution_input_as_floats", p.samples * p.input[0] * p.input[1] * p.input[2] * p.channels);
    output_ = room("aloni::nn::convolution_output_as_floats",
                   p.samples * p.output[0] * p.output[1] * p.output[2] * p.filters);
    if (passes.forward || passes.backward_data) {
      filters_.reserve(exec, "aloni::nn::convolution_rounded_filters",
                       p.filters * p.kernel[0] * p.kernel[1] * p.kernel[2] * p.channels_per_group());
    }
  }

  std::string implementation(ConvolutionPass pass) const override {
    return floats_->implementation(pass) + " in copies of float";
  }
  std::size_t workspace_bytes() const override {
    return (input_.size() + output_.size()) * sizeof(float) + filters_.bytes() + floats_->workspace_bytes();
  }
  void set_filter_version(std::uint64_t version) override {
    LocalConvolution<T, Exec>::set_filter_version(version);
    floats_->set_filter_version(version);
  }

 private:
  using Memory = Kokkos::View<float*, typename Exec::memory_space>;
  using In = Tensor<const T, Exec>;
  using Out = Tensor<T, Exec>;
  using Floats = Tensor<float, Exec>;

  template <class View>
  static Floats over(const Memory& memory, const View& like) {
    return dense_tensor<float, Exec>(memory.data(), like.extent(0), like.extent(1), like.extent(2), like.extent(3),
                                     like.extent(4));
  }
  static Floats as_floats(const Exec& exec, const In& v, const Memory& memory) {
    const Floats copy = over(memory, v);
    elementwise<Exec, Convert<float>, float, T>(exec, "aloni::nn::convolution_as_floats", {}, copy, v);
    return copy;
  }
  Floats rounded(const Exec& exec, const Tensor<const float, Exec>& w) {
    return filters_.of(exec, w, this->filters_version());
  }
  static void round(const Exec& exec, const Floats& from, const Out& to) {
    elementwise<Exec, Convert<T>, T, float>(exec, "aloni::nn::convolution_round", {}, to, from);
  }

  bool fuses_relu() const override { return true; }  // the convolution of float applies it
  void run_forward(const Exec& exec, const In& x, const Tensor<const float, Exec>& w,
                   const Array<const float, Exec>& bias, const Out& y) override {
    floats_->forward(exec, as_floats(exec, x, input_), rounded(exec, w), bias, over(output_, y));
    round(exec, over(output_, y), y);
  }
  void run_backward_data(const Exec& exec, const In& dy, const Tensor<const float, Exec>& w, const Out& dx) override {
    floats_->backward_data(exec, as_floats(exec, dy, output_), rounded(exec, w), over(input_, dx));
    round(exec, over(input_, dx), dx);
  }
  void run_backward_filter(const Exec& exec, const In& x, const In& dy, const Tensor<float, Exec>& dw,
                           const Array<float, Exec>& db) override {
    floats_->backward_filter(exec, as_floats(exec, x, input_), as_floats(exec, dy, output_), dw, db);
  }

  std::unique_ptr<LocalConvolution<float, Exec>> floats_;
  Memory input_, output_;
  FilterCopy<float, Rounded<T>, Exec> filters_;
};

}  // namespace

template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_converting_convolution(const ConvolutionProblem& problem,
                                                                       const Exec& exec, ConvolutionPasses passes,
                                                                       ConvolutionBackend of_floats) {
  return std::make_unique<ConvertingConvolution<T, Exec>>(problem, exec, passes, of_floats);
}

#define INSTANTIATE(T, Exec)                                                                \
  template std::unique_ptr<LocalConvolution<T, Exec>> make_converting_convolution<T, Exec>( \
      const ConvolutionProblem&, const Exec&, ConvolutionPasses, ConvolutionBackend);
ALONI_INSTANTIATE_SPACES(INSTANTIATE, comm::bfloat16)
#undef INSTANTIATE

}  // namespace aloni::nn::local::detail
