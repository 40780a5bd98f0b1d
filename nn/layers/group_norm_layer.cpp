#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/layers/affine.hpp>
#include <aloni/nn/layers/group_sums.hpp>
#include <aloni/nn/layers/layer.hpp>
#include <aloni/nn/local/group_norm.hpp>

#include <cstddef>
#include <variant>

namespace aloni::nn {

using views::Dim;

namespace {

/// The ranks that share samples add the sums over their pixels. Each of them has all channels. A rank without pixels
/// contributes zeros.
template <class T, class Exec>
class GroupNormLayer final : public Layer<T, Exec> {
 public:
  explicit GroupNormLayer(const LayerSetup<T, Exec>& s)
      : options_(std::get<GroupNorm>(s.description.operation)),
        counts_(counts_in_sums(s.plan.output, s.comm.rank())),
        x_(s.x[0]),
        y_(s.y),
        dx_(s.dx[0]),
        dy_(s.dy),
        affine_(s, options_.affine),
        norm_(s.queue.space(), views::extents_of(s.plan.input.owned(s.comm.rank())).values, options_.groups),
        sums_(s.comm, s.queue, "aloni::nn::group_norm_sums",
              s.plan.input.group(s.comm.rank(), {Dim::depth, Dim::height, Dim::width}),
              static_cast<std::size_t>(norm_.sums())) {
    const auto& e = s.plan.input.extents();
    count_ = e[Dim::depth] * e[Dim::height] * e[Dim::width] * (e[Dim::channel] / options_.groups);
  }

  void add_forward(Step<Exec>& step, Mode) override {
    step.kernel("sums of this rank", {reads(x_), writes(sums_.values()), writes(*this)},
                [this](const Exec& exec) { norm_.statistics(exec, x_.owned_part(), sums_.values()); });
    sums_.add_to(step);
    step.kernel(
        "normalise",
        {reads(x_), reads(sums_.values()), reads(affine_.gamma), reads(affine_.beta), writes(y_), writes(*this)},
        [this](const Exec& exec) {
          norm_.finish(exec, count_, options_.epsilon, sums_.values());
          norm_.forward(exec, x_.owned_part(), affine_.gamma, affine_.beta, y_.owned_part());
        });
  }

  void add_backward(Step<Exec>& step) override {
    if (!dx_.allocated() && !affine_.learned()) return;
    step.kernel("sums of this rank",
                {reads(x_), reads(dy_), reads(affine_.gamma), writes(sums_.values()), writes(*this)},
                [this](const Exec& exec) {
                  norm_.gradients(exec, x_.owned_part(), dy_.owned_part(), affine_.gamma, sums_.values());
                });
    if (dx_.allocated()) sums_.add_to(step);
    if (affine_.learned()) {
      step.kernel("scale", {affine_.writes_dgamma(), affine_.writes_dbeta(), writes(*this)}, [this](const Exec& exec) {
        if (counts_) {
          norm_.parameter_gradients(exec, affine_.dgamma, affine_.dbeta);
        } else {
          affine_.zero_gradients(exec);
        }
      });
    }
    if (!dx_.allocated()) return;
    step.kernel("data",
                {reads(x_), reads(dy_), reads(affine_.gamma), reads(sums_.values()), writes(dx_), writes(*this)},
                [this](const Exec& exec) {
                  norm_.backward(exec, count_, x_.owned_part(), dy_.owned_part(), affine_.gamma, sums_.values(),
                                 dx_.owned_part());
                });
  }

 private:
  GroupNorm options_;
  bool counts_;
  Tensor<T, typename Exec::memory_space> x_, y_, dx_, dy_;
  Affine<T, Exec> affine_;
  local::LocalGroupNorm<T, Exec> norm_;
  GroupSums<Exec> sums_;
  Index count_ = 0;  ///< number of elements that share a mean
};

}  // namespace

template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_group_norm_layer(const LayerSetup<T, Exec>& setup) {
  return std::make_unique<GroupNormLayer<T, Exec>>(setup);
}

#define INSTANTIATE(T, Exec) template std::unique_ptr<Layer<T, Exec>> make_group_norm_layer(const LayerSetup<T, Exec>&);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
