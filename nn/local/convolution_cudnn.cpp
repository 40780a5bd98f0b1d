#include <aloni/core/comm/device/native_stream.hpp>
#include <aloni/core/config.hpp>
#include <aloni/nn/compiled_activations.hpp>
#include <aloni/nn/local/detail/convolution_backends.hpp>
#include <aloni/nn/local/detail/cudnn_convolution.hpp>
#include <aloni/nn/local/detail/cudnn_plan_cache.hpp>
#include <aloni/nn/local/detail/cudnn_plans.hpp>
#include <aloni/nn/local/kept_plans.hpp>

#include <memory>
#include <mutex>
#include <vector>

namespace aloni::nn::local::detail {

namespace {

/// The engines of the current device.
class DeviceEngines {
 public:
  using Plan = CudnnPlan;

  std::vector<Plan> plans(const CudnnGraph& graph, const CudnnPlanOptions& options) {
    const std::lock_guard lock(mutex_);
    return cache_.plans(graph, options);
  }
  bool run(const Plan& plan, const CudnnOperands& operands, const Kokkos::Cuda& exec) {
    return handle_.run(plan, operands, comm::detail::native_stream(exec));
  }

 private:
  CudnnHandle handle_;
  std::mutex mutex_;
  CudnnPlanCache cache_{folder_of_plans(), handle_.device()};
};

/// One for all convolutions of a process, since its handle takes memory of the device. Gone with the last of them, so
/// before Kokkos::finalize().
std::shared_ptr<DeviceEngines> shared_engines() {
  static std::mutex mutex;
  static std::weak_ptr<DeviceEngines> last;
  const std::lock_guard lock(mutex);
  std::shared_ptr<DeviceEngines> engines = last.lock();
  if (!engines) last = engines = std::make_shared<DeviceEngines>();
  return engines;
}

}  // namespace

// Two networks with outputs that read the padding only had wrong gradients of filters on a device. The cause is not
// known yet (docs/experiments/gpu.md). Until then cuDNN does not get such convolutions.
template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_cudnn_convolution(const ConvolutionProblem& problem, const Exec& exec,
                                                                  ConvolutionPasses passes,
                                                                  const std::shared_ptr<FilterOrders>& orders) {
  if (!padded_problem(problem).has_empty_windows()) {
    auto convolution =
        std::make_unique<CudnnConvolution<T, Exec, DeviceEngines>>(problem, exec, passes, shared_engines(), orders);
    if (!convolution->is_incomplete()) return convolution;
  }
  constexpr auto other =
      config::has_kokkos_kernels ? ConvolutionBackend::kokkos_kernels : ConvolutionBackend::reference;
  return make_local_convolution<T, Exec>(other, problem, exec, passes);
}

#define INSTANTIATE(T)                                                                                 \
  template std::unique_ptr<LocalConvolution<T, Kokkos::Cuda>> make_cudnn_convolution<T, Kokkos::Cuda>( \
      const ConvolutionProblem&, const Kokkos::Cuda&, ConvolutionPasses, const std::shared_ptr<FilterOrders>&);
INSTANTIATE(float)
ALONI_WITH_DOUBLE(INSTANTIATE(double))
ALONI_WITH_BFLOAT16(INSTANTIATE(comm::bfloat16))
ALONI_WITH_FLOAT16(INSTANTIATE(comm::float16))
#undef INSTANTIATE

}  // namespace aloni::nn::local::detail
