#pragma once
// The learned tensors of a network: values, gradients and momenta. Tensors whose gradients are added by the same ranks lie in one flat block
// of memory (ParameterSegment), so that their all-reduce is one collective and the optimiser one kernel.
//
//   Parameters<float> all(comm, queue, net, seed);                                        // every rank keeps all; any strategy may use them
//   Parameters<float> own(comm, queue, net, resolve(strategy, net, comm.size()), seed);   // each keeps the weights that it multiplies by
//
// In the second form the weights of a convolution whose channels or filters are split are kept in parts (the stationary weights of spatial-parallel-cnn,
// section III.D): a rank holds, updates and adds up the gradients of its blocks alone. Everything else is whole on every rank.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/nn/layer_split.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/views/box.hpp>
#include <aloni/views/local_view.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace aloni::nn {

/// Stochastic gradient descent: v = momentum v + (g + weight_decay w); w = w - learning_rate v.
struct SgdOptions {
  double learning_rate = 0.05;
  double momentum = 0.9;
  double weight_decay = 0.0;
};

/// Mean and variance per channel that batch normalisation keeps for evaluation.
template <class Mem>
struct RunningStatistics {
  int layer = 0;
  Kokkos::View<double*, Mem> mean, variance;
};

/// Blocks that the channels and the filters of a convolution's weights are split into.
struct WeightBlocks {
  int channels = 1, filters = 1;

  int count() const { return channels * filters; }
  friend bool operator==(const WeightBlocks&, const WeightBlocks&) = default;
};

/// Tensors whose gradients are added by the same ranks.
template <class T, class Mem>
struct ParameterSegment {
  using Flat = Kokkos::View<T*, Mem>;
  int blocks = 1;                         ///< of their weights: ranks that are equal modulo this keep the same
  std::optional<comm::Communicator> sum;  ///< these ranks; none: all that the network has
  Flat values, momenta;
  Flat gradients;  ///< of the first segment `Parameters::tail` elements more
  std::shared_ptr<void> gradient_memory;
};

template <class T, class Exec = Kokkos::DefaultExecutionSpace>
class Parameters {
 public:
  using Mem = typename Exec::memory_space;
  using Flat = Kokkos::View<T*, Mem>;
  using Segment = ParameterSegment<T, Mem>;
  /// Elements of the gradient block behind the gradients themselves that ride along in the same all-reduce: the sum of losses
  /// and the number of right predictions.
  static constexpr Index tail = 2;

  /// Everything whole. Initial values depend on the seed and the position in the tensor only: uniform in ±1/sqrt(fan_in) for weights and
  /// biases, 1 for gamma, 0 for beta. Not collective.
  Parameters(const Queue<Exec>& queue, const NetworkDescription& network, std::uint64_t seed);
  /// The same with gradients where the ranks of a node reach them, so that their all-reduce takes one pass. Not collective.
  Parameters(const comm::Communicator& comm, const Queue<Exec>& queue, const NetworkDescription& network,
             std::uint64_t seed);
  /// Split as the splits, from resolve(), say. For networks on this communicator whose strategies split the channels and filters of convolutions so.
  /// Collective. @pre splits.size() == network.layers.size(). Throws InvalidArgument (equal on all ranks), CommunicationError.
  Parameters(const comm::Communicator& comm, const Queue<Exec>& queue, const NetworkDescription& network,
             const std::vector<LayerSplit>& splits, std::uint64_t seed);

  const std::vector<ParameterDescription>& descriptions() const { return descriptions_; }
  /// Position of a layer's k-th tensor in descriptions(). @pre the layer has one
  int find(int layer, int k) const;

  /// How tensor i is split: {1, 1} if it is whole on every rank.
  const WeightBlocks& blocks(int i) const { return places_.at(i).blocks; }
  /// The box of tensor i that this rank keeps: around all that it multiplies by, all of it if it isn't split. Empty where it has no weights.
  const views::Box& kept(int i) const { return places_.at(i).kept; }

  /// What is kept of a tensor, dense.
  views::LocalView<T, Mem> value(int i) const { return tensor(segments_[places_.at(i).segment].values, i); }
  views::LocalView<T, Mem> gradient(int i) const { return tensor(segments_[places_.at(i).segment].gradients, i); }
  /// A tensor of one dimension.
  Kokkos::View<T*, Mem> vector_value(int i) const { return vector(segments_[places_.at(i).segment].values, i); }
  Kokkos::View<T*, Mem> vector_gradient(int i) const { return vector(segments_[places_.at(i).segment].gradients, i); }

  /// First the tensors that are whole, then those that are split, in ascending order of blocks. Within one in the order of descriptions().
  const std::vector<Segment>& segments() const { return segments_; }
  bool is_split() const { return segments_.size() > 1; }
  /// For how many they are split. @pre is_split()
  int ranks() const { return comm_->size(); }
  /// Of the first segment: all there are unless is_split().
  const Flat& values() const { return segments_[0].values; }
  /// Gradients of the first segment, then `tail` elements.
  const Flat& gradients() const { return segments_[0].gradients; }
  /// Elements of values().
  Index size() const { return static_cast<Index>(values().extent(0)); }

  /// All values, or gradients, whole and in the order of descriptions(). Collective over the ranks they are split for, if they are. Allocates.
  using HostFlat = Kokkos::View<T*, Kokkos::HostSpace>;
  HostFlat gather_values(const Queue<Exec>& queue) const { return gather(queue, &Segment::values); }
  HostFlat gather_gradients(const Queue<Exec>& queue) const { return gather(queue, &Segment::gradients); }
  /// Each rank takes what it keeps of values in that order. Not collective. @pre all.extent(0) is the number of all elements
  void scatter_values(const Queue<Exec>& queue, const HostFlat& all) const;

  const RunningStatistics<Mem>& running_statistics(int layer) const;
  const std::vector<RunningStatistics<Mem>>& all_running_statistics() const { return statistics_; }

  /// One step of the optimiser on the gradients as they are.
  void sgd(const Queue<Exec>& queue, const SgdOptions& options) const;

 private:
  /// Where a tensor lies.
  struct Place {
    WeightBlocks blocks = {};
    views::Box kept;
    std::vector<views::Box> own =
        {};  ///< what of it this rank alone keeps, but for ranks that are equal modulo blocks.count()
    std::size_t segment = 0;
    Index offset = 0;  ///< in the segment
    Index first = 0;   ///< of the whole tensor among all
  };

  void lay_out(const comm::Communicator* comm, const Queue<Exec>& queue);
  void initialise(const Queue<Exec>& queue, const NetworkDescription& network, std::uint64_t seed);
  views::LocalView<T, Mem> tensor(const Flat& flat, int i) const;
  Kokkos::View<T*, Mem> vector(const Flat& flat, int i) const;
  HostFlat gather(const Queue<Exec>& queue, Flat Segment::*what) const;
  Index count() const;

  std::optional<comm::Communicator> comm_;
  std::vector<ParameterDescription> descriptions_;
  std::vector<Place> places_;  ///< of each
  std::vector<Segment> segments_;
  std::vector<RunningStatistics<Mem>> statistics_;
};

}  // namespace aloni::nn
