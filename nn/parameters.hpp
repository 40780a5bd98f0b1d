#pragma once
// The learned tensors of a network: values, gradients and momenta, each one flat block of memory, so that the gradient
// all-reduce is one collective and the optimiser one kernel. Replicated: every rank holds all of them.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/views/local_view.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <memory>
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

template <class T, class Exec = Kokkos::DefaultExecutionSpace>
class Parameters {
 public:
  using Mem = typename Exec::memory_space;
  using Flat = Kokkos::View<T*, Mem>;
  /// Elements of the gradient block behind the gradients themselves that ride along in the same all-reduce: the sum of losses
  /// and the number of right predictions.
  static constexpr Index tail = 2;

  /// Initial values depend on the seed and the position in the tensor only: uniform in ±1/sqrt(fan_in) for weights and biases,
  /// 1 for gamma, 0 for beta.
  Parameters(const Queue<Exec>& queue, const NetworkDescription& network, std::uint64_t seed);
  /// The same with gradients where the ranks of a node reach them, so that their all-reduce takes one pass. Not collective.
  Parameters(const comm::Communicator& comm, const Queue<Exec>& queue, const NetworkDescription& network,
             std::uint64_t seed);

  const std::vector<ParameterDescription>& descriptions() const { return descriptions_; }
  /// Position of a layer's k-th tensor in descriptions(). @pre the layer has one
  int find(int layer, int k) const;

  views::LocalView<T, Mem> value(int i) const { return tensor(values_, i); }
  views::LocalView<T, Mem> gradient(int i) const { return tensor(gradients_, i); }
  /// A tensor of one dimension.
  Kokkos::View<T*, Mem> vector_value(int i) const { return vector(values_, i); }
  Kokkos::View<T*, Mem> vector_gradient(int i) const { return vector(gradients_, i); }

  /// All values in the order of descriptions().
  const Flat& values() const { return values_; }
  /// All gradients, then `tail` elements.
  const Flat& gradients() const { return gradients_; }
  Index size() const { return static_cast<Index>(values_.extent(0)); }

  const RunningStatistics<Mem>& running_statistics(int layer) const;
  const std::vector<RunningStatistics<Mem>>& all_running_statistics() const { return statistics_; }

  /// One step of the optimiser on the gradients as they are.
  void sgd(const Queue<Exec>& queue, const SgdOptions& options) const;

 private:
  views::LocalView<T, Mem> tensor(const Flat& flat, int i) const;
  Kokkos::View<T*, Mem> vector(const Flat& flat, int i) const;

  std::vector<ParameterDescription> descriptions_;
  std::vector<Index> offsets_;
  Flat values_, gradients_, momenta_;
  std::shared_ptr<void> gradient_memory_;
  std::vector<RunningStatistics<Mem>> statistics_;
};

}  // namespace aloni::nn
