#include <aloni/core/error.hpp>
#include <aloni/nn/local/cudnn_engines.hpp>
#include <aloni/nn/local/detail/cudnn_refusal.hpp>

namespace aloni::nn::local {

namespace detail {

std::optional<std::string> cudnn_refusal() {
  return "this build has no cuDNN (aloni_ENABLE_CUDNN); use kokkos_kernels";
}

}  // namespace detail

ConvolutionEngines::ConvolutionEngines() {
  throw Unsupported("aloni::nn::local::ConvolutionEngines", "backend", "cudnn",
                    "another backend: " + *detail::cudnn_refusal());
}

std::vector<ConvolutionEngine> ConvolutionEngines::of(const ConvolutionCase&, Index) const { return {}; }

}  // namespace aloni::nn::local
