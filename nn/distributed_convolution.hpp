#pragma once
// A convolution, transposed or not, with samples, space, channels and filters split over ranks. Its local kernels and
// the communication of its passes are nodes of a step graph. Network builds its convolution layers from it.
// Benchmarks, and applications with a convolution of their own, use it alone.
//
//   const NetworkPlan plan = plan_network(net, resolve(strategy, net, comm.size()), comm.size(), samples);
//   DistributedConvolution<float> conv(comm, queue, plan.layers[0], {.x = x, .y = y, .dx = dx, .dy = dy, .w = w, …},
//                                      {.label = "conv1"});
//   Step<Exec> forward;
//   conv.add_input_exchange(forward);
//   conv.add_forward(forward);
//   forward.prepare();
//   forward.execute(queue, comm, stopwatch);
//
// How the passes are split (nn/layer_split.hpp has the forms of channel and filter parallelism):
// * Space: with Overlap::interior_first a pass first computes the interior and then the border.
//   - Along the outermost spatial dimension the border consists of slabs of whole rows or planes, computed in place.
//   - The faces of a split in other dimensions are computed twice: first with stale ghosts, then again with fresh
//     ones. This is cheaper than a copy of the tensor that leaves them out.
//   - Where the interior is not worth a kernel of its own, the pass is computed at once.
// * Ghosts of dL/dy are exchanged in place if the owned box stays contiguous with ghosts around it
//   (output_gradient_box). Otherwise they go to thin copies of the faces, or to a full copy if that costs less.
// * Channels and filters: input rows are gathered, and partial sums reduced, in chunks. While one chunk travels the
//   next is computed. Partial sums of at most two chunks exist at a time.
// * Weights: a rank holds all of them, or only those that it uses. Their gradient is this rank's share; gradients of
//   weights this rank does not use are zero. Sum it over the ranks that are equal modulo ConvolutionPlan::blocks();
//   if the weights are whole, over all ranks.
// * bfloat16 activations (T = comm::bfloat16) travel as bfloat16. Partial sums are computed, sent and added in float,
//   and rounded once, with the bias. Kernels that compute partial sums do not round the weights. A transposed
//   convolution without sums over ranks adds its bias to the rounded result.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/step.hpp>
#include <aloni/nn/tensor.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace aloni::nn {

template <class T, class Exec>
struct ConvolutionTensors {
  using Mem = typename Exec::memory_space;

  Tensor<T, Mem> x;    ///< covers input_needed(rank), the owned part included
  Tensor<T, Mem> y;    ///< covers the owned outputs; with Overlap::recompute_halo, forward_work(rank)
  Tensor<T, Mem> dx;   ///< covers the owned inputs; not allocated: not computed
  Tensor<T, Mem> dy;   ///< covers output_gradient_box(rank); not allocated: forward only
  views::Box weights;  ///< box of plan.weights() that w and dw cover; contains weights_needed(rank)
  views::LocalView<parameter_type_t<T>, Mem> w, dw;  ///< dense
  Kokkos::View<parameter_type_t<T>*, Mem> b, db;     ///< of all filters; extent 0: no bias
};

struct DistributedConvolutionOptions {
  std::string label = "convolution";
  local::ConvolutionBackend backend = local::ConvolutionBackend::automatic;
  /// Whether another transfer fills the ghosts of x.
  bool input_is_complete = false;
  /// Whether kernels with a fused ReLU are made too, for inference.
  bool relu = false;
  /// The interior is computed first (Overlap::interior_first) only if its overhead is at most this share of a pass;
  /// 1: always, if there is an interior. The overhead is kernel calls, and faces computed twice. Default: 0.01 on a
  /// host whose ghosts come from memory of the same node, else 0.05. May differ between ranks.
  std::optional<double> largest_overhead = {};
};

template <class T, class Exec = Kokkos::DefaultExecutionSpace>
class DistributedConvolution {
  static_assert(has_activations<T>, "this build of aloni has no such activations: CMake option aloni_ACTIVATIONS");

 public:
  /// Plans all passes and allocates their memory.
  /// Collective over the ranks of the plan.
  /// @pre plan.convolution
  /// Throws InvalidArgument; Unsupported if the backend cannot compute a part (on the ranks that have the part).
  DistributedConvolution(const comm::Communicator& comm, const Queue<Exec>& queue, const LayerPlan& plan,
                         const ConvolutionTensors<T, Exec>& tensors, const DistributedConvolutionOptions& options);
  ~DistributedConvolution();

  // Each function adds one part of a step; the first call also makes its kernels and transfers. This object must
  // outlive the step.
  // Collective: every rank adds the same parts in the same order.

  /// Fills the ghosts of x, including channels of other ranks. Adds nothing with input_is_complete.
  void add_input_exchange(Step<Exec>& step);
  /// y from x with its ghosts. `relu` fuses max(y, 0) into the kernels, at no cost. @pre !relu or fuses_relu()
  void add_forward(Step<Exec>& step, bool relu = false);
  /// Whether add_forward() accepts `relu`: the options ask for it, and y is not a sum over ranks. Equal on all ranks.
  bool fuses_relu() const;
  /// Fills the ghosts of dy for add_backward_filter() and add_backward_data(). Add it before them, in the same step.
  void add_gradient_exchange(Step<Exec>& step);
  /// dw and db: this rank's summands, zero where it has none.
  void add_backward_filter(Step<Exec>& step);
  /// dx, if it is allocated.
  void add_backward_data(Step<Exec>& step);

  /// Version of the weights in the next executions; 0, the default, disables caching
  /// (LocalConvolution::set_filter_version()).
  void set_filter_version(std::uint64_t version);

  /// Bytes that this rank holds besides the tensors: partial sums, copies of faces and weights, messages, workspace
  /// of kernels.
  std::size_t workspace_bytes() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace aloni::nn
