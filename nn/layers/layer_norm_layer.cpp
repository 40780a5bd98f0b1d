#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/layers/affine.hpp>
#include <aloni/nn/layers/layer.hpp>
#include <aloni/nn/local/layer_norm.hpp>

#include <variant>

namespace aloni::nn {

namespace {

/// The rank that owns a pixel normalises it.
template <class T, class Exec>
class LayerNormLayer final : public Layer<T, Exec> {
 public:
  explicit LayerNormLayer(const LayerSetup<T, Exec>& s)
      : counts_(counts_in_sums(s.plan.output, s.comm.rank())),
        x_(s.x[0]),
        y_(s.y),
        dx_(s.dx[0]),
        dy_(s.dy),
        affine_(s, std::get<LayerNorm>(s.description.operation).affine),
        norm_(s.queue.space(), views::extents_of(s.plan.input.owned(s.comm.rank())).values,
              std::get<LayerNorm>(s.description.operation).epsilon) {}

  void add_forward(Step<Exec>& step, Mode) override {
    step.kernel("", {reads(x_), reads(affine_.gamma), reads(affine_.beta), writes(y_), writes(*this)},
                [this](const Exec& exec) {
                  norm_.forward(exec, x_.owned_part(), affine_.gamma, affine_.beta, y_.owned_part());
                });
  }

  void add_backward(Step<Exec>& step) override {
    if (affine_.learned()) {
      step.kernel("scale", {reads(x_), reads(dy_), affine_.writes_dgamma(), affine_.writes_dbeta(), writes(*this)},
                  [this](const Exec& exec) {
                    if (counts_) {
                      norm_.parameter_gradients(exec, x_.owned_part(), dy_.owned_part(), affine_.dgamma, affine_.dbeta);
                    } else {
                      affine_.zero_gradients(exec);
                    }
                  });
    }
    if (dx_.allocated()) {
      step.kernel("data", {reads(x_), reads(dy_), reads(affine_.gamma), writes(dx_), writes(*this)},
                  [this](const Exec& exec) {
                    norm_.backward(exec, x_.owned_part(), dy_.owned_part(), affine_.gamma, dx_.owned_part());
                  });
    }
  }

 private:
  bool counts_;
  Tensor<T, typename Exec::memory_space> x_, y_, dx_, dy_;
  Affine<T, Exec> affine_;
  local::LocalLayerNorm<T, Exec> norm_;
};

}  // namespace

template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_layer_norm_layer(const LayerSetup<T, Exec>& setup) {
  return std::make_unique<LayerNormLayer<T, Exec>>(setup);
}

#define INSTANTIATE(T, Exec) template std::unique_ptr<Layer<T, Exec>> make_layer_norm_layer(const LayerSetup<T, Exec>&);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
