#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/distributed_convolution.hpp>
#include <aloni/nn/layers/layer.hpp>

#include <variant>

namespace aloni::nn {

namespace {

bool has_bias(const Operation& op) {
  if (const auto* c = std::get_if<Convolution>(&op)) return c->bias;
  return std::get<TransposedConvolution>(op).bias;
}

template <class T, class Exec>
ConvolutionTensors<T, Exec> tensors_of(const LayerSetup<T, Exec>& s) {
  const int first = s.parameters.find(s.index, 0);
  ConvolutionTensors<T, Exec> t{.x = s.x[0],
                                .y = s.y,
                                .dx = s.dx[0],
                                .dy = s.dy,
                                .weights = s.parameters.kept(first),
                                .w = s.parameters.value(first),
                                .dw = s.parameters.gradient(first),
                                .b = {},
                                .db = {}};
  if (has_bias(s.description.operation)) {
    t.b = s.parameters.vector_value(first + 1);
    t.db = s.parameters.vector_gradient(first + 1);
  }
  return t;
}

template <class T, class Exec>
class ConvolutionLayer final : public Layer<T, Exec> {
 public:
  explicit ConvolutionLayer(const LayerSetup<T, Exec>& s)
      : convolution_(s.comm, s.queue, s.plan, tensors_of(s),
                     {.label = s.description.name,
                      .backend = s.backend,
                      .input_is_complete = s.plan.inputs[0].mode != InputMode::in_place,
                      .relu = s.fuses_relu,
                      .largest_overhead = s.largest_overhead}) {}

  void add_forward(Step<Exec>& step, Mode mode) override {
    convolution_.add_input_exchange(step);
    convolution_.add_forward(step, mode == Mode::evaluation && fuses_relu());
  }
  bool fuses_relu() const override { return convolution_.fuses_relu(); }

  // The gradient of the weights usually needs no ghosts: it hides the exchange.
  void add_backward(Step<Exec>& step) override {
    convolution_.add_gradient_exchange(step);
    convolution_.add_backward_filter(step);
    convolution_.add_backward_data(step);
  }

 private:
  DistributedConvolution<T, Exec> convolution_;
};

}  // namespace

template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_convolution_layer(const LayerSetup<T, Exec>& setup) {
  return std::make_unique<ConvolutionLayer<T, Exec>>(setup);
}

#define INSTANTIATE(T, Exec) \
  template std::unique_ptr<Layer<T, Exec>> make_convolution_layer(const LayerSetup<T, Exec>&);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
