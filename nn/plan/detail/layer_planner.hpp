#pragma once
// Plans the layers other than convolutions: the kernels of one rank, and the sums over ranks of their statistics.
#include <aloni/nn/layer.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/detail/builder.hpp>

#include <functional>
#include <vector>

namespace aloni::nn::detail {

/// Buffers of one layer. Gradients are no_buffer if no node needs them.
struct LayerBuffers {
  BufferId y = no_buffer;                                 ///< covers LayerPlan::forward_work()
  BufferId dy = no_buffer;                                ///< covers the owned part of y
  std::vector<BufferId> x = {}, dx = {};                  ///< one per input
  std::vector<BufferId> parameters = {}, gradients = {};  ///< in the order of parameters_of()
  BufferId summand = no_buffer;  ///< y is the sum that follows the batch normalisation, of its output and this buffer
  bool holds_sum_relu = false;   ///< y is that of the ReLU behind this sum
  /// Batch normalisation: the gradient of x by its other reader, which is added to dx. Its buffer is no_buffer: none.
  PlanRegion gradient_summand = {};
  /// Batch normalisation: sums of the first channels of x over all ranks, by another one; no_buffer: none.
  BufferId known_sums = no_buffer;
  bool holds_relu = false;         ///< y and dy are those of the ReLU that follows, which the layer computes too
  bool holds_relu_before = false;  ///< max pooling: x and dx are those of the ReLU before it, which it computes too
};

class LayerPlanner {
 public:
  /// Adds the buffers of the layer's own. The arguments outlive this object. @pre !plan.convolution
  LayerPlanner(PlanBuilder& builder, const LayerDescription& description, const LayerPlan& plan, int layer,
               LayerBuffers buffers);

  /// Every rank calls both, so that the numbers of communication agree. `trains`: batch statistics.
  void add_forward(bool trains);
  /// Batch normalisation: the sums of all channels over all ranks, between its forward nodes and its backward nodes.
  BufferId channel_sums() const { return sums_; }
  /// `beside_sums`: every normalisation with a gradient of x calls it once, behind its sums over ranks. It may add
  /// nodes of other layers, and must begin() this layer again.
  void add_backward(const std::function<void()>& beside_sums);

 private:
  bool is_first_copy() const { return plan_.output.is_first_copy(builder_.rank()); }
  BufferId x() const { return buffers_.x[0]; }
  BufferId dx() const { return buffers_.dx[0]; }
  bool writes_dx() const { return dx() != no_buffer && !builder_[dx()].owned.empty(); }
  BufferId parameter(std::size_t k) const {
    return k < buffers_.parameters.size() ? buffers_.parameters[k] : no_buffer;
  }
  BufferId gradient(std::size_t k) const { return k < buffers_.gradients.size() ? buffers_.gradients[k] : no_buffer; }
  /// The owned part of x, of a normalisation. The buffer may have channels of other layers behind it.
  PlanRegion input() const { return {x(), plan_.input.owned(builder_.rank())}; }
  PlanRegion owned(BufferId b) const { return builder_.owned(b); }
  PlanRegion all(BufferId b) const { return builder_.whole(b); }
  ReductionWork sum_of(BufferId b) const;

  void prepare_statistics();
  Index known_channels() const;
  /// Layer normalisation: whether several ranks have channels of a pixel.
  bool splits_cells() const { return members_.size() > 1; }
  template <class WindowWork, class ProblemOf>
  void add_window(WindowWork work, const ProblemOf& problem_of);
  void add_pooling(bool backward);
  void add_resampling(bool backward);
  void add_batch_norm_forward(bool trains);
  void add_batch_norm_backward(const std::function<void()>& beside_sums);
  void add_group_norm_forward();
  void add_group_norm_backward(const std::function<void()>& beside_sums);
  void add_layer_norm_forward();
  void add_layer_norm_backward(const std::function<void()>& beside_sums);
  void add_pointwise(bool backward);
  void add_dropout_forward(bool trains);
  void add_dropout_backward();
  void add_flatten(bool backward);
  void add_dense_forward();
  void add_dense_backward();
  void add_average_forward();
  void add_average_backward();
  void add_add_forward();
  void add_add_backward();
  NormalisationWork normalisation(NormalisationStage stage) const;
  /// Adds that a node computes the gradients of gamma and beta from the rank's own outputs.
  void add_summands(PlanNode& node) const;

  PlanBuilder& builder_;
  const LayerDescription& description_;
  const LayerPlan& plan_;
  int layer_;
  LayerBuffers buffers_;
  views::Box work_;  ///< of y
  bool pointwise_ = false, reads_input_ = false;
  BufferId argmax_ = no_buffer;
  BufferId input_copy_ = no_buffer, output_copy_ = no_buffer;  ///< dense layers whose activations are rounded
  BufferId sums_ = no_buffer, statistics_ = no_buffer, running_ = no_buffer;
  BufferId partial_ = no_buffer, gradient_partial_ = no_buffer;  ///< of batch normalisation
  BufferId new_sums_ = no_buffer;  ///< batch normalisation: sums of the channels without known sums
  BufferId squares_ = no_buffer, gradient_sums_ = no_buffer;  ///< layer normalisation with split channels
  std::vector<int> members_;                                  ///< ranks whose sums are added
  Index count_ = 0;                                           ///< elements that share a mean
  /// Group normalisation: as in NormalisationWork.
  Index groups_ = 1, group_channels_ = 1, first_channel_ = 0;
};

}  // namespace aloni::nn::detail
