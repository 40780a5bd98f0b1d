#pragma once
// One layer of a running network on one rank: kernels on memory that Network has laid out, and the communication that is the
// layer's own (halo of dL/dy, statistics). Network moves activations and gradients between layers. Layers add what they do to a step's
// graph, with what each piece reads and writes; when it runs is not their business. Activations of bfloat16 are computed with in float or double, and
// rounded when they are written.
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
  /// dL/dy covers what the rank owns of y.
  Tensor<T, typename Exec::memory_space> dy;
  /// One for each input. dL/dx (unallocated where nobody wants it) covers what the rank owns of x, or, with pooling and
  /// up-sampling, what it reads.
  std::vector<Tensor<T, typename Exec::memory_space>> x, dx;
  local::ConvolutionBackend backend;
  /// A convolution whose only reader is a ReLU in place, and that ReLU: in evaluation the one does the other's work, where it can.
  bool fuses_relu = false;
  std::optional<double> largest_overhead = {};  ///< of DistributedConvolutionOptions
};

template <class T, class Exec>
class Layer {
 public:
  Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  virtual ~Layer() = default;

  /// Adds what computes plan.forward_work() of y, the owned part most often, from x, ghosts included. Every rank adds the same communication.
  virtual void add_forward(Step<Exec>& step, Mode mode) = 0;
  /// Adds what computes dx from dy, and this rank's part of the gradients of the parameters: their sum over all ranks is
  /// the gradient. Executed after a forward step of the training mode.
  virtual void add_backward(Step<Exec>& step) = 0;
  /// Whether the evaluation step of a convolution ends with the ReLU behind it. Equal on all ranks.
  virtual bool fuses_relu() const { return false; }
};

/// Whether this rank's result counts in sums over all ranks: of several ranks that compute the same, one does.
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
