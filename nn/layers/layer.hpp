#pragma once
// One layer of a running network on one rank: kernels on memory that Network allocates, and communication of the
// layer's own (halo of dL/dy, statistics). Network moves activations and gradients between layers. A layer adds nodes
// to a step graph, with the memory that each reads and writes; the graph decides the order. bfloat16 activations are
// computed in float or double and rounded when written.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/nn/local/convolution_problem.hpp>
#include <aloni/nn/local/local_types.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/parameters.hpp>
#include <aloni/nn/step.hpp>
#include <aloni/nn/tensor.hpp>

#include <memory>
#include <optional>
#include <vector>

namespace aloni::nn {

enum class Mode { training, evaluation };

template <class T, class Exec>
struct LayerSetup {
  const comm::Communicator& comm;
  const Queue<Exec>& queue;
  const LayerDescription& description;
  const LayerPlan& plan;
  int index;                                          ///< in the network
  Parameters<parameter_type_t<T>, Exec>& parameters;  ///< outlives the layer
  /// Covers plan.forward_work().
  Tensor<T, typename Exec::memory_space> y;
  /// dL/dy covers the owned part of y.
  Tensor<T, typename Exec::memory_space> dy;
  /// One per input. dL/dx covers the owned part of x, or with pooling and up-sampling the part that the layer reads.
  /// It is not allocated if no layer needs it.
  std::vector<Tensor<T, typename Exec::memory_space>> x, dx;
  local::ConvolutionBackend backend;
  /// For a convolution whose only reader is an in-place ReLU, and for that ReLU: in evaluation the convolution
  /// computes the ReLU too, if it can.
  bool fuses_relu = false;
  std::optional<double> largest_overhead = {};  ///< DistributedConvolutionOptions::largest_overhead
};

template <class T, class Exec>
class Layer {
 public:
  Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  virtual ~Layer() = default;

  /// Adds the nodes that compute plan.forward_work() of y (usually the owned part) from x with its ghosts. Every rank
  /// adds the same communication.
  virtual void add_forward(Step<Exec>& step, Mode mode) = 0;
  /// Adds the nodes that compute dx from dy, and this rank's summand of the parameter gradients. Runs after a forward
  /// step in training mode.
  virtual void add_backward(Step<Exec>& step) = 0;
  /// Whether this convolution also computes the ReLU after it in evaluation. Equal on all ranks.
  virtual bool fuses_relu() const { return false; }
};

/// Whether this rank's result counts in sums over all ranks: of several ranks with the same result only the first
/// copy counts.
inline bool counts_in_sums(const views::Distribution& output, int rank) { return output.is_first_copy(rank); }

template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_convolution_layer(const LayerSetup<T, Exec>& setup);
template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_pooling_layer(const LayerSetup<T, Exec>& setup);
template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_resampling_layer(const LayerSetup<T, Exec>& setup);
template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_global_average_pooling_layer(const LayerSetup<T, Exec>& setup);
template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_batch_norm_layer(const LayerSetup<T, Exec>& setup);
template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_group_norm_layer(const LayerSetup<T, Exec>& setup);
template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_layer_norm_layer(const LayerSetup<T, Exec>& setup);
template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_relu_layer(const LayerSetup<T, Exec>& setup);
template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_flatten_layer(const LayerSetup<T, Exec>& setup);
template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_dense_layer(const LayerSetup<T, Exec>& setup);
template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_add_layer(const LayerSetup<T, Exec>& setup);

}  // namespace aloni::nn
