#pragma once
// A convolution, transposed or not, whose samples, space, channels and filters are spread over ranks: the local kernels and the
// communication of its passes, as nodes of a step's graph. Network makes its convolution layers of it; used alone it is for
// benchmarks and for applications with a convolution of their own.
//
//   const NetworkPlan plan = plan_network(net, resolve(strategy, net, comm.size()), comm.size(), samples);
//   DistributedConvolution<float> conv(comm, queue, plan.layers[0], {.x = x, .y = y, .dx = dx, .dy = dy, .w = w, …}, {.label = "conv1"});
//   Step<Exec> forward;
//   conv.add_input_exchange(forward);
//   conv.add_forward(forward);
//   forward.prepare();
//   forward.execute(queue, comm, stopwatch);
//
// How the passes are split (nn/layer_split.hpp has the forms of channel and filter parallelism):
// * Space: with Overlap::interior_first a pass is computed in two goes, first what needs no ghosts. Slabs of whole rows (or planes) are computed
//   where they lie. The faces of a split in the other dimensions are computed twice: in the first go with whatever their ghosts hold, and again
//   when these have come, which is cheaper than copying the tensor to leave them out. Where the interior isn't worth a kernel of its own, all is
//   computed at once.
// * dL/dy is exchanged where it lies if what the rank owns of it stays contiguous with ghosts around it (output_gradient_box), else thin copies
//   of its faces are, or a copy of all of it, whichever costs less.
// * Channels and filters: rows are gathered, and partial sums reduced, in chunks; while one travels the next is computed. Partial sums of two
//   chunks at a time exist.
// * Weights may be whole on a rank or just what it needs of them. Their gradient is that of this rank's share; what there is of others' is zero.
//   It is to be summed over the ranks that are equal modulo ConvolutionPlan::blocks(), or, where they are whole, over all.
// * Activations of bfloat16 (T = comm::bfloat16, on host execution spaces) travel as such. Partial sums are computed, sent and added in float, and
//   rounded once, bias included; where they are computed the weights aren't rounded. Without sums over ranks a transposed convolution adds its bias to
//   the rounded result.
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

  Tensor<T, Mem> x;    ///< covers input_needed(rank), what is owned of it included
  Tensor<T, Mem> y;    ///< covers what the rank owns, and forward_work(rank) with Overlap::recompute_halo
  Tensor<T, Mem> dx;   ///< the same of x; not allocated: nobody wants it
  Tensor<T, Mem> dy;   ///< covers output_gradient_box(rank); not allocated: forward only
  views::Box weights;  ///< what w and dw cover of plan.weights(): weights_needed(rank) or more of it
  views::LocalView<parameter_type_t<T>, Mem> w, dw;  ///< dense
  Kokkos::View<parameter_type_t<T>*, Mem> b, db;     ///< all of it; extent 0: no bias
};

struct DistributedConvolutionOptions {
  std::string label = "convolution";
  local::ConvolutionBackend backend = local::ConvolutionBackend::automatic;
  /// Whether x comes with its ghosts, by somebody else's transfer.
  bool input_is_complete = false;
  /// Whether kernels that end with a ReLU shall be made too, for inference.
  bool relu = false;
  /// The interior is computed first (Overlap::interior_first) where the calls and the faces computed twice for it take at most this
  /// share of a pass; 1: wherever there is an interior. Unless given 0.01 where the ghosts of a host come from memory of the same
  /// node, else 0.05. May differ between ranks.
  std::optional<double> largest_overhead = {};
};

template <class T, class Exec = Kokkos::DefaultExecutionSpace>
class DistributedConvolution {
 public:
  /// Collective over the ranks of the plan. Allocates all memory and makes all kernels and transfers. @pre plan.convolution
  /// Throws Unsupported where the backend can't serve a part (on the ranks that have it), InvalidArgument.
  DistributedConvolution(const comm::Communicator& comm, const Queue<Exec>& queue, const LayerPlan& plan,
                         const ConvolutionTensors<T, Exec>& tensors, const DistributedConvolutionOptions& options);
  ~DistributedConvolution();

  // Each adds one part of a step; this outlives the step. Every rank adds the same ones in the same order.

  /// Fills the ghosts of x, channels of other ranks included. Nothing with input_is_complete.
  void add_input_exchange(Step<Exec>& step);
  /// y from x, ghosts included; with fuses_relu() and `relu` the larger of it and 0, which costs nothing then.
  void add_forward(Step<Exec>& step, bool relu = false);
  /// Whether add_forward() takes `relu`: asked for in the options, and y is no sum over ranks. Equal on all ranks.
  bool fuses_relu() const;
  /// Fills what the two below need of the other ranks' dy. Before them, in the same step.
  void add_gradient_exchange(Step<Exec>& step);
  /// dw and db: this rank's summands, zeros where it has none.
  void add_backward_filter(Step<Exec>& step);
  /// dx, if allocated.
  void add_backward_data(Step<Exec>& step);

  /// Of the weights in the executions to come, see LocalConvolution::set_filter_version(): 0, as at first, when they may be others each time.
  void set_filter_version(std::uint64_t version);

  /// Bytes of all memory that this rank holds besides the tensors: partial sums, copies of faces and of weights, messages, workspace of the kernels.
  std::size_t workspace_bytes() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace aloni::nn
