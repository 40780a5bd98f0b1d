#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/layers/layer.hpp>
#include <aloni/nn/local/pointwise.hpp>
#include <aloni/nn/local/pooling.hpp>

#include <optional>
#include <span>
#include <string>
#include <variant>

namespace aloni::nn {

using views::Dim;

namespace {

local::PoolingProblem pooling_problem(const LayerPlan& plan, const views::Box& x, const views::Box& y) {
  local::PoolingProblem p;
  p.samples = y.extent(Dim::sample);
  p.channels = y.extent(Dim::channel);
  for (int i = 0; i < 3; ++i) {
    const Dim d = views::spatial_dims[i];
    p.input[i] = x.extent(d);
    p.output[i] = y.extent(d);
    p.window[i] = plan.stencil[d].kernel;
    p.stride[i] = plan.stencil[d].stride;
    p.offset[i] = local::local_offset(y.lower(d), x.lower(d), plan.stencil[d].stride, plan.stencil[d].pad_low);
  }
  return p;
}

template <class T, class Exec>
class PoolingLayer final : public Layer<T, Exec> {
 public:
  explicit PoolingLayer(const LayerSetup<T, Exec>& s)
      : kind_(std::get<Pooling>(s.description.operation).kind),
        divisor_(std::get<Pooling>(s.description.operation).count_include_pad ? local::AverageDivisor::window
                                                                              : local::AverageDivisor::in_domain),
        x_(s.x[0]),
        y_(s.y),
        dx_(s.dx[0]),
        dy_(s.dy),
        work_(s.plan.forward_work(s.comm.rank())),
        dx_box_(s.plan.input_needed_by_owned(s.comm.rank())),
        forward_(pooling_problem(s.plan, s.x[0].box, work_)),
        backward_(pooling_problem(s.plan, dx_box_, s.y.owned)) {
    if (kind_ == PoolingKind::max && dx_.allocated()) {
      argmax_ = allocate_tensor<std::int32_t>(s.queue.space(), "aloni::nn::argmax", y_.owned, work_);
    }
  }

  void add_forward(Step<Exec>& step, Mode) override {
    if (work_.empty()) return;
    step.kernel("", {reads(x_, x_.box), writes(y_, work_), writes(argmax_, work_)}, [this](const Exec& exec) {
      if (kind_ == PoolingKind::max) {
        local::max_pool_forward<T, Exec>(exec, forward_, x_.whole(), y_.part(work_), argmax_.whole());
      } else {
        local::average_pool_forward<T, Exec>(exec, forward_, divisor_, x_.whole(), y_.part(work_));
      }
    });
  }

  void add_backward(Step<Exec>& step) override {
    if (!dx_.allocated() || dx_box_.empty()) return;
    step.kernel("", {reads(dy_), reads(argmax_), writes(dx_, dx_box_)}, [this](const Exec& exec) {
      if (kind_ == PoolingKind::max) {
        local::max_pool_backward<T, Exec>(exec, backward_, dy_.owned_part(), argmax_.owned_part(), dx_.part(dx_box_));
      } else {
        local::average_pool_backward<T, Exec>(exec, backward_, divisor_, dy_.owned_part(), dx_.part(dx_box_));
      }
    });
  }

 private:
  PoolingKind kind_;
  local::AverageDivisor divisor_;
  Tensor<T, typename Exec::memory_space> x_, y_, dx_, dy_;
  views::Box work_;    ///< box of y
  views::Box dx_box_;  ///< box of dx; the memory of dx, the producer's dy, may be larger
  Tensor<std::int32_t, typename Exec::memory_space> argmax_;
  // The buffer of x may be larger than that of dx (the producer's box with ghosts), so the two passes have separate
  // offsets.
  local::PoolingProblem forward_, backward_;
};

/// Each rank sums its pixels. The ranks that share its samples add these sums, and each then has the mean.
template <class T, class Exec>
class GlobalAveragePoolingLayer final : public Layer<T, Exec> {
 public:
  using Sum = parameter_type_t<T>;

  explicit GlobalAveragePoolingLayer(const LayerSetup<T, Exec>& s) : x_(s.x[0]), y_(s.y), dx_(s.dx[0]), dy_(s.dy) {
    const auto& e = s.plan.input.extents();
    scale_ = 1.0 / static_cast<double>(e[Dim::depth] * e[Dim::height] * e[Dim::width]);
    const auto members = s.plan.input.group(s.comm.rank(), {Dim::depth, Dim::height, Dim::width});
    if (members.size() > 1) group_.emplace(s.comm.subgroup(members));
    sums_ = Kokkos::View<Sum*, typename Exec::memory_space>(
        Kokkos::view_alloc(s.queue.space(), "aloni::nn::global_average_sums"), y_.owned.size());
    host_ = Kokkos::create_mirror_view(sums_);
  }

  void add_forward(Step<Exec>& step, Mode) override {
    if (y_.owned.empty()) return;
    const auto e = views::extents_of(y_.owned).values;
    const auto sums = local::dense_tensor<Sum, Exec>(sums_.data(), e[0], e[1], e[2], e[3], e[4]);
    step.kernel("sums of this rank", {reads(x_), writes(sums_)}, [this, sums](const Exec& exec) {
      local::global_average_forward<T, Exec>(exec, scale_, x_.owned_part(), sums);
    });
    if (group_) {
      step.collective(
          "sums over ranks", {writes(sums_)},
          [this](const Queue<Exec>& queue) {
            Kokkos::deep_copy(queue.space(), host_, sums_);
            static const std::string reason =
                "aloni::nn::global_average_pooling: sums of this rank are needed on the host";
            queue.fence(reason);
            request_ = group_->start_all_reduce(std::span<Sum>(host_.data(), host_.extent(0)), comm::Reduction::sum);
          },
          [this](const Queue<Exec>& queue) {
            group_->wait(request_);
            Kokkos::deep_copy(queue.space(), sums_, host_);
          });
    }
    step.kernel("mean", {reads(sums_), writes(y_)},
                [this, sums](const Exec& exec) { local::convert<T, Sum, Exec>(exec, sums, y_.owned_part()); });
  }

  void add_backward(Step<Exec>& step) override {
    if (!dx_.allocated() || dx_.owned.empty()) return;
    step.kernel("", {reads(dy_), writes(dx_)}, [this](const Exec& exec) {
      local::global_average_backward<T, Exec>(exec, scale_, dy_.owned_part(), dx_.owned_part());
    });
  }

 private:
  Tensor<T, typename Exec::memory_space> x_, y_, dx_, dy_;
  double scale_;
  std::optional<comm::Communicator> group_;
  Kokkos::View<Sum*, typename Exec::memory_space> sums_;
  typename Kokkos::View<Sum*, typename Exec::memory_space>::HostMirror host_;
  comm::Request request_;
};

}  // namespace

template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_pooling_layer(const LayerSetup<T, Exec>& setup) {
  return std::make_unique<PoolingLayer<T, Exec>>(setup);
}

template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_global_average_pooling_layer(const LayerSetup<T, Exec>& setup) {
  return std::make_unique<GlobalAveragePoolingLayer<T, Exec>>(setup);
}

#define INSTANTIATE(T, Exec)                                                               \
  template std::unique_ptr<Layer<T, Exec>> make_pooling_layer(const LayerSetup<T, Exec>&); \
  template std::unique_ptr<Layer<T, Exec>> make_global_average_pooling_layer(const LayerSetup<T, Exec>&);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
