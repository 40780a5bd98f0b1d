// Recordings of the segments of a step as CUDA graphs. The kernels of a segment are captured from the streams on which
// they run. Its events lead from the origin to the other streams and back, as a capture demands.
#include <aloni/nn/step_recorder.hpp>
#include <aloni/views/detail/instantiate.hpp>

#include <cuda_runtime_api.h>
#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace aloni::nn {

namespace {

class CudaGraphs {
  struct Destroy {
    void operator()(CUgraph_st* graph) const { (void)cudaGraphDestroy(graph); }
    void operator()(CUgraphExec_st* graph) const { (void)cudaGraphExecDestroy(graph); }
  };
  static constexpr std::size_t of_a_queue = 15;

 public:
  using Graph = std::unique_ptr<CUgraphExec_st, Destroy>;
  using Recorded = std::pair<std::optional<Graph>, std::string>;
  using Addresses = std::array<const void*, of_a_queue * most_streams>;

  /// Kokkos gives each instance memory for reductions and teams. Its addresses are arguments of kernels. It grows, and
  /// then moves, for a kernel that needs more.
  static Addresses addresses(std::span<const Queue<Kokkos::Cuda>> queues) {
    Addresses all{};
    auto to = all.begin();
    for (const auto& queue : queues) {
      const auto* const instance = queue.space().impl_internal_space_instance();
      for (const void* const address :
           {static_cast<const void*>(queue.space().cuda_stream()), static_cast<const void*>(instance->m_scratchSpace),
            static_cast<const void*>(instance->m_scratchFlags), static_cast<const void*>(instance->m_scratchUnified),
            static_cast<const void*>(instance->m_scratchFunctor)})
        *to++ = address;
      for (const void* const address : instance->m_team_scratch_ptr) *to++ = address;
    }
    return all;
  }

  /// Calls of other threads do not disturb the capture. Calls of this thread that a graph could not repeat, for example
  /// an allocation or a wait, end it with an error.
  static std::optional<std::string> begin(const Queue<Kokkos::Cuda>& queue) {
    return failure("cudaStreamBeginCapture",
                   cudaStreamBeginCapture(queue.space().cuda_stream(), cudaStreamCaptureModeThreadLocal));
  }
  static Recorded end(const Queue<Kokkos::Cuda>& queue) {
    cudaGraph_t captured = nullptr;
    const cudaError_t code = cudaStreamEndCapture(queue.space().cuda_stream(), &captured);
    const std::unique_ptr<CUgraph_st, Destroy> graph(captured);
    if (const auto reason = failure("cudaStreamEndCapture", code)) return {std::nullopt, *reason};
    if (const auto reason = reason_against(graph.get())) return {std::nullopt, *reason};
    cudaGraphExec_t executable = nullptr;
    const auto reason =
        failure("cudaGraphInstantiateWithFlags", cudaGraphInstantiateWithFlags(&executable, graph.get(), 0));
    if (reason) return {std::nullopt, *reason};
    return {Graph(executable), ""};
  }
  static void launch(const Graph& graph, const Queue<Kokkos::Cuda>& queue) {
    const cudaError_t code = cudaGraphLaunch(graph.get(), queue.space().cuda_stream());
    if (code != cudaSuccess)
      throw std::runtime_error(std::string("aloni::nn::Step: cudaGraphLaunch: ") + cudaGetErrorString(code));
  }

 private:
  /// The error text; none for success. A failure leaves no error behind for later calls.
  static std::optional<std::string> failure(const char* call, cudaError_t code) {
    if (code == cudaSuccess) return std::nullopt;
    (void)cudaGetLastError();
    return std::string(call) + ": " + cudaGetErrorString(code);
  }

  /// Copies of page-locked memory are those of offloaded activations: their addresses and contents belong to the step.
  /// But Kokkos passes functors above 512 bytes through such memory too, unless their policy is for light kernels
  /// (nn/local/detail/execution.hpp). A graph would read there what the host has written last. cuBLAS allocates and
  /// frees its workspace on the stream: nodes of the graph.
  static std::optional<std::string> reason_against(cudaGraph_t graph) {
    std::size_t count = 0;
    if (const auto reason = failure("cudaGraphGetNodes", cudaGraphGetNodes(graph, nullptr, &count))) return reason;
    std::vector<cudaGraphNode_t> nodes(count);
    if (count == 0) return std::nullopt;
    if (const auto reason = failure("cudaGraphGetNodes", cudaGraphGetNodes(graph, nodes.data(), &count))) return reason;
    for (cudaGraphNode_t const node : nodes) {
      cudaGraphNodeType type{};
      if (const auto reason = failure("cudaGraphNodeGetType", cudaGraphNodeGetType(node, &type))) return reason;
      if (type == cudaGraphNodeTypeKernel || type == cudaGraphNodeTypeMemset || type == cudaGraphNodeTypeEmpty ||
          type == cudaGraphNodeTypeMemAlloc || type == cudaGraphNodeTypeMemFree)
        continue;
      if (type != cudaGraphNodeTypeMemcpy)
        return "it has work that is neither a kernel nor a copy: node type " + std::to_string(static_cast<int>(type));
      cudaMemcpy3DParms copy{};
      if (const auto reason = failure("cudaGraphMemcpyNodeGetParams", cudaGraphMemcpyNodeGetParams(node, &copy)))
        return "it has a copy that is not one of device memory: " + *reason;
      if (!is_fixed(copy.srcPtr.ptr) || !is_fixed(copy.dstPtr.ptr))
        return "it has a copy from or to pageable host memory, or arguments of a kernel in constant memory";
    }
    return std::nullopt;
  }
  /// Whether it points to memory of the device, or to page-locked memory other than that of Kokkos' arguments.
  static bool is_fixed(const void* pointer) {
    cudaPointerAttributes attributes{};
    if (failure("cudaPointerGetAttributes", cudaPointerGetAttributes(&attributes, pointer))) return false;
    if (attributes.type == cudaMemoryTypeDevice) return true;
    if (attributes.type != cudaMemoryTypeHost) return false;
    return std::ranges::none_of(Kokkos::Impl::CudaInternal::constantMemHostStagingPerDevice,
                                [pointer](const auto& staging) { return staging.second == pointer; });
  }
};

}  // namespace

template <class Exec>
std::unique_ptr<StepRecorder<Exec>> make_step_recorder() {
  if constexpr (std::is_same_v<Exec, Kokkos::Cuda>) {
    return std::make_unique<GraphRecorder<Exec, CudaGraphs>>();
  } else {
    return nullptr;
  }
}

#define INSTANTIATE(Exec) template std::unique_ptr<StepRecorder<Exec>> make_step_recorder<Exec>();
ALONI_INSTANTIATE_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
