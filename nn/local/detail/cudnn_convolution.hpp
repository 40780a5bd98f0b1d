#pragma once
// The local convolution by plans of cuDNN. What makes plans and runs them is a template argument: tests compute the
// graphs on the host.
//
// cuDNN reads and writes Views in place: its tensors have their strides. A plan belongs to a graph, hence to strides
// and to the alignment of pointers, those of filters and bias too. They are known when a call comes, so plans are made
// at the first call with them, and kept. Memory is not: the workspace is taken when the object is made. An engine that
// copies strided tensors wants room for these copies, so the workspace has room for them.
//
// With bfloat16 activations the parameters are float. cuDNN reads a copy of the filters in bfloat16. It is made once
// for each version of their values, and the kernels of one FilterOrders share it. cuDNN adds the bias in float. It has
// no engine that reads bfloat16 and writes float. So it rounds the gradient of the filters to bfloat16 once, and the
// result is converted.
#include <aloni/core/error.hpp>
#include <aloni/nn/local/bias.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/local/detail/cudnn_plans.hpp>
#include <aloni/nn/local/detail/elementwise.hpp>
#include <aloni/nn/local/detail/filter_copy.hpp>
#include <aloni/nn/local/pointwise_layers.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace aloni::nn::local::detail {

/// The largest power of two up to 16 that divides the address.
inline Index alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  Index alignment = 16;
  while (address % static_cast<std::uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

/// Engines: a class with
///   using Plan = …                               // CudnnPlan, or a type with its engine() and workspace_bytes()
///   std::vector<Plan> plans(const CudnnGraph&, const CudnnPlanOptions&)
///   bool run(const Plan&, const CudnnOperands&, const Exec&)   // queues the kernels; false: refuses the pointers
template <class T, class Exec, class Engines>
class CudnnConvolution final : public LocalConvolution<T, Exec> {
  using Base = LocalConvolution<T, Exec>;
  using Parameter = parameter_type_t<T>;
  using Workspace = Kokkos::View<std::byte*, typename Exec::memory_space>;
  /// Filters have another type than activations.
  static constexpr bool converts = !std::is_same_v<T, Parameter>;

 public:
  CudnnConvolution(const ConvolutionProblem& problem, const Exec& exec, ConvolutionPasses passes,
                   std::shared_ptr<Engines> engines, const std::shared_ptr<FilterOrders>& orders = nullptr)
      : Base(problem, passes), part_(cudnn_problem(problem)), engines_(std::move(engines)) {
    if (problem.samples == 0 || pixels(part_.output) == 0) return;
    if (passes.backward_filter)
      bias_gradient_.emplace(exec, problem.samples, problem.output[0], problem.output[1], problem.filters);
    if (part_.reads_nothing()) return;
    // Dense copies of x and y, each on a boundary of 256 bytes.
    const Index copies = static_cast<Index>(sizeof(T)) * part_.samples *
                             (pixels(part_.input) * part_.channels + pixels(part_.output) * part_.filters) +
                         Index{1024};
    Index bytes = 0;
    for (const auto& [wanted, pass] : {std::pair{passes.forward, ConvolutionPass::forward},
                                       std::pair{passes.backward_data, ConvolutionPass::backward_data},
                                       std::pair{passes.backward_filter, ConvolutionPass::backward_filter}}) {
      if (!wanted) continue;
      const bool packs = !passes.dense_input || !passes.dense_output;
      CudnnGraph graph = dense_graph(problem, pass, element_type<T>);
      for (const Index alignment : {Index{16}, static_cast<Index>(sizeof(T))}) {
        if (converts && alignment < 16) continue;  // the copies of filters lie on boundaries of 16 bytes
        graph.filters_alignment = alignment;       // that of parameters is not known yet
        const Chosen dense = choose(graph, most_workspace);
        if (!dense.plan) missing_ = true;
        if (dense.plan) bytes = std::max(bytes, dense.plan->workspace_bytes() + (packs ? copies : 0));
      }
    }
    workspace_ = Workspace(Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, "aloni::nn::cudnn_workspace"),
                           static_cast<std::size_t>(bytes));
    if constexpr (converts) {
      const Index elements = pixels(problem.kernel) * problem.filters * problem.channels_per_group();
      if (passes.forward || passes.backward_data) {
        filters_ = filter_copy_of<NarrowFilters>(orders);
        filters_->reserve(exec, "aloni::nn::convolution_narrow_filters", elements);
        owns_filters_ = !orders || orders->copy != filters_;
      }
      if (passes.backward_filter) {
        narrow_gradient_ = Kokkos::View<T*, typename Exec::memory_space>(
            Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, "aloni::nn::convolution_narrow_gradient"),
            static_cast<std::size_t>(elements));
      }
    }
  }

  /// Whether cuDNN has no engine for a pass, even with dense tensors.
  bool is_incomplete() const { return missing_; }

  std::string implementation(ConvolutionPass pass) const override {
    for (const Chosen& chosen : chosen_)
      if (chosen.graph.pass == pass && chosen.plan) return "cudnn engine " + std::to_string(chosen.plan->engine());
    return "cudnn";
  }
  std::size_t workspace_bytes() const override {
    return workspace_.size() + (owns_filters_ ? filters_->bytes() : 0) + narrow_gradient_.size() * sizeof(T);
  }

 private:
  using Filters = Tensor<const Parameter, Exec>;
  using NarrowFilters = FilterCopy<T, Convert<T>, Exec>;

  /// The plan of a graph; none if cuDNN has no engine that fits in the workspace. `fused`: with bias and ReLU.
  struct Chosen {
    CudnnGraph graph;
    std::optional<typename Engines::Plan> plan = {};
    bool fused = false;
    std::vector<std::int64_t> refused = {};  ///< engines that refused their pointers
  };

  static Index pixels(const std::array<Index, 3>& extents) { return extents[0] * extents[1] * extents[2]; }
  template <class View>
  static CudnnStrides strides_of(const View& view) {
    CudnnStrides strides{};
    for (std::size_t i = 0; i < 5; ++i) strides[i] = static_cast<Index>(view.stride(i));
    return strides;
  }

  /// The plan of the asked engine, fused or not; otherwise of the one that cuDNN expects to be fastest.
  Chosen choose(const CudnnGraph& graph, Index most_bytes) const {
    CudnnPlanOptions options{.most = 1,
                             .most_workspace_bytes = most_bytes,
                             .reduced_precision = this->passes().tf32,
                             .engine = this->passes().engine};
    Chosen chosen = choose(graph, options);
    if (chosen.plan || options.engine < 0) return chosen;
    options.engine = -1;
    return choose(graph, options);
  }
  Chosen choose(const CudnnGraph& graph, const CudnnPlanOptions& options) const {
    Chosen chosen{.graph = graph};
    auto plans = engines_->plans(graph, options);
    chosen.fused = !plans.empty();
    if (plans.empty() && (graph.bias || graph.relu)) {
      CudnnGraph plain = graph;
      plain.bias = plain.relu = false;
      plans = engines_->plans(plain, options);
    }
    if (!plans.empty()) chosen.plan.emplace(std::move(plans.front()));
    return chosen;
  }

  template <class X, class Y>
  Chosen& plan_for(ConvolutionPass pass, const X& x, const Y& y, const void* filters, const void* bias) {
    CudnnGraph graph{.problem = part_,
                     .pass = pass,
                     .type = element_type<T>,
                     .input_strides = strides_of(x),
                     .output_strides = strides_of(y),
                     .bias = bias != nullptr,
                     .relu = pass == ConvolutionPass::forward && this->passes().relu,
                     .input_alignment = alignment_of(start_of_part(x, part_)),
                     .output_alignment = alignment_of(y.data()),
                     .filters_alignment = alignment_of(filters),
                     .bias_alignment = bias ? alignment_of(bias) : 16};
    const auto known = std::ranges::find(chosen_, graph, &Chosen::graph);
    if (known != chosen_.end()) return *known;
    chosen_.push_back(choose(graph, static_cast<Index>(workspace_.size())));
    require_plan(chosen_.back());
    return chosen_.back();
  }
  void require_plan(const Chosen& chosen) const {
    if (chosen.plan) return;
    throw Unsupported("aloni::nn::local::LocalConvolution: cuDNN", std::string(name(chosen.graph.pass)),
                      to_string(this->problem()) + ", tensors with gaps",
                      "a problem for which cuDNN has an engine, or another backend: kokkos_kernels");
  }
  /// The next plan after one whose engine refuses its pointers. Throws Unsupported if there is none.
  void choose_next(Chosen& chosen) const {
    chosen.refused.push_back(chosen.plan->engine());
    chosen.plan.reset();
    const auto find = [&](bool repeatable) {
      CudnnGraph graph = chosen.graph;
      if (!chosen.fused) graph.bias = graph.relu = false;
      CudnnPlanOptions options{.most = 1,
                               .most_workspace_bytes = static_cast<Index>(workspace_.size()),
                               .reduced_precision = this->passes().tf32,
                               .repeatable = repeatable};
      for (auto plans = engines_->plans(graph, options); !plans.empty(); plans = engines_->plans(graph, options)) {
        ++options.first;
        if (std::ranges::find(chosen.refused, plans.front().engine()) != chosen.refused.end()) continue;
        chosen.plan.emplace(std::move(plans.front()));
        return;
      }
    };
    find(true);
    if (!chosen.plan && chosen.fused) {  // another graph, with engines of its own
      chosen.fused = false;
      chosen.refused.clear();
      find(true);
    }
    if (!chosen.plan) find(false);
    require_plan(chosen);
  }

  template <class X, class Y, class W>
  void run(const Exec& exec, Chosen& chosen, const X& x, const W* filters, const Y& y, const void* bias) {
    const auto pointer = [](const void* p) { return const_cast<void*>(p); };  // cuDNN takes both kinds alike
    const auto queued = [&] {
      return engines_->run(*chosen.plan,
                           {.input = pointer(start_of_part(x, part_)),
                            .output = pointer(y.data()),
                            .filters = pointer(filters),
                            .bias = chosen.fused ? pointer(bias) : nullptr,
                            .workspace = workspace_.data()},
                           exec);
    };
    while (!queued()) choose_next(chosen);
  }

  /// The filters as cuDNN reads them.
  const T* read_filters(const Exec& exec, const Filters& w) {
    if constexpr (converts) {
      return filters_->of(exec, w, this->filters_version()).data();
    } else {
      return w.data();
    }
  }

  bool fuses_relu() const override { return true; }
  void run_forward(const Exec& exec, const Tensor<const T, Exec>& x, const Filters& w,
                   const Array<const Parameter, Exec>& bias, const Tensor<T, Exec>& y) override {
    const bool adds = bias.extent(0) > 0;
    bool fused = false;
    if (part_.reads_nothing() || part_.channels == 0) {
      Kokkos::deep_copy(exec, y, T(0));
    } else {
      const T* const filters = read_filters(exec, w);
      const void* const added = adds ? bias.data() : nullptr;
      Chosen& chosen = plan_for(ConvolutionPass::forward, x, y, filters, added);
      run(exec, chosen, x, filters, y, added);
      fused = chosen.fused;
    }
    if (fused) return;
    if (adds) add_bias<T, Exec>(exec, bias, y);
    if (this->passes().relu) pointwise_forward<T, Exec>(exec, Relu{}, y, y);
  }

  void run_backward_data(const Exec& exec, const Tensor<const T, Exec>& dy, const Filters& w,
                         const Tensor<T, Exec>& dx) override {
    const bool empty = part_.reads_nothing() || dy.size() == 0;
    if (empty || part_.input != this->problem().input) Kokkos::deep_copy(exec, dx, T(0));
    if (empty) return;
    const T* const filters = read_filters(exec, w);
    run(exec, plan_for(ConvolutionPass::backward_data, dx, dy, filters, nullptr), dx, filters, dy, nullptr);
  }

  void run_backward_filter(const Exec& exec, const Tensor<const T, Exec>& x, const Tensor<const T, Exec>& dy,
                           const Tensor<Parameter, Exec>& dw, const Array<Parameter, Exec>& db) override {
    if (part_.reads_nothing() || dy.size() == 0 || x.size() == 0) {
      Kokkos::deep_copy(exec, dw, Parameter(0));
    } else if constexpr (converts) {
      const T* const narrow = narrow_gradient_.data();
      run(exec, plan_for(ConvolutionPass::backward_filter, x, dy, narrow, nullptr), x, narrow, dy, nullptr);
      elementwise<Exec, Convert<Parameter>, Parameter, T>(
          exec, "aloni::nn::convolution_widen_gradient", {}, dw,
          dense_tensor<const T, Exec>(narrow, dw.extent(0), dw.extent(1), dw.extent(2), dw.extent(3), dw.extent(4)));
    } else {
      run(exec, plan_for(ConvolutionPass::backward_filter, x, dy, dw.data(), nullptr), x, dw.data(), dy, nullptr);
    }
    if (db.extent(0) == 0) return;
    if (dy.size() == 0) {
      Kokkos::deep_copy(exec, db, Parameter(0));
    } else {
      (*bias_gradient_)(exec, dy, db);
    }
  }

  static constexpr Index most_workspace = Index{1} << 30;

  PaddedProblem part_;
  std::shared_ptr<Engines> engines_;
  std::vector<Chosen> chosen_;
  Workspace workspace_;
  std::shared_ptr<NarrowFilters> filters_;                         ///< null unless `converts`
  Kokkos::View<T*, typename Exec::memory_space> narrow_gradient_;  ///< of the filters; empty unless `converts`
  std::optional<BiasGradient<T, Exec>> bias_gradient_;
  bool missing_ = false, owns_filters_ = false;
};

}  // namespace aloni::nn::local::detail
