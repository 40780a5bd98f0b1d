#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/layers/affine.hpp>
#include <aloni/nn/layers/group_sums.hpp>
#include <aloni/nn/layers/layer.hpp>
#include <aloni/nn/local/batch_norm.hpp>

#include <algorithm>
#include <cstddef>
#include <variant>
#include <vector>

namespace aloni::nn {

using views::Dim;

namespace {

/// Statistics over this rank's box, the ranks that share its samples, neighbouring ranks, or all ranks
/// (spatial-parallel-cnn, section III.B). Sums per channel are added within the group and divided by the group's
/// number of elements. So uneven and empty boxes have the right weight.
template <class T, class Exec>
class BatchNormLayer final : public Layer<T, Exec> {
 public:
  using Mem = typename Exec::memory_space;
  using Vector = Kokkos::View<double*, Mem>;

  explicit BatchNormLayer(const LayerSetup<T, Exec>& s)
      : options_(std::get<BatchNorm>(s.description.operation)),
        counts_(counts_in_sums(s.plan.output, s.comm.rank())),
        x_(s.x[0]),
        y_(s.y),
        dx_(s.dx[0]),
        dy_(s.dy),
        affine_(s, true),
        running_(own_statistics(s)),
        reduction_(s.queue.space(), x_.owned.extent(Dim::sample), x_.owned.extent(Dim::depth),
                   x_.owned.extent(Dim::height), x_.owned.extent(Dim::channel)) {
    const Exec& exec = s.queue.space();
    const std::size_t channels = affine_.gamma.extent(0);
    mean_ = Vector(Kokkos::view_alloc(exec, "aloni::nn::batch_norm_mean"), channels);
    inv_std_ = Vector(Kokkos::view_alloc(exec, "aloni::nn::batch_norm_inv_std"), channels);

    std::vector<int> members{s.comm.rank()};
    if (options_.scope == StatisticsScope::spatial) {
      members = s.plan.input.group(s.comm.rank(), {Dim::depth, Dim::height, Dim::width});
    } else if (options_.scope != StatisticsScope::local) {
      members = s.plan.input.group(s.comm.rank(), {Dim::sample, Dim::depth, Dim::height, Dim::width});
    }
    if (options_.scope == StatisticsScope::neighbours) {
      const auto place = std::ranges::find(members, s.comm.rank()) - members.begin();
      const auto first = place / options_.ranks * options_.ranks;
      const auto last = std::min<std::ptrdiff_t>(first + options_.ranks, std::ssize(members));
      members = std::vector<int>(members.begin() + first, members.begin() + last);
    }
    sums_ = GroupSums<Exec>(s.comm, s.queue, "aloni::nn::batch_norm_sums", members, 2 * channels);
    for (int r : members) {
      const auto box = s.plan.input.owned(r);
      if (!box.empty()) count_ += box.size() / box.extent(Dim::channel);
    }
  }

  /// Statistics of the channels that the rank owns.
  static RunningStatistics<Mem> own_statistics(const LayerSetup<T, Exec>& s) {
    RunningStatistics<Mem> all = s.parameters.running_statistics(s.index);
    const views::Box own = s.plan.input.owned(s.comm.rank());
    const auto range = Kokkos::make_pair(own.lower(Dim::channel), own.upper(Dim::channel));
    return {all.layer, Kokkos::subview(all.mean, range), Kokkos::subview(all.variance, range)};
  }

  void add_forward(Step<Exec>& step, Mode mode) override {
    const bool trains = mode == Mode::training;
    if (trains && count_ == 0) return;  // no rank of the group has data
    if (trains) {
      step.kernel("sums of this rank", {reads(x_), writes(sums_.values()), writes(*this)},
                  [this](const Exec& exec) { reduction_.statistics(exec, x_.owned_part(), sums_.values()); });
      sums_.add_to(step);
    }
    step.kernel("normalise",
                {reads(x_), reads(sums_.values()), writes(running_.mean), writes(running_.variance),
                 reads(affine_.gamma), reads(affine_.beta), writes(y_), writes(*this)},
                [this, trains](const Exec& exec) {
                  if (trains) {
                    local::batch_norm_finish<Exec>(exec, count_, {options_.epsilon, options_.momentum}, sums_.values(),
                                                   mean_, inv_std_, running_.mean, running_.variance);
                  } else {
                    local::batch_norm_inverse<Exec>(exec, options_.epsilon, running_.variance, inv_std_);
                  }
                  if (y_.owned.empty()) return;
                  local::batch_norm_forward<T, Exec>(exec, x_.owned_part(), trains ? mean_ : running_.mean, inv_std_,
                                                     affine_.gamma, affine_.beta, y_.owned_part());
                });
  }

  void add_backward(Step<Exec>& step) override {
    step.kernel(
        "sums of this rank",
        {reads(x_), reads(dy_), writes(sums_.values()), affine_.writes_dgamma(), affine_.writes_dbeta(), writes(*this)},
        [this](const Exec& exec) {
          if (affine_.has_others()) affine_.zero_gradients(exec);
          if (count_ > 0) {
            reduction_.gradients(exec, x_.owned_part(), dy_.owned_part(), mean_, inv_std_, sums_.values());
            local::batch_norm_parameter_gradients<parameter_type_t<T>, Exec>(exec, sums_.values(), affine_.dgamma,
                                                                             affine_.dbeta);
          }
          if (count_ == 0 || !counts_) affine_.zero_gradients(exec);
        });
    if (count_ == 0 || !dx_.allocated()) return;
    sums_.add_to(step);
    if (dx_.owned.empty()) return;
    step.kernel("data",
                {reads(x_), reads(dy_), reads(sums_.values()), reads(affine_.gamma), writes(dx_), writes(*this)},
                [this](const Exec& exec) {
                  local::batch_norm_backward<T, Exec>(exec, count_, x_.owned_part(), dy_.owned_part(), mean_, inv_std_,
                                                      affine_.gamma, sums_.values(), dx_.owned_part());
                });
  }

 private:
  BatchNorm options_;
  bool counts_;
  Tensor<T, Mem> x_, y_, dx_, dy_;
  Affine<T, Exec> affine_;
  RunningStatistics<Mem> running_;
  local::BatchNormReduction<T, Exec> reduction_;
  GroupSums<Exec> sums_;
  Vector mean_, inv_std_;
  Index count_ = 0;
};

}  // namespace

template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_batch_norm_layer(const LayerSetup<T, Exec>& setup) {
  return std::make_unique<BatchNormLayer<T, Exec>>(setup);
}

#define INSTANTIATE(T, Exec) template std::unique_ptr<Layer<T, Exec>> make_batch_norm_layer(const LayerSetup<T, Exec>&);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
