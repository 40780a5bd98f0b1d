#include <aloni/nn/local/detail/cudnn_refusal.hpp>

namespace aloni::nn::local::detail {

std::optional<std::string> cudnn_refusal() {
  return "this build has no cuDNN (aloni_ENABLE_CUDNN); use kokkos_kernels";
}

}  // namespace aloni::nn::local::detail
