#include <aloni/core/comm/device/native_stream.hpp>
#include <aloni/core/config.hpp>
#include <aloni/core/error.hpp>
#include <aloni/nn/local/bias.hpp>
#include <aloni/nn/local/detail/convolution_backends.hpp>
#include <aloni/nn/local/detail/cudnn_plans.hpp>
#include <aloni/nn/local/detail/execution.hpp>
#include <aloni/nn/local/pointwise_layers.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

// cuDNN reads and writes Views in place: its tensors have their strides. A plan belongs to a graph, hence to strides
// and to the alignment of pointers, those of filters and bias too. They are known when a call comes, so plans are made
// at the first call with them, and kept. Memory is not: the workspace is taken when the object is made. An engine that
// copies strided tensors wants room for these copies, so the workspace has room for them.

namespace aloni::nn::local::detail {

namespace {

/// One for all convolutions of a process, since it takes memory of the device. Gone with the last of them, so before
/// Kokkos::finalize().
std::shared_ptr<CudnnHandle> shared_handle() {
  static std::mutex mutex;
  static std::weak_ptr<CudnnHandle> last;
  const std::lock_guard lock(mutex);
  std::shared_ptr<CudnnHandle> handle = last.lock();
  if (!handle) last = handle = std::make_shared<CudnnHandle>();
  return handle;
}

template <class View>
CudnnStrides strides_of(const View& view) {
  CudnnStrides strides{};
  for (std::size_t i = 0; i < 5; ++i) strides[i] = static_cast<Index>(view.stride(i));
  return strides;
}

/// The largest power of two up to 16 that divides the address.
Index alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  Index alignment = 16;
  while (address % static_cast<std::uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

}  // namespace

template <class T, class Exec>
class CudnnConvolution final : public LocalConvolution<T, Exec> {
  using Base = LocalConvolution<T, Exec>;
  using Workspace = Kokkos::View<std::byte*, typename Exec::memory_space>;

 public:
  CudnnConvolution(const ConvolutionProblem& problem, const Exec& exec, ConvolutionPasses passes)
      : Base(problem, passes), part_(padded_problem(problem)), handle_(shared_handle()) {
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
      for (const Index alignment : {Index{16}, static_cast<Index>(sizeof(T))}) {  // of filters, not known yet
        graph.filters_alignment = alignment;
        const Chosen dense = choose(graph, most_workspace);
        if (!dense.plan) missing_ = true;
        if (dense.plan) bytes = std::max(bytes, dense.plan->workspace_bytes() + (packs ? copies : 0));
      }
    }
    workspace_ = Workspace(Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, "aloni::nn::cudnn_workspace"),
                           static_cast<std::size_t>(bytes));
  }

  /// Whether cuDNN has no engine for a pass, even with dense tensors.
  bool is_incomplete() const { return missing_; }

  std::string implementation(ConvolutionPass pass) const override {
    for (const Chosen& chosen : chosen_)
      if (chosen.graph.pass == pass && chosen.plan) return "cudnn engine " + std::to_string(chosen.plan->engine());
    return "cudnn";
  }
  std::size_t workspace_bytes() const override { return workspace_.size(); }

 private:
  /// The plan of a graph; none if cuDNN has no engine that fits in the workspace. `fused`: with bias and ReLU.
  struct Chosen {
    CudnnGraph graph;
    std::optional<CudnnPlan> plan;
    bool fused = false;
  };

  static Index pixels(const std::array<Index, 3>& extents) { return extents[0] * extents[1] * extents[2]; }

  /// The plan of the asked engine, fused or not; otherwise of the one that cuDNN expects to be fastest.
  Chosen choose(const CudnnGraph& graph, Index most_bytes) const {
    CudnnPlanOptions options{.most = 1, .most_workspace_bytes = most_bytes, .engine = this->passes().engine};
    Chosen chosen = choose(graph, options);
    if (chosen.plan || options.engine < 0) return chosen;
    options.engine = -1;
    return choose(graph, options);
  }
  Chosen choose(const CudnnGraph& graph, const CudnnPlanOptions& options) const {
    Chosen chosen{.graph = graph};
    std::vector<CudnnPlan> plans = cudnn_plans(graph, handle_->device(), options);
    chosen.fused = !plans.empty();
    if (plans.empty() && (graph.bias || graph.relu)) {
      CudnnGraph plain = graph;
      plain.bias = plain.relu = false;
      plans = cudnn_plans(plain, handle_->device(), options);
    }
    if (!plans.empty()) chosen.plan.emplace(std::move(plans.front()));
    return chosen;
  }

  /// Where the part of x that outputs read starts.
  template <class View>
  auto* start_of_part(const View& x) const {
    return &x(0, part_.first[0], part_.first[1], part_.first[2], 0);
  }

  template <class X, class Y>
  const Chosen& plan_for(ConvolutionPass pass, const X& x, const Y& y, const void* filters, const void* bias) {
    CudnnGraph graph{.problem = part_,
                     .pass = pass,
                     .type = element_type<T>,
                     .input_strides = strides_of(x),
                     .output_strides = strides_of(y),
                     .bias = bias != nullptr,
                     .relu = pass == ConvolutionPass::forward && this->passes().relu,
                     .input_alignment = alignment_of(start_of_part(x)),
                     .output_alignment = alignment_of(y.data()),
                     .filters_alignment = alignment_of(filters),
                     .bias_alignment = bias ? alignment_of(bias) : 16};
    const auto known = std::ranges::find(chosen_, graph, &Chosen::graph);
    if (known != chosen_.end()) return *known;
    chosen_.push_back(choose(graph, static_cast<Index>(workspace_.size())));
    if (!chosen_.back().plan) {
      throw Unsupported("aloni::nn::local::LocalConvolution: cuDNN", std::string(name(pass)),
                        to_string(this->problem()) + ", tensors with gaps",
                        "a problem for which cuDNN has an engine, or another backend: kokkos_kernels");
    }
    return chosen_.back();
  }

  template <class X, class Y, class W>
  void run(const Exec& exec, const Chosen& chosen, const X& x, const W& w, const Y& y, const void* bias) {
    const auto pointer = [](const void* p) { return const_cast<void*>(p); };  // cuDNN takes both kinds alike
    handle_->run(*chosen.plan,
                 {.input = pointer(start_of_part(x)),
                  .output = pointer(y.data()),
                  .filters = pointer(w.data()),
                  .bias = pointer(bias),
                  .workspace = workspace_.data()},
                 comm::detail::native_stream(exec));
  }

  bool fuses_relu() const override { return true; }
  void run_forward(const Exec& exec, const Tensor<const T, Exec>& x, const Tensor<const T, Exec>& w,
                   const Array<const T, Exec>& bias, const Tensor<T, Exec>& y) override {
    const bool adds = bias.extent(0) > 0;
    bool fused = false;
    if (part_.reads_nothing() || part_.channels == 0) {
      Kokkos::deep_copy(exec, y, T(0));
    } else {
      const Chosen& chosen = plan_for(ConvolutionPass::forward, x, y, w.data(), adds ? bias.data() : nullptr);
      fused = chosen.fused;
      run(exec, chosen, x, w, y, adds && fused ? bias.data() : nullptr);
    }
    if (fused) return;
    if (adds) add_bias<T, Exec>(exec, bias, y);
    if (this->passes().relu) pointwise_forward<T, Exec>(exec, Relu{}, y, y);
  }

  void run_backward_data(const Exec& exec, const Tensor<const T, Exec>& dy, const Tensor<const T, Exec>& w,
                         const Tensor<T, Exec>& dx) override {
    const bool empty = part_.reads_nothing() || dy.size() == 0;
    if (empty || part_.input != this->problem().input) Kokkos::deep_copy(exec, dx, T(0));
    if (!empty) run(exec, plan_for(ConvolutionPass::backward_data, dx, dy, w.data(), nullptr), dx, w, dy, nullptr);
  }

  void run_backward_filter(const Exec& exec, const Tensor<const T, Exec>& x, const Tensor<const T, Exec>& dy,
                           const Tensor<T, Exec>& dw, const Array<T, Exec>& db) override {
    if (part_.reads_nothing() || dy.size() == 0 || x.size() == 0) {
      Kokkos::deep_copy(exec, dw, T(0));
    } else {
      run(exec, plan_for(ConvolutionPass::backward_filter, x, dy, dw.data(), nullptr), x, dw, dy, nullptr);
    }
    if (db.extent(0) == 0) return;
    if (dy.size() == 0) {
      Kokkos::deep_copy(exec, db, T(0));
    } else {
      (*bias_gradient_)(exec, dy, db);
    }
  }

  static constexpr Index most_workspace = Index{1} << 30;

  PaddedProblem part_;
  std::shared_ptr<CudnnHandle> handle_;
  std::vector<Chosen> chosen_;
  Workspace workspace_;
  std::optional<BiasGradient<T, Exec>> bias_gradient_;
  bool missing_ = false;
};

template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_cudnn_convolution(const ConvolutionProblem& problem, const Exec& exec,
                                                                  ConvolutionPasses passes) {
  auto convolution = std::make_unique<CudnnConvolution<T, Exec>>(problem, exec, passes);
  if (!convolution->is_incomplete()) return convolution;
  if constexpr (config::has_kokkos_kernels) return make_kokkos_kernels_convolution<T, Exec>(problem, exec, passes);
  return make_reference_convolution<T, Exec>(problem, exec, passes);
}

#define INSTANTIATE(T)                                                                                 \
  template std::unique_ptr<LocalConvolution<T, Kokkos::Cuda>> make_cudnn_convolution<T, Kokkos::Cuda>( \
      const ConvolutionProblem&, const Kokkos::Cuda&, ConvolutionPasses);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace aloni::nn::local::detail
