#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/layers/layer.hpp>
#include <aloni/nn/local/resampling.hpp>

#include <variant>

namespace aloni::nn {

using views::Dim;

namespace {

local::ResamplingProblem resampling_problem(const LayerPlan& plan, const views::Box& x, const views::Box& y) {
  local::ResamplingProblem p;
  p.samples = y.extent(Dim::sample);
  p.channels = y.extent(Dim::channel);
  for (int i = 0; i < 3; ++i) {
    const Dim d = views::spatial_dims[i];
    p.map[i] = (*plan.range_map)[d];
    p.input[i] = x.extent(d);
    p.output[i] = y.extent(d);
    p.input_lower[i] = x.lower(d);
    p.output_lower[i] = y.lower(d);
  }
  return p;
}

bool takes_maximum(const Operation& op) {
  const auto* pooling = std::get_if<AdaptivePooling>(&op);
  return pooling != nullptr && pooling->kind == PoolingKind::max;
}

/// Adaptive pooling and up-sampling. Backward works as for pooling: each rank writes the gradients of all inputs that
/// its outputs read, and Network adds the ghosts to their owners. For up-sampling this moves one row of the coarse
/// tensor; gathering would move several rows of the fine one.
template <class T, class Exec>
class ResamplingLayer final : public Layer<T, Exec> {
 public:
  explicit ResamplingLayer(const LayerSetup<T, Exec>& s)
      : maximum_(takes_maximum(s.description.operation)),
        x_(s.x[0]),
        y_(s.y),
        dx_(s.dx[0]),
        dy_(s.dy),
        work_(s.plan.forward_work(s.comm.rank())),
        dx_box_(s.plan.input_needed_by_owned(s.comm.rank())),
        forward_(resampling_problem(s.plan, x_.box, work_)),
        backward_(resampling_problem(s.plan, dx_box_, y_.owned)) {
    if (maximum_ && dx_.allocated()) {
      argmax_ = allocate_tensor<std::int32_t>(s.queue.space(), "aloni::nn::argmax", y_.owned, work_);
    }
  }

  void add_forward(Step<Exec>& step, Mode) override {
    if (work_.empty()) return;
    step.kernel("", {reads(x_, x_.box), writes(y_, work_), writes(argmax_, work_)}, [this](const Exec& exec) {
      if (maximum_) {
        local::adaptive_max_pool_forward<T, Exec>(exec, forward_, x_.whole(), y_.part(work_), argmax_.whole());
      } else {
        local::resample_forward<T, Exec>(exec, forward_, x_.whole(), y_.part(work_));
      }
    });
  }

  void add_backward(Step<Exec>& step) override {
    if (!dx_.allocated() || dx_box_.empty()) return;
    step.kernel("", {reads(dy_), reads(argmax_), writes(dx_, dx_box_)}, [this](const Exec& exec) {
      if (maximum_) {
        local::adaptive_max_pool_backward<T, Exec>(exec, backward_, dy_.owned_part(), argmax_.owned_part(),
                                                   dx_.part(dx_box_));
      } else {
        local::resample_backward<T, Exec>(exec, backward_, dy_.owned_part(), dx_.part(dx_box_));
      }
    });
  }

 private:
  bool maximum_;
  Tensor<T, typename Exec::memory_space> x_, y_, dx_, dy_;
  views::Box work_;    ///< box of y
  views::Box dx_box_;  ///< box of dx; the memory of dx, the producer's dy, may be larger
  Tensor<std::int32_t, typename Exec::memory_space> argmax_;
  // The buffer of x may be larger than that of dx (the producer's box with ghosts), so the two passes have separate
  // boxes.
  local::ResamplingProblem forward_, backward_;
};

}  // namespace

template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_resampling_layer(const LayerSetup<T, Exec>& setup) {
  return std::make_unique<ResamplingLayer<T, Exec>>(setup);
}

#define INSTANTIATE(T, Exec) template std::unique_ptr<Layer<T, Exec>> make_resampling_layer(const LayerSetup<T, Exec>&);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
