#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/factor_sums.hpp>
#include <aloni/nn/local/pointwise.hpp>
#include <aloni/nn/local/pointwise_layers.hpp>
#include <aloni/nn/run/binder.hpp>

#include <algorithm>
#include <type_traits>
#include <utility>

namespace aloni::nn {

using local::ConvolutionPass;
using views::Box;
using views::Dim;

/// The channels of `region` of a vector, such as a bias; extent 0 for no_buffer.
template <class T, class Exec>
auto Binder<T, Exec>::channels(const StepPlan& plan, BufferId b, const Box& region) const -> Flat<Parameter> {
  const Flat<Parameter> all = memory_.template flat<Parameter>(plan, b);
  if (all.extent(0) == 0) return all;
  return Flat<Parameter>(
      Kokkos::subview(all, Kokkos::make_pair(region.lower(Dim::channel), region.upper(Dim::channel))));
}

/// The filters of a part, of a bias or its gradient; extent 0 for no_buffer.
template <class T, class Exec>
auto Binder<T, Exec>::filters(const StepPlan& plan, BufferId b, const ConvolutionPart& part) const -> Flat<Parameter> {
  const Flat<Parameter> all = memory_.template flat<Parameter>(plan, b);
  if (all.extent(0) == 0) return all;
  return Flat<Parameter>(Kokkos::subview(all, Kokkos::make_pair(part.filters.lo, part.filters.hi)));
}

template <class T, class Exec>
auto Binder<T, Exec>::convolution(const StepPlan& plan, int weights) -> Convolution& {
  const ConvolutionWeights& planned = plan.convolution_weights[static_cast<std::size_t>(weights)];
  const std::string& name = plan.buffers[static_cast<std::size_t>(planned.w)].name;
  auto& c = convolutions_[name];
  const Exec& exec = queue_.space();
  const auto copy_of = [&](const auto& view, auto& memory) {
    memory = std::make_shared<Flat<Parameter>>(Kokkos::view_alloc(exec, "aloni::nn::" + name + "_copy"), view.size());
    return local::dense_tensor<Parameter, Exec>(memory->data(), view.extent(0), view.extent(1), view.extent(2),
                                                view.extent(3), view.extent(4));
  };
  if (!c) {
    c.reset(new Convolution{{exec, scratches_}, {exec, scratches_}, {}});
    for (const WeightPart& part : planned.parts) {
      detail::PartWeights<Parameter, Exec> w{.part = part.part,
                                             .w = memory_.template view<Parameter>(plan, planned.w, part.box)};
      if (part.copied) {
        w.original_w = w.w;
        w.w = copy_of(w.original_w, w.memory);
      }
      c->parts.push_back(std::move(w));
    }
  }
  if (planned.dw == no_buffer) return *c;
  for (std::size_t i = 0; i < c->parts.size(); ++i) {
    detail::PartWeights<Parameter, Exec>& w = c->parts[i];
    if (w.dw.data()) continue;
    w.dw = memory_.template view<Parameter>(plan, planned.dw, planned.parts[i].box);
    if (!w.copied()) continue;
    w.original_dw = w.dw;
    w.dw = copy_of(w.original_dw, w.gradient_memory);
  }
  return *c;
}

/// Copies weights that are not dense, and gives the kernels a new filter version. Kernels reorder their weights once
/// per version, although one kernel may compute many regions.
template <class T, class Exec>
auto Binder<T, Exec>::kernel(const StepPlan& plan, const WeightsWork& work) -> Kernel {
  return [this, c = &convolution(plan, work.weights)](const Exec& exec) {
    if (keeps_filters_ && filters_version_ != 0 && filters_version_ == c->seen_version) return;
    c->seen_version = filters_version_;
    ++c->refreshed;
    c->kernels.set_filter_version(keeps_filters_ ? c->refreshed : 0);
    c->sum_kernels.set_filter_version(keeps_filters_ ? c->refreshed : 0);
    for (const detail::PartWeights<Parameter, Exec>& w : c->parts)
      if (w.copied()) local::copy<Parameter, Exec>(exec, w.original_w, w.w);
  };
}

namespace {

/// The view of a box as a kernel of the problem takes it: samples are the width of a problem with one sample.
template <class View>
View as_in_problem(const View& view, const local::ConvolutionProblem& problem) {
  if (view.extent(0) == static_cast<std::size_t>(problem.samples)) return view;
  return View(view.data(),
              Kokkos::LayoutStride(1, view.extent(0) * view.stride(0), view.extent(1), view.stride(1), view.extent(2),
                                   view.stride(2), view.extent(0), view.stride(0), view.extent(4), view.stride(4)));
}

}  // namespace

template <class T, class Exec>
template <class Target>
auto Binder<T, Exec>::region(const StepPlan& plan, const ConvolutionWork& work,
                             detail::ConvolutionKernels<Target, Exec>& kernels) -> Kernel {
  using TargetView = views::LocalView<Target, Mem>;
  constexpr bool copies_source = !std::is_same_v<T, Target>;
  struct Call {
    std::shared_ptr<local::LocalConvolution<Target, Exec>> local = {};  // null: no input reaches the box
    View source = {};
    TargetView given = {};  // the view that the kernel reads: the source, or its dense copy
    views::LocalView<Parameter, Mem> w = {};
    Flat<Parameter> bias = {};
    TargetView target = {};
  };
  std::vector<Call> calls;
  const Convolution& c = convolution(plan, work.weights);
  const int stream = stream_of(plan, work);
  for (const ConvolutionCall& planned : work.calls) {
    const detail::PartWeights<Parameter, Exec>& w = c.parts[static_cast<std::size_t>(planned.part)];
    Call call{.w = w.w, .target = memory_.template view<Target>(plan, work.target, planned.target)};
    call.bias = filters(plan, work.bias, w.part);
    if (planned.computes) {
      call.source = as_in_problem(memory_.template view<T>(plan, work.source, planned.source), planned.problem);
      call.target = as_in_problem(call.target, planned.problem);
      if constexpr (copies_source) {
        call.given = local::dense_tensor<Target, Exec>(
            memory_.template data<Target>(plan, work.copy), call.source.extent(0), call.source.extent(1),
            call.source.extent(2), call.source.extent(3), call.source.extent(4));
      } else {
        call.given = call.source;
      }
      call.local =
          work.gathers
              ? kernels.of(planned, ConvolutionPass::forward, call.given, call.target, w.w.data(), stream, work.relu)
              : kernels.of(planned, ConvolutionPass::backward_data, call.target, call.given, w.w.data(), stream);
    }
    calls.push_back(std::move(call));
  }
  return [calls = std::move(calls), gathers = work.gathers, relu = work.relu](const Exec& exec) {
    for (const Call& call : calls) {
      if (!call.local) {
        local::fill<Target, Exec>(exec, Target(0), call.target);
        if (call.bias.extent(0) > 0) local::add_bias<Target, Exec>(exec, call.bias, call.target);
        if (relu) local::pointwise_forward<Target, Exec>(exec, Relu{}, call.target, call.target);
        continue;
      }
      if constexpr (copies_source) local::convert<Target, T, Exec>(exec, call.source, call.given);
      if (gathers) {
        call.local->forward(exec, call.given, call.w, call.bias, call.target);
      } else {
        call.local->backward_data(exec, call.given, call.w, call.target);
        if (call.bias.extent(0) > 0) local::add_bias<Target, Exec>(exec, call.bias, call.target);
      }
    }
  };
}

template <class T, class Exec>
auto Binder<T, Exec>::kernel(const StepPlan& plan, const ConvolutionWork& work) -> Kernel {
  Convolution& c = convolution(plan, work.weights);
  if (work.partial_sums) return region<Parameter>(plan, work, c.sum_kernels);
  return region<T>(plan, work, c.kernels);
}

template <class T, class Exec>
auto Binder<T, Exec>::kernel(const StepPlan& plan, const FilterGradientWork& work) -> Kernel {
  struct Call {
    std::shared_ptr<local::LocalConvolution<T, Exec>> local = {};
    View x = {}, dy = {};  // as the kernel names them: a transposed convolution exchanges them
    views::LocalView<Parameter, Mem> dw = {}, original_dw = {};
    Flat<Parameter> db = {};
    bool copied = false;
    local::ConvolutionProblem problem = {};
  };
  Convolution& c = convolution(plan, work.weights);
  const PlanBuffer& gradients = plan.buffers[static_cast<std::size_t>(work.dw)];
  std::vector<Call> calls;
  for (const ConvolutionCall& planned : work.calls) {
    if (!planned.computes) continue;
    const detail::PartWeights<Parameter, Exec>& w = c.parts[static_cast<std::size_t>(planned.part)];
    Call call{.x = as_in_problem(memory_.template view<T>(plan, work.x, planned.source), planned.problem),
              .dy = as_in_problem(memory_.template view<T>(plan, work.dy, planned.target), planned.problem),
              .dw = w.dw,
              .original_dw = w.original_dw,
              .copied = w.copied(),
              .problem = planned.problem};
    call.db = filters(plan, work.db, w.part);
    if (work.transposed) std::swap(call.x, call.dy);
    call.local = c.kernels.of(planned, ConvolutionPass::backward_filter, call.x, call.dy, nullptr, compute_stream);
    calls.push_back(std::move(call));
  }
  const int layer = plan.convolution_weights[static_cast<std::size_t>(work.weights)].layer;
  return [this, layer, calls = std::move(calls), zeroes_weights = work.zeroes_weights, zeroes_bias = work.zeroes_bias,
          dw = memory_.template view<Parameter>(plan, work.dw, gradients.box),
          db = memory_.template flat<Parameter>(plan, work.db)](const Exec& exec) {
    if (zeroes_weights) local::fill<Parameter, Exec>(exec, Parameter(0), dw);
    if (zeroes_bias) Kokkos::deep_copy(exec, db, Parameter(0));
    for (const Call& call : calls) {
      call.local->backward_filter(exec, call.x, call.dy, call.dw, call.db);
      if (call.copied) local::copy<Parameter, Exec>(exec, call.dw, call.original_dw);
      if (factor_sums_) factor_sums_->add(exec, layer, call.problem, call.x, call.dy);
    }
  };
}

template <class T, class Exec>
auto Binder<T, Exec>::kernel(const StepPlan& plan, const BiasWork& work) -> Kernel {
  return [b = channels(plan, work.bias, work.region), y = memory_.template view<T>(plan, work.target, work.region)](
             const Exec& exec) { local::add_bias<T, Exec>(exec, b, y); };
}

template <class T, class Exec>
auto Binder<T, Exec>::kernel(const StepPlan& plan, const BiasGradientWork& work) -> Kernel {
  const Flat<Parameter> db = memory_.template flat<Parameter>(plan, work.db);
  if (!work.contributes) return [db](const Exec& exec) { Kokkos::deep_copy(exec, db, Parameter(0)); };
  const auto e = views::extents_of(work.region).values;
  return
      [db, own = channels(plan, work.db, work.region), dy = memory_.template view<T>(plan, work.dy, work.region),
       sum = std::make_shared<local::BiasGradient<T, Exec>>(queue_.space(), e[0], e[1], e[2], e[4])](const Exec& exec) {
        if (own.extent(0) < db.extent(0)) Kokkos::deep_copy(exec, db, Parameter(0));
        (*sum)(exec, dy, own);
      };
}

template <class T, class Exec>
auto Binder<T, Exec>::kernel(const StepPlan& plan, const RoundingWork& work) -> Kernel {
  return [b = channels(plan, work.bias, work.region), sums = memory_.template view<Parameter>(plan, work.sums),
          to = memory_.template view<T>(plan, work.target, work.region)](const Exec& exec) {
    if (b.extent(0) > 0) local::add_bias<Parameter, Exec>(exec, b, sums);
    local::convert<T, Parameter, Exec>(exec, sums, to);
  };
}

#define INSTANTIATE(T, Exec)                                                                             \
  template auto Binder<T, Exec>::channels(const StepPlan&, BufferId, const Box&) const->Flat<Parameter>; \
  template auto Binder<T, Exec>::kernel(const StepPlan&, const WeightsWork&)->Kernel;                    \
  template auto Binder<T, Exec>::kernel(const StepPlan&, const ConvolutionWork&)->Kernel;                \
  template auto Binder<T, Exec>::kernel(const StepPlan&, const FilterGradientWork&)->Kernel;             \
  template auto Binder<T, Exec>::kernel(const StepPlan&, const BiasWork&)->Kernel;                       \
  template auto Binder<T, Exec>::kernel(const StepPlan&, const BiasGradientWork&)->Kernel;               \
  template auto Binder<T, Exec>::kernel(const StepPlan&, const RoundingWork&)->Kernel;
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
