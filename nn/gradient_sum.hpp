#pragma once
// Gradients of several micro-batches, added before one update: a mini-batch that is larger than the memory for its
// activations. Parameters made for ParameterUse::accumulation have such a sum, and networks with them use it:
//
//   Parameters<float> parameters(comm, queue, net, splits, seed, ParameterUse::accumulation);
//   Network<float> network(comm, queue, net, strategy, 16, parameters, {.update = true});
//   for (each micro-batch of 16 samples but the last one) {
//     … fill network.input() and network.labels() …
//     network.add_gradients(queue);
//   }
//   … fill them with the last one …
//   const StepResult result = network.train_step(queue, optimiser, step);  // of all samples since the last update
//
// Each micro-batch adds its gradients while its backward pass goes on, in parts as they are summed over ranks
// (AccumulationWork). In the last one the parts become the mean over all samples. Then they are summed over ranks,
// beside the rest of the backward pass: once for all micro-batches.
//
// The micro-batches may belong to networks of several sizes with the same parameters. Sums lie as the gradients do:
// each rank keeps those of its own blocks. For losses that are means over samples or elements the result is that of
// one mini-batch, up to the order of sums. Batch normalisation takes its statistics over a micro-batch, and the Dice
// loss is the mean of those of the micro-batches.
#include <aloni/core/index.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <vector>

namespace aloni::nn {

/// A micro-batch, as GradientSum weights its gradients.
struct MicroBatch {
  Index samples = 0;
  double loss_factor = 1;  ///< Network::loss_factor()
  bool last = false;       ///< of its mini-batch
};

/// A part of the gradients of one segment.
struct GradientRange {
  std::size_t segment = 0;
  Index first = 0, elements = 0;
  /// Its last two elements are the sum of losses and the number of correct predictions.
  bool has_tail = false;
};

template <class T, class Exec>
class GradientSum {
 public:
  using Flat = Kokkos::View<T*, typename Exec::memory_space>;

  /// Zeros. `lengths`: of the gradients of each segment, with the tail. Asynchronous on `exec`. Not collective.
  GradientSum(const Exec& exec, const std::vector<Index>& lengths);

  const Flat& values(std::size_t segment) const { return sums_[segment]; }
  /// Of the micro-batches since the last mini-batch.
  Index samples() const { return earlier_; }

  /// The next calls of run() belong to this micro-batch. Not collective.
  void begin(const MicroBatch& batch) { batch_ = batch; }
  /// All parts have had their run(). Not collective.
  void end() { earlier_ = batch_.last ? 0 : earlier_ + batch_.samples; }

  /// Adds this part of the gradients, weighted by the samples of the micro-batch. In the last micro-batch of a
  /// mini-batch the gradients become the mean over all samples instead. The sum of losses becomes the mean loss, and
  /// correct predictions are counted. A few kernels. Asynchronous on `exec`. Not collective.
  /// @pre begin() was called; the part is within `gradients`, those of its segment
  void run(const Exec& exec, const GradientRange& part, const Flat& gradients) const;

  /// Bytes of the sums on this rank.
  Index bytes() const;

 private:
  std::vector<Flat> sums_;  ///< by segment
  MicroBatch batch_;
  Index earlier_ = 0;  ///< samples
};

}  // namespace aloni::nn
