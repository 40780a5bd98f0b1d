#include <aloni/halo/transfer.hpp>
#include <aloni/nn/layers/layer.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/local/pointwise.hpp>

#include <variant>
#include <vector>

namespace aloni::nn {

using views::Dim;

namespace {

local::ConvolutionProblem convolution_problem(const LayerPlan& plan, const views::Box& x, const views::Box& y) {
  local::ConvolutionProblem p;
  p.samples = y.extent(Dim::sample);
  p.channels = plan.input.extents()[Dim::channel];
  p.filters = plan.output.extents()[Dim::channel];
  for (int i = 0; i < 3; ++i) {
    const Dim d = views::spatial_dims[i];
    const halo::Stencil1D& s = plan.stencil[d];
    p.input[i] = x.extent(d);
    p.output[i] = y.extent(d);
    p.kernel[i] = s.kernel;
    p.stride[i] = s.stride;
    p.dilation[i] = s.dilation;
    p.offset[i] = local::local_offset(y.lower(d), x.lower(d), s.stride, s.pad_low);
  }
  return p;
}

/// Sample and spatial parallelism (spatial-parallel-cnn, section III.A): forward and backward-filter read the input with its
/// ghosts, backward-data reads dL/dy with ghosts, whose exchange runs beside backward-filter.
template <class T, class Exec>
class ConvolutionLayer final : public Layer<T, Exec> {
 public:
  using Mem = typename Exec::memory_space;

  explicit ConvolutionLayer(const LayerSetup<T, Exec>& s)
      : counts_(counts_in_sums(s.plan.output, s.comm.rank())), x_(s.x[0]), y_(s.y), dx_(s.dx[0]), dy_(s.dy) {
    const Exec& exec = s.queue.space();
    const int first = s.parameters.find(s.index, 0);
    w_ = s.parameters.value(first);
    dw_ = s.parameters.gradient(first);
    if (std::get<Convolution>(s.description.operation).bias) {
      b_ = s.parameters.vector_value(first + 1);
      db_ = s.parameters.vector_gradient(first + 1);
    }
    if (!y_.owned.empty()) {
      forward_ = local::make_local_convolution<T, Exec>(s.backend, convolution_problem(s.plan, x_.box, y_.owned), exec,
                                                        {.forward = true, .backward_filter = counts_});
    }
    if (dx_.allocated()) prepare_backward_data(s);
  }

  void add_forward(Step<Exec>& step, Mode) override {
    if (!forward_) return;
    step.kernel("", {reads(x_, x_.box), reads(w_), reads(b_), writes(y_)},
                [this](const Exec& exec) { forward_->forward(exec, x_.whole(), w_, b_, y_.owned_part()); });
  }

  void add_backward(Step<Exec>& step) override {
    if (exchanges_) step.transfer("halo of dy", {reads(dy_), writes(ghosted_dy_, ghosted_dy_.box)}, gradient_halo_);
    step.kernel("filters", {reads(x_, x_.box), reads(dy_), writes(dw_), writes(db_)}, [this](const Exec& exec) {
      if (forward_ && counts_) {
        forward_->backward_filter(exec, x_.whole(), dy_.owned_part(), dw_, db_);
      } else {
        local::fill<T, Exec>(exec, T(0), dw_);
        if (db_.extent(0) > 0) Kokkos::deep_copy(exec, db_, T(0));
      }
    });
    if (!dx_.allocated() || dx_.owned.empty()) return;
    step.kernel("data", {reads(ghosted_dy_, ghosted_dy_.box), reads(w_), writes(dx_)}, [this](const Exec& exec) {
      if (backward_data_) {
        backward_data_->backward_data(exec, ghosted_dy_.whole(), w_, dx_.owned_part());
      } else {
        local::fill<T, Exec>(exec, T(0), dx_.owned_part());
      }
    });
  }

 private:
  void prepare_backward_data(const LayerSetup<T, Exec>& s) {
    const int rank = s.comm.rank();
    std::vector<views::Box> needed(s.plan.output.ranks());
    for (int r = 0; r < s.plan.output.ranks(); ++r) needed[r] = s.plan.output_gradient_needed(r);
    exchanges_ = needs_ghosts(s.plan.output, needed);
    if (exchanges_) {
      // dL/dy itself stays dense for backward-filter; the part with ghosts is a copy.
      const views::Box own = intersect(s.plan.output.owned(rank), needed[rank]);
      ghosted_dy_ = allocate_tensor<T>(s.comm, s.queue.space(), "aloni::nn::" + s.description.name + "_dy_with_ghosts",
                                       own, needed[rank]);
      gradient_halo_ = halo::Transfer<Exec>(
          s.comm, s.queue,
          {halo::TransferItem<T, Mem>::between(
              dy_.ref(), ghosted_dy_.ref(),
              halo::plan_redistribution(
                  s.plan.output, s.plan.output, [&](int r) { return needed[r]; }, halo::BoundaryConditions{}, rank))},
          {.label = s.description.name + "_dy"});
    } else {
      ghosted_dy_ = dy_;
    }
    // Where a stride jumps over all that the rank owns, no output reads it.
    if (!dx_.owned.empty() && !ghosted_dy_.box.empty()) {
      auto problem = convolution_problem(s.plan, dx_.owned, ghosted_dy_.box);
      problem.samples = dx_.owned.extent(Dim::sample);
      backward_data_ =
          local::make_local_convolution<T, Exec>(s.backend, problem, s.queue.space(), {.backward_data = true});
    }
  }

  bool counts_;
  bool exchanges_ = false;
  Tensor<T, Mem> x_, y_, dx_, dy_, ghosted_dy_;
  views::LocalView<T, Mem> w_, dw_;
  Kokkos::View<T*, Mem> b_, db_;
  std::unique_ptr<local::LocalConvolution<T, Exec>> forward_, backward_data_;
  halo::Transfer<Exec> gradient_halo_;
};

}  // namespace

template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_convolution_layer(const LayerSetup<T, Exec>& setup) {
  return std::make_unique<ConvolutionLayer<T, Exec>>(setup);
}

template std::unique_ptr<Layer<float, Kokkos::DefaultExecutionSpace>> make_convolution_layer(
    const LayerSetup<float, Kokkos::DefaultExecutionSpace>&);
template std::unique_ptr<Layer<double, Kokkos::DefaultExecutionSpace>> make_convolution_layer(
    const LayerSetup<double, Kokkos::DefaultExecutionSpace>&);

}  // namespace aloni::nn
