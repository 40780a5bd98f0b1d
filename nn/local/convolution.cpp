#include <aloni/nn/local/convolution.hpp>

#include <aloni/core/config.hpp>
#include <aloni/core/error.hpp>
#include <aloni/nn/local/convolution_choice.hpp>
#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/convolution_backends.hpp>
#include <aloni/nn/local/detail/cudnn_refusal.hpp>
#include <aloni/nn/local/detail/cudnn_spaces.hpp>
#include <aloni/nn/local/detail/execution.hpp>
#include <aloni/nn/local/pointwise_layers.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace aloni::nn::local {

namespace {

template <class View>
void check_input(const char* operation, const char* argument, const ConvolutionProblem& p, const View& v) {
  detail::check_extents(operation, argument, v, {p.samples, p.input[0], p.input[1], p.input[2], p.channels});
}

template <class View>
void check_output(const char* operation, const char* argument, const ConvolutionProblem& p, const View& v) {
  detail::check_extents(operation, argument, v, {p.samples, p.output[0], p.output[1], p.output[2], p.filters});
}

template <class View>
void check_filters(const char* operation, const char* argument, const ConvolutionProblem& p, const View& v) {
  detail::check_extents(operation, argument, v,
                        {p.filters, p.kernel[0], p.kernel[1], p.kernel[2], p.channels_per_group()});
  detail::check(views::is_dense(v), operation, argument, "a view with gaps", "dense filters");
}

void check_pass(const char* operation, bool prepared) {
  detail::check(prepared, operation, "passes", "a pass that this object cannot run",
                "this pass among the passes given to make_local_convolution");
}

/// One implementation for each pass, chosen separately.
template <class T, class Exec>
class PerPassConvolution final : public LocalConvolution<T, Exec> {
 public:
  PerPassConvolution(const ConvolutionProblem& problem, const Exec& exec, ConvolutionPasses passes,
                     const std::shared_ptr<FilterOrders>& orders)
      : LocalConvolution<T, Exec>(problem, passes) {
    // Passes with the same implementation share one object, hence one workspace.
    for (const auto backend : {ConvolutionBackend::reference, ConvolutionBackend::direct, ConvolutionBackend::onednn,
                               ConvolutionBackend::kokkos_kernels, ConvolutionBackend::cudnn}) {
      auto takes = [&](bool wanted, ConvolutionPass pass) {
        return wanted && automatic_backend<T, Exec>(problem, pass) == backend;
      };
      const ConvolutionPasses mine{.forward = takes(passes.forward, ConvolutionPass::forward),
                                   .backward_data = takes(passes.backward_data, ConvolutionPass::backward_data),
                                   .backward_filter = takes(passes.backward_filter, ConvolutionPass::backward_filter),
                                   .relu = passes.relu,
                                   .dense_input = passes.dense_input,
                                   .dense_output = passes.dense_output,
                                   .tf32 = passes.tf32};
      if (!mine.forward && !mine.backward_data && !mine.backward_filter) continue;
      const std::shared_ptr<LocalConvolution<T, Exec>> part =
          make_local_convolution<T, Exec>(backend, problem, exec, mine, orders);
      if (mine.forward) part_[0] = part;
      if (mine.backward_data) part_[1] = part;
      if (mine.backward_filter) part_[2] = part;
      workspace_bytes_ += part->workspace_bytes();
    }
  }

  using Parameter = parameter_type_t<T>;

  std::string implementation(ConvolutionPass pass) const override {
    const auto& part = part_[static_cast<int>(pass)];
    return part ? part->implementation(pass) : "none";
  }
  std::size_t workspace_bytes() const override { return workspace_bytes_; }
  void set_filter_version(std::uint64_t version) override {
    for (const auto& part : part_)
      if (part) part->set_filter_version(version);
  }

 private:
  bool fuses_relu() const override { return true; }  // the parts apply it
  void run_forward(const Exec& exec, const Tensor<const T, Exec>& x, const Tensor<const Parameter, Exec>& w,
                   const Array<const Parameter, Exec>& bias, const Tensor<T, Exec>& y) override {
    part_[0]->forward(exec, x, w, bias, y);
  }
  void run_backward_data(const Exec& exec, const Tensor<const T, Exec>& dy, const Tensor<const Parameter, Exec>& w,
                         const Tensor<T, Exec>& dx) override {
    part_[1]->backward_data(exec, dy, w, dx);
  }
  void run_backward_filter(const Exec& exec, const Tensor<const T, Exec>& x, const Tensor<const T, Exec>& dy,
                           const Tensor<Parameter, Exec>& dw, const Array<Parameter, Exec>& db) override {
    part_[2]->backward_filter(exec, x, dy, dw, db);
  }

  std::array<std::shared_ptr<LocalConvolution<T, Exec>>, 3> part_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace

template <class T, class Exec>
void LocalConvolution<T, Exec>::forward(const Exec& exec, InTensor<T, Exec> x, InTensor<Parameter, Exec> w,
                                        InArray<Parameter, Exec> bias, OutTensor<T, Exec> y) {
  constexpr auto operation = "aloni::nn::local::LocalConvolution::forward";
  check_pass(operation, passes_.forward);
  check_input(operation, "x", problem_, x);
  check_filters(operation, "w", problem_, w);
  detail::check_extent_or_none(operation, "bias", bias, problem_.filters);
  check_output(operation, "y", problem_, y);
  if (y.size() == 0) return;
  run_forward(exec, x, w, bias, y);
  if (passes_.relu && !fuses_relu()) pointwise_forward<T, Exec>(exec, Relu{}, y, y);
}

template <class T, class Exec>
void LocalConvolution<T, Exec>::backward_data(const Exec& exec, InTensor<T, Exec> dy, InTensor<Parameter, Exec> w,
                                              OutTensor<T, Exec> dx) {
  constexpr auto operation = "aloni::nn::local::LocalConvolution::backward_data";
  check_pass(operation, passes_.backward_data);
  check_output(operation, "dy", problem_, dy);
  check_filters(operation, "w", problem_, w);
  check_input(operation, "dx", problem_, dx);
  if (dx.size() > 0) run_backward_data(exec, dy, w, dx);
}

template <class T, class Exec>
void LocalConvolution<T, Exec>::backward_filter(const Exec& exec, InTensor<T, Exec> x, InTensor<T, Exec> dy,
                                                OutTensor<Parameter, Exec> dw, OutArray<Parameter, Exec> db) {
  constexpr auto operation = "aloni::nn::local::LocalConvolution::backward_filter";
  check_pass(operation, passes_.backward_filter);
  check_input(operation, "x", problem_, x);
  check_output(operation, "dy", problem_, dy);
  check_filters(operation, "dw", problem_, dw);
  detail::check_extent_or_none(operation, "db", db, problem_.filters);
  if (problem_.filters > 0) run_backward_filter(exec, x, dy, dw, db);
}

template <class T, class Exec>
std::optional<std::string> unsupported_reason(ConvolutionBackend backend, const ConvolutionProblem&, ConvolutionPass) {
  constexpr bool host = detail::runs_on_host<Exec>;
  if constexpr (std::is_same_v<T, comm::bfloat16>) {
    if (backend == ConvolutionBackend::direct) return "direct has no bfloat16; use automatic, or float";
    if (host && (backend == ConvolutionBackend::automatic || backend == ConvolutionBackend::onednn)) {
      if constexpr (config::has_onednn) return detail::onednn_bfloat16_unsupported_reason();
      return "bfloat16 needs oneDNN, and this build has none (aloni_ENABLE_ONEDNN); use float, kokkos_kernels or "
             "reference";
    }
  }
  switch (backend) {
    case ConvolutionBackend::automatic:
    case ConvolutionBackend::reference:
      return std::nullopt;
    case ConvolutionBackend::direct:
      if (!host) return "direct runs on host execution spaces only";
      return std::nullopt;
    case ConvolutionBackend::onednn:
      if constexpr (!config::has_onednn) return "this build has no oneDNN (aloni_ENABLE_ONEDNN)";
      if (!host) return "oneDNN runs on host execution spaces only";
      if (std::is_same_v<T, double>) return "oneDNN has no double precision";
      return std::nullopt;
    case ConvolutionBackend::kokkos_kernels:
      if constexpr (!config::has_kokkos_kernels) return "this build has no Kokkos Kernels (aloni_ENABLE_KOKKOSKERNELS)";
      return std::nullopt;
    case ConvolutionBackend::cudnn:
      if constexpr (!config::has_cudnn) return "this build has no cuDNN (aloni_ENABLE_CUDNN)";
      if constexpr (!detail::cudnn_runs_on<Exec>) return "cuDNN runs on NVIDIA devices only";
      return detail::cudnn_refusal();
  }
  return "no such backend";
}

template <class T, class Exec>
ConvolutionBackend automatic_backend(const ConvolutionProblem& p, ConvolutionPass pass) {
  return choose_backend(p, pass, element_type<T>, machine_of_this_build(detail::runs_on_host<Exec>));
}

MachineDescription machine_of_this_build(bool on_host) {
  MachineDescription machine{.on_host = on_host,
                             .onednn = config::has_onednn,
                             .onednn_bfloat16 = false,
                             .kokkos_kernels = config::has_kokkos_kernels};
  if constexpr (config::has_onednn) machine.onednn_bfloat16 = !detail::onednn_bfloat16_unsupported_reason();
  if (!on_host) machine.cudnn = !detail::cudnn_refusal();
  if (!on_host) machine.compute_capability = detail::compute_capability<Kokkos::DefaultExecutionSpace>();
  return machine;
}

void Scratch::Free::operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{alignment}); }

void Scratch::reserve(std::size_t bytes) {
  if (bytes <= bytes_) return;
  memory_.reset();
  memory_.reset(new (std::align_val_t{alignment}) std::byte[bytes]);  // not touched before it is used
  bytes_ = bytes;
}

std::size_t Scratch::bytes() const {
  return bytes_ + (of_callers_ ? of_callers_->bytes() : 0) + (shared_filters_ ? shared_filters_->memory.bytes() : 0);
}

void Scratch::share_filters() {
  if (!shared_filters_) shared_filters_ = std::make_shared<SharedFilters>();
}

std::shared_ptr<FilterOrders> make_filter_orders(const std::shared_ptr<Scratch>& scratch) {
  if constexpr (config::has_onednn) return detail::make_onednn_filter_orders(scratch);
  return std::make_shared<FilterOrders>(scratch);
}

template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_local_convolution(ConvolutionBackend backend,
                                                                  const ConvolutionProblem& problem, const Exec& exec,
                                                                  ConvolutionPasses passes,
                                                                  const std::shared_ptr<FilterOrders>& orders) {
  validate(problem);
  for (const auto& [wanted, pass] : {std::pair{passes.forward, ConvolutionPass::forward},
                                     std::pair{passes.backward_data, ConvolutionPass::backward_data},
                                     std::pair{passes.backward_filter, ConvolutionPass::backward_filter}}) {
    const auto reason = wanted ? unsupported_reason<T, Exec>(backend, problem, pass) : std::nullopt;
    if (reason) {
      throw Unsupported("aloni::nn::local::make_local_convolution", "backend", std::string(name(backend)),
                        "another backend: " + *reason);
    }
  }
  if constexpr (std::is_same_v<T, comm::float16> && detail::runs_on_host<Exec>) {  // no backend of hosts has float16
    if (backend != ConvolutionBackend::automatic && backend != ConvolutionBackend::reference)
      return detail::make_converting_convolution<T, Exec>(problem, exec, passes, backend, orders);
  }
  switch (backend) {
    case ConvolutionBackend::automatic:
      return std::make_unique<PerPassConvolution<T, Exec>>(problem, exec, passes, orders);
    case ConvolutionBackend::direct:
      if constexpr (detail::runs_on_host<Exec> && !is_16_bit(element_type<T>))
        return detail::make_direct_convolution<T, Exec>(problem, exec, passes);
      break;
    case ConvolutionBackend::onednn:
      if constexpr (config::has_onednn && detail::runs_on_host<Exec> && !std::is_same_v<T, double> &&
                    !std::is_same_v<T, comm::float16>) {
        return detail::make_onednn_convolution<T, Exec>(problem, exec, passes, orders);
      }
      break;
    case ConvolutionBackend::kokkos_kernels:
      if constexpr (is_16_bit(element_type<T>)) {
        return detail::make_converting_convolution<T, Exec>(problem, exec, passes, backend);
      } else if constexpr (config::has_kokkos_kernels) {
        return detail::make_kokkos_kernels_convolution<T, Exec>(problem, exec, passes);
      }
      break;
    case ConvolutionBackend::cudnn:
      if constexpr (config::has_cudnn && detail::cudnn_runs_on<Exec>) {
        return detail::make_cudnn_convolution<T, Exec>(problem, exec, passes, orders);
      }
      break;
    case ConvolutionBackend::reference:
      break;
  }
  return detail::make_reference_convolution<T, Exec>(problem, exec, passes);
}

#define INSTANTIATE(T, Exec)                                                                                     \
  template class LocalConvolution<T, Exec>;                                                                      \
  template std::optional<std::string> unsupported_reason<T, Exec>(ConvolutionBackend, const ConvolutionProblem&, \
                                                                  ConvolutionPass);                              \
  template ConvolutionBackend automatic_backend<T, Exec>(const ConvolutionProblem&, ConvolutionPass);            \
  template std::unique_ptr<LocalConvolution<T, Exec>> make_local_convolution<T, Exec>(                           \
      ConvolutionBackend, const ConvolutionProblem&, const Exec&, ConvolutionPasses,                             \
      const std::shared_ptr<FilterOrders>&);
ALONI_INSTANTIATE_LAYERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local
