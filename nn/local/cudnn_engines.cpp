#include <aloni/nn/local/cudnn_engines.hpp>

#include <aloni/nn/local/detail/cudnn_plans.hpp>

#include <algorithm>

namespace aloni::nn::local {

namespace detail {

std::vector<ConvolutionEngine> engines_of(const ConvolutionCase& c, const CudnnDevice& device,
                                          Index most_workspace_bytes) {
  std::vector<ConvolutionEngine> engines;
  if (padded_problem(c.problem).reads_nothing() || flops(c.problem) == 0) return engines;
  constexpr int all = 64;
  for (const CudnnPlan& plan : cudnn_plans(dense_graph(c.problem, c.pass, c.type), device,
                                           {.most = all, .most_workspace_bytes = most_workspace_bytes}))
    if (std::ranges::find(engines, plan.engine(), &ConvolutionEngine::engine) == engines.end())
      engines.push_back({plan.engine(), plan.workspace_bytes()});
  return engines;
}

}  // namespace detail

ConvolutionEngines::ConvolutionEngines() : handle_(std::make_shared<detail::CudnnHandle>()) {}

std::vector<ConvolutionEngine> ConvolutionEngines::of(const ConvolutionCase& convolution,
                                                      Index most_workspace_bytes) const {
  return detail::engines_of(convolution, handle_->device(), most_workspace_bytes);
}

}  // namespace aloni::nn::local
