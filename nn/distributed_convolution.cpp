#include <aloni/nn/distributed_convolution.hpp>

#include <aloni/core/comm/running_machine.hpp>
#include <aloni/core/error.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/plan/detail/builder.hpp>
#include <aloni/nn/plan/detail/convolution_planner.hpp>
#include <aloni/nn/run/binder.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace aloni::nn {

/// Plans the passes, with the tensors of the caller as buffers, and binds the plan.
template <class T, class Exec>
struct DistributedConvolution<T, Exec>::Implementation {
  using Mem = typename Exec::memory_space;
  static constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Mem>::accessible;

  LayerPlan layer;
  MachineDescription machine;
  StepPlan plan;
  PlanMemory<Exec> memory;
  detail::PlanBuilder builder;
  std::optional<detail::ConvolutionPlanner> planner;
  Binder<T, Exec> binder;
  std::map<std::string, std::pair<std::size_t, std::size_t>> parts;  ///< nodes, by name of the part

  Implementation(const comm::Communicator& comm, const Queue<Exec>& queue, const LayerPlan& p,
                 const ConvolutionTensors<T, Exec>& t, const DistributedConvolutionOptions& o)
      : layer(p),
        machine(comm::describe_machine(comm, local::machine_of_this_build(on_host))),
        plan{.rank = comm.rank(), .ranks = comm.size(), .samples = p.output.extents()[views::Dim::sample]},
        memory(comm, queue),
        builder(plan, machine, element_type<T>, o.backend),
        binder(comm, queue, memory, machine) {
    check_weights(t);
    layer.blocks = find_blocks(layer);  // the caller may have changed the plan
    planner.emplace(builder, layer, buffers_of(t),
                    detail::ConvolutionPlanOptions{.label = o.label,
                                                   .input_is_complete = o.input_is_complete,
                                                   .fuse_relu = o.relu,
                                                   .largest_overhead = o.largest_overhead});
    memory.allocate({&plan}, {});  // parts are planned later, so no lifetimes are known
  }

  static void check_weights(const ConvolutionTensors<T, Exec>& t) {
    for (int d = 0; d < views::num_dims; ++d) {
      if (static_cast<Index>(t.w.extent(d)) == views::extents_of(t.weights).values[d]) continue;
      throw InvalidArgument("aloni::nn::DistributedConvolution", "extents of tensors.w", "not the extents of its box",
                            views::to_string(views::extents_of(t.weights)));
    }
  }

  detail::ConvolutionBuffers buffers_of(const ConvolutionTensors<T, Exec>& t) {
    const auto add = [&](const char* name, const views::Box& owned, const views::Box& box, void* data,
                         std::shared_ptr<void> owner, ElementType type) {
      memory.use(name, data, std::move(owner));
      return builder.add({.name = name, .type = type, .owned = owned, .box = box, .persistent = true});
    };
    const auto tensor = [&](const char* name, const Tensor<T, Mem>& x) {
      if (!x.allocated()) return no_buffer;
      auto owner =
          std::make_shared<std::pair<typename Tensor<T, Mem>::Storage, std::shared_ptr<void>>>(x.storage, x.memory);
      return add(name, x.owned, x.box, x.storage.data(), std::move(owner), builder.activations());
    };
    const auto weights = [&](const char* name, const auto& view, const views::Box& box) {
      return add(name, box, box, view.data(), {}, builder.parameters());
    };
    const auto vector = [&](const char* name, const auto& view) {
      if (view.extent(0) == 0) return no_buffer;
      const views::Box box = detail::flat(static_cast<Index>(view.extent(0)));
      return add(name, box, box, view.data(), std::make_shared<std::decay_t<decltype(view)>>(view),
                 builder.parameters());
    };
    const bool trains = t.dy.allocated();
    return {.x = tensor("x", t.x),
            .y = tensor("y", t.y),
            .dx = tensor("dx", t.dx),
            .dy = tensor("dy", t.dy),
            .w = weights("w", t.w, t.weights),
            .dw = trains ? weights("dw", t.dw, t.weights) : no_buffer,
            .b = vector("b", t.b),
            .db = trains ? vector("db", t.db) : no_buffer};
  }

  /// Plans a part once, and binds its nodes.
  template <class Part>
  void add(Step<Exec>& step, const std::string& name, const Part& part) {
    auto& [first, last] = parts[name];
    if (first == last) {
      first = plan.nodes.size();
      builder.begin(step.scope(), 0, StepPhase::forward);
      part();
      last = plan.nodes.size();
    }
    for (std::size_t n = first; n < last; ++n) binder.bind(plan, static_cast<int>(n), step);
  }
};

template <class T, class Exec>
DistributedConvolution<T, Exec>::DistributedConvolution(const comm::Communicator& comm, const Queue<Exec>& queue,
                                                        const LayerPlan& plan,
                                                        const ConvolutionTensors<T, Exec>& tensors,
                                                        const DistributedConvolutionOptions& options)
    : implementation_(std::make_unique<Implementation>(comm, queue, plan, tensors, options)) {}

template <class T, class Exec>
DistributedConvolution<T, Exec>::~DistributedConvolution() = default;

template <class T, class Exec>
void DistributedConvolution<T, Exec>::add_input_exchange(Step<Exec>& step) {
  implementation_->add(step, "input_exchange", [&] { implementation_->planner->add_input_exchange(); });
}

template <class T, class Exec>
void DistributedConvolution<T, Exec>::add_forward(Step<Exec>& step, bool relu) {
  implementation_->add(step, "forward" + std::string(relu ? " with ReLU" : ""),
                       [&] { implementation_->planner->add_forward(relu); });
}

template <class T, class Exec>
bool DistributedConvolution<T, Exec>::fuses_relu() const {
  return implementation_->planner->fuses_relu();
}

template <class T, class Exec>
void DistributedConvolution<T, Exec>::add_gradient_exchange(Step<Exec>& step) {
  implementation_->add(step, "gradient_exchange", [&] { implementation_->planner->add_gradient_exchange(); });
}

template <class T, class Exec>
void DistributedConvolution<T, Exec>::add_backward_filter(Step<Exec>& step) {
  implementation_->add(step, "backward_filter", [&] { implementation_->planner->add_backward_filter(); });
}

template <class T, class Exec>
void DistributedConvolution<T, Exec>::add_backward_data(Step<Exec>& step) {
  implementation_->add(step, "backward_data", [&] { implementation_->planner->add_backward_data(); });
}

template <class T, class Exec>
void DistributedConvolution<T, Exec>::set_filter_version(std::uint64_t version) {
  implementation_->binder.set_filter_version(version);
}

template <class T, class Exec>
std::size_t DistributedConvolution<T, Exec>::workspace_bytes() const {
  std::size_t bytes = implementation_->binder.bytes();
  for (const PlanBuffer& b : implementation_->plan.buffers)
    if (b.alias == no_buffer && !b.persistent && !b.by_kernels) bytes += static_cast<std::size_t>(b.bytes());
  return bytes;
}

#define INSTANTIATE(T, Exec) template class DistributedConvolution<T, Exec>;
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
