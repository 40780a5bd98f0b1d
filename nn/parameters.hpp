#pragma once
// The learned tensors of a network: values, gradients and the state of the optimiser. Tensors whose gradients are
// summed over the same ranks share one flat block of memory (ParameterSegment). Their all-reduce is then one
// collective, and the optimiser one kernel.
//
//   // Every rank keeps all; any strategy may use them:
//   Parameters<float> all(comm, queue, net, seed);
//   // Each rank keeps the weights that it multiplies by:
//   Parameters<float> own(comm, queue, net, resolve(strategy, net, comm.size()), seed);
//
// The second form splits the weights of convolutions and dense layers whose channels or filters are split (stationary
// weights of spatial-parallel-cnn, section III.D). A rank then stores, updates and reduces only its own blocks. All
// other tensors are whole on every rank.
//
// The optimiser's kind (nn/optimiser.hpp) is chosen at construction, as it determines the state tensors:
//
//   parameters.state(i, k)    // tensor descriptions()[i].name + "." + properties_of(optimiser()).states[k]
//
// So are the options of all updates, for example the largest norm of the gradients:
//
//   Parameters<float> clipped(comm, queue, net, seed, ParameterUse::training, OptimiserKind::adam, {.max_norm = 1.0});
//
// Values have a version, by which convolutions know that filters in the order of their kernels are still right. The
// library's functions that write values raise it. The caller may also write values through the Views. So every call of
// a Network treats the values as new, and reorders each filter once in this call. A caller who announces each write
// avoids this, for example in the evaluation of many mini-batches:
//
//   parameters.set_writes(ParameterWrites::announced);
//   Kokkos::deep_copy(queue.space(), parameters.value(i), other);   // a write by the caller
//   parameters.values_changed();
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/nn/gradient_sum.hpp>
#include <aloni/nn/layer_split.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/optimiser.hpp>
#include <aloni/nn/plan/parameter_layout.hpp>
#include <aloni/nn/update_norms.hpp>
#include <aloni/views/box.hpp>
#include <aloni/views/local_view.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace aloni::nn {

/// inference: without gradients and the optimiser's state, a third of the memory of SGD. For networks with
/// NetworkOptions::inference. accumulation: training by mini-batches of several micro-batches, with the sum of their
/// gradients besides (nn/gradient_sum.hpp).
enum class ParameterUse : std::uint8_t { training, inference, accumulation };

/// How the library learns that the caller has written values through value(), vector_value(), values() or segments().
/// at_any_time: not at all. announced: the caller calls values_changed() after each write, before the next call of a
/// Network. Builds with debug checks compare checksums at each call. They throw InvalidArgument on the ranks where a
/// call is missing.
enum class ParameterWrites : std::uint8_t { at_any_time, announced };

/// Running mean and variance per channel. Batch normalisation keeps them for evaluation.
template <class Mem>
struct RunningStatistics {
  int layer = 0;
  Kokkos::View<double*, Mem> mean, variance;
};

/// Tensors whose gradients are summed over the same ranks.
template <class T, class Mem>
struct ParameterSegment {
  using Flat = Kokkos::View<T*, Mem>;
  int blocks = 1;  ///< number of weight blocks; ranks that are equal modulo this number keep the same block
  std::optional<comm::Communicator> sum;  ///< the ranks that keep the same block; empty: all ranks of the network
  Flat values;
  std::vector<Flat> states;  ///< of the optimiser, in the order of its properties
  Flat gradients;            ///< in the first segment followed by `Parameters::tail` more elements
  std::shared_ptr<void> gradient_memory;
};

template <class T, class Exec = Kokkos::DefaultExecutionSpace>
class Parameters {
 public:
  using Mem = typename Exec::memory_space;
  using Flat = Kokkos::View<T*, Mem>;
  using Segment = ParameterSegment<T, Mem>;
  /// Number of elements after the gradients that are reduced in the same all-reduce: the sum of losses and the
  /// number of correct predictions.
  static constexpr Index tail = 2;

  /// All tensors whole on every rank. Initial values depend only on the seed and the position in the tensor. They are
  /// uniform in ±1/sqrt(fan_in) for weights and biases, 1 for gamma, 0 for beta. Not collective.
  Parameters(const Queue<Exec>& queue, const NetworkDescription& network, std::uint64_t seed,
             ParameterUse use = ParameterUse::training, OptimiserKind optimiser = OptimiserKind::sgd,
             const UpdateOptions& update_options = {});
  /// As above, but the gradients lie in memory that the ranks of a node share, so that their all-reduce takes one
  /// pass over them. Not collective.
  Parameters(const comm::Communicator& comm, const Queue<Exec>& queue, const NetworkDescription& network,
             std::uint64_t seed, ParameterUse use = ParameterUse::training,
             OptimiserKind optimiser = OptimiserKind::sgd, const UpdateOptions& update_options = {});
  /// Weights of convolutions and dense layers split as `splits` say, for example those of resolve(). For networks on
  /// this communicator whose strategies split the channels and filters of these layers the same way.
  /// Collective.
  /// @pre splits.size() == network.layers.size()
  /// Throws InvalidArgument (equal on all ranks), CommunicationError.
  Parameters(const comm::Communicator& comm, const Queue<Exec>& queue, const NetworkDescription& network,
             const std::vector<LayerSplit>& splits, std::uint64_t seed, ParameterUse use = ParameterUse::training,
             OptimiserKind optimiser = OptimiserKind::sgd, const UpdateOptions& update_options = {});

  const std::vector<ParameterDescription>& descriptions() const { return layout_.descriptions; }
  /// Position in descriptions() of the k-th tensor of a layer. @pre the layer has a k-th tensor
  int find(int layer, int k) const;

  /// Where all tensors lie in the segments.
  const ParameterLayout& layout() const { return layout_; }
  /// How tensor i is split; {1, 1} if it is whole on every rank.
  const WeightBlocks& blocks(int i) const { return layout_.places.at(i).blocks; }
  /// The box of tensor i that this rank keeps. If the tensor is whole, the box contains all of it. Otherwise it is the
  /// bounding box of the weights that the rank uses. Empty if the rank uses none.
  const views::Box& kept(int i) const { return layout_.places.at(i).kept; }

  /// Whether there are gradients and the optimiser's state. All functions that name them require it.
  bool trains() const { return use_ != ParameterUse::inference; }
  /// The sum of the gradients of earlier micro-batches; null without ParameterUse::accumulation. Copies of this object
  /// share it.
  GradientSum<T, Exec>* gradient_sum() const { return gradient_sum_.get(); }
  OptimiserKind optimiser() const { return optimiser_; }
  const UpdateOptions& update_options() const { return update_options_; }
  /// Networks multiply the gradient of the loss by this factor in training, and updates divide by it. 1 without
  /// UpdateOptions::loss_scaling.
  double loss_scale() const { return loss_scale_->value; }
  /// The state of the loss scale, for checkpoints. Copies of this object share it.
  const LossScale& loss_scale_state() const { return *loss_scale_; }
  /// Equal on all ranks. Not collective. @pre update_options().loss_scaling
  void set_loss_scale_state(const LossScale& scale) const { *loss_scale_ = scale; }
  /// After each update: whether it changed the values, as the gradients were finite. Sets the scale of the next step.
  /// Equal on all ranks. Waits for the queue. Not collective.
  /// Throws InvalidArgument without UpdateOptions::loss_scaling.
  bool adapt_loss_scale(const Queue<Exec>& queue) const;

  /// The kept box of tensor i, dense.
  views::LocalView<T, Mem> value(int i) const { return tensor(segments_[layout_.places.at(i).segment].values, i); }
  views::LocalView<T, Mem> gradient(int i) const {
    return tensor(segments_[layout_.places.at(i).segment].gradients, i);
  }
  /// Tensor i of gradient_sum(). @pre gradient_sum() is not null
  views::LocalView<T, Mem> summed_gradient(int i) const {
    return tensor(gradient_sum_->values(layout_.places.at(i).segment), i);
  }
  /// The k-th state of the optimiser for tensor i. @pre trains(), 0 ≤ k < states of the optimiser
  views::LocalView<T, Mem> state(int i, int k) const {
    return tensor(segments_[layout_.places.at(i).segment].states.at(k), i);
  }
  /// A tensor with one dimension.
  Kokkos::View<T*, Mem> vector_value(int i) const { return vector(segments_[layout_.places.at(i).segment].values, i); }
  Kokkos::View<T*, Mem> vector_gradient(int i) const {
    return vector(segments_[layout_.places.at(i).segment].gradients, i);
  }

  /// First the segment of the whole tensors, then those of the split tensors by ascending number of blocks. Within a
  /// segment tensors have the order of descriptions().
  const std::vector<Segment>& segments() const { return segments_; }
  bool is_split() const { return segments_.size() > 1; }
  /// Number of ranks for which the tensors are split. @pre is_split()
  int ranks() const { return comm_->size(); }
  /// Values of the first segment: all values unless is_split().
  const Flat& values() const { return segments_[0].values; }
  /// Gradients of the first segment, then `tail` elements.
  const Flat& gradients() const { return segments_[0].gradients; }
  /// Number of elements of values().
  Index size() const { return static_cast<Index>(values().extent(0)); }

  /// All values, gradients, or k-th states of the optimiser, whole and in the order of descriptions(). Allocates. If
  /// is_split(), collective over the ranks for which the tensors are split.
  using HostFlat = Kokkos::View<T*, Kokkos::HostSpace>;
  HostFlat gather_values(const Queue<Exec>& queue) const;
  HostFlat gather_gradients(const Queue<Exec>& queue) const;
  HostFlat gather_state(const Queue<Exec>& queue, int k) const;
  /// Sets the boxes that this rank keeps. `all`: all values or k-th states, ordered as gathered. Not collective.
  /// @pre all.extent(0) is the total number of elements
  void scatter_values(const Queue<Exec>& queue, const HostFlat& all) const;
  void scatter_state(const Queue<Exec>& queue, int k, const HostFlat& all) const;

  /// Compares the values of each tensor between the ranks of `comm` that keep it, by checksums of 32 bits.
  /// `operation`: for the error text.
  /// Collective over `comm`. @pre `comm` has the ranks of the network
  /// Throws ReplicasDiffer, naming the first tensor that differs and its ranks, on the ranks that keep this tensor.
  /// Throws PeerFailed on the others.
  void check_replicas(const comm::Communicator& comm, const Queue<Exec>& queue, const std::string& operation) const;

  const RunningStatistics<Mem>& running_statistics(int layer) const;
  const std::vector<RunningStatistics<Mem>>& all_running_statistics() const { return statistics_; }

  /// One update with the present gradients. `step`: number of the update, from 1.
  /// Not collective, except with norms (LARS, UpdateOptions) if is_split(): then collective over the ranks for which
  /// the tensors are split.
  /// Throws InvalidArgument for an optimiser of another kind than optimiser(), for members out of range, and without
  /// trains().
  void update(const Queue<Exec>& queue, const Optimiser& optimiser, std::int64_t step) const;
  /// update() by stochastic gradient descent, which does not depend on the number of the update.
  void sgd(const Queue<Exec>& queue, const SgdOptions& options) const { update(queue, options, 1); }
  /// The exceptions of update() without the update. `operation`: for the error text.
  void check_update(const Optimiser& optimiser, std::int64_t step, const std::string& operation) const;
  /// The norms of an update; null without LARS, UpdateOptions::max_norm and loss_scaling.
  const UpdateNorms<T, Exec>* norms() const { return norms_ ? &*norms_ : nullptr; }
  /// The sums of squares of one segment on this rank, for the update. @pre norms()
  void sum_squares(const Exec& exec, std::size_t segment) const;
  /// update() of one segment, as one kernel, without checks and without values_changed().
  /// @pre check_update() throws nothing; norms() is null or has the factors of this update
  void update_segment(const Exec& exec, std::size_t segment, const Optimiser& optimiser, std::int64_t step) const;

  /// Number of the present values, above 0. Copies of this object share it, as they share the values.
  std::uint64_t version() const { return writes_->version; }
  /// The values are new ones. update(), sgd() and scatter_values() contain it.
  void values_changed() const { ++writes_->version; }
  ParameterWrites writes() const { return writes_->by; }
  /// Equal on all ranks. Not collective.
  void set_writes(ParameterWrites writes) const { writes_->by = writes; }
  /// For ParameterWrites::announced: compares a checksum of the values with that of the first call in this version. Not
  /// collective. Throws InvalidArgument on the ranks whose values have changed in between.
  void check_announced(const Queue<Exec>& queue, const std::string& operation) const;

  /// Bytes of values, gradients, their sum, the optimiser's state, norms and running statistics on this rank.
  Index bytes() const;

 private:
  struct Writes {
    std::uint64_t version = 1;
    ParameterWrites by = ParameterWrites::at_any_time;
    std::uint64_t checked_version = 0;  ///< of `checksum`
    std::uint32_t checksum = 0;
  };

  void allocate(const comm::Communicator* comm, const Queue<Exec>& queue, int rank);
  void initialise(const Queue<Exec>& queue, const NetworkDescription& network, std::uint64_t seed);
  views::LocalView<T, Mem> tensor(const Flat& flat, int i) const;
  Kokkos::View<T*, Mem> vector(const Flat& flat, int i) const;
  /// `flats`: of each segment.
  HostFlat gather(const Queue<Exec>& queue, const std::vector<Flat>& flats) const;
  void scatter(const Queue<Exec>& queue, const char* operation, const std::vector<Flat>& flats,
               const HostFlat& all) const;
  std::vector<Flat> values_of_segments() const;
  std::vector<Flat> states_of_segments(int k) const;
  Index count() const;

  std::optional<comm::Communicator> comm_;
  ParameterLayout layout_;
  ParameterUse use_;
  OptimiserKind optimiser_;
  UpdateOptions update_options_;
  std::vector<Segment> segments_;
  std::optional<UpdateNorms<T, Exec>> norms_;
  std::shared_ptr<GradientSum<T, Exec>> gradient_sum_;
  std::vector<RunningStatistics<Mem>> statistics_;
  std::shared_ptr<Writes> writes_ = std::make_shared<Writes>();
  std::shared_ptr<LossScale> loss_scale_ = std::make_shared<LossScale>();
};

}  // namespace aloni::nn
