#include "conv/cudnn_limit.hpp"

#include "conv/check.hpp"

#include <aloni/core/comm/device/native_stream.hpp>
#include <aloni/core/error.hpp>
#include <aloni/nn/local/detail/cudnn_plans.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <optional>
#include <stdexcept>
#include <vector>

namespace aloni::bench {

using nn::local::ConvolutionPass;
using nn::local::ConvolutionProblem;
using namespace nn::local::detail;

struct CudnnLimit::State {
  ConvolutionProblem problem;
  ConvolutionPass pass;
  Queue<Exec> queue;
  Field<float> x, y, w;
  CudnnHandle handle;
  Kokkos::View<std::byte*, Exec::memory_space> workspace;
  std::optional<CudnnPlan> plan;
  std::size_t tried = 0;

  State(const ConvolutionProblem& of, ConvolutionPass which)
      : problem(of),
        pass(which),
        x(queue.space(), input_extents(problem), 1),
        y(queue.space(), output_extents(problem), 2),
        w(queue.space(), filter_extents(problem), 3) {
    const CudnnGraph graph = dense_graph(problem, pass, nn::ElementType::float32);
    const std::vector<CudnnPlan> plans = cudnn_plans(graph, handle.device(), {.most = 100});
    Index bytes = 0;
    for (const CudnnPlan& one : plans) bytes = std::max(bytes, one.workspace_bytes());
    workspace =
        Kokkos::View<std::byte*, Exec::memory_space>("aloni::bench: workspace", static_cast<std::size_t>(bytes));
    // Only cells that outputs read are written.
    if (pass == ConvolutionPass::backward_data) Kokkos::deep_copy(queue.space(), x.data, 0.0F);
    queue.fence("aloni::bench: before the plans of cuDNN");
    double best = std::numeric_limits<double>::max();
    for (const CudnnPlan& one : plans) {
      execute(one);
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < 5; ++i) execute(one);
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
      if (time.count() < best) {
        best = time.count();
        plan = one;
      }
      ++tried;
    }
    if (!plan) throw std::runtime_error("bench::CudnnLimit: cuDNN has no plan for " + to_string(problem));
    execute(*plan);
    x.bring_down(queue.space());
    y.bring_down(queue.space());
    w.bring_down(queue.space());
    bench::check(problem, pass, {x.host.data(), x.extents}, {y.host.data(), y.extents}, {w.host.data(), w.extents},
                 "cuDNN called directly");
  }

  void execute(const CudnnPlan& chosen) {
    const bool queued = handle.run(chosen,
                                   {.input = start_of_part(x.view(), cudnn_problem(problem)),
                                    .output = y.data.data(),
                                    .filters = w.data.data(),
                                    .workspace = workspace.data()},
                                   comm::detail::native_stream(queue.space()));
    if (!queued) throw Unsupported("aloni::bench: cuDNN", "pointers", "refused by the engine", "another engine");
    queue.fence("aloni::bench: end of repetition");
  }
};

CudnnLimit::CudnnLimit(const ConvolutionProblem& problem, ConvolutionPass pass)
    : state_(std::make_unique<State>(problem, pass)) {}
CudnnLimit::~CudnnLimit() = default;

void CudnnLimit::run() { state_->execute(*state_->plan); }

std::string CudnnLimit::implementation() const {
  return "engine " + std::to_string(state_->plan->engine()) + ", fastest of " + std::to_string(state_->tried);
}

}  // namespace aloni::bench
