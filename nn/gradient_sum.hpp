#pragma once
// Gradients of several micro-batches, added before one update: a mini-batch that is larger than the memory for its
// activations.
//
//   GradientSum<float, Exec> sum(queue, parameters);
//   for (each micro-batch of 16 samples) {
//     … fill network.input() and network.labels() …
//     network.compute_gradients(queue);               // of this rank's part
//     sum.add(queue.space(), 16, network.loss_factor());
//   }
//   sum.finish(queue.space());                        // the gradients are now those of the mean over all samples …
//   network.reduce_gradients(queue);                  // … and equal on all ranks: one sum over ranks for the update
//   const StepResult result = sum.result(queue);
//   parameters.update(queue, optimiser, step);
//
// The micro-batches may belong to networks of several sizes with the same parameters. Sums lie as the gradients do:
// each rank keeps those of its own blocks. For losses that are means over samples or elements the result is that of
// one mini-batch, up to the order of sums. Batch normalisation takes its statistics over a micro-batch, and the Dice
// loss is the mean of those of the micro-batches.
#include <aloni/core/queue.hpp>
#include <aloni/nn/network.hpp>
#include <aloni/nn/parameters.hpp>

#include <vector>

namespace aloni::nn {

template <class T, class Exec>
class GradientSum {
 public:
  using Flat = typename Parameters<T, Exec>::Flat;

  /// Allocates as much memory as the gradients take. Not collective.
  /// @pre the parameters have gradients, and outlive this object
  GradientSum(const Queue<Exec>& queue, const Parameters<T, Exec>& parameters);

  /// Adds the present gradients, weighted by the number of samples of their micro-batch: one kernel per segment, and
  /// two for the loss and the correct predictions. `loss_factor`: Network::loss_factor(). Asynchronous on `exec`. Not
  /// collective.
  void add(const Exec& exec, Index samples, double loss_factor);

  /// The gradients become the sum divided by the number of samples added. Afterwards nothing is added. Asynchronous on
  /// `exec`. Not collective. @pre samples have been added
  void finish(const Exec& exec);

  /// The mean loss of the samples between the last two calls of finish(), and their correct predictions.
  /// Waits for the queue. Not collective. @pre Network::reduce_gradients() was called after finish()
  StepResult result(const Queue<Exec>& queue) const;

  /// Bytes of the sums on this rank.
  Index bytes() const;

 private:
  struct Factors {
    double gradients, loss, correct;
  };
  /// to = keep × to + factors × from, of one segment. `has_tail`: its last elements are the loss and the correct
  /// predictions.
  void step(const Exec& exec, double keep, const Factors& factors, const Flat& from, const Flat& to,
            bool has_tail) const;

  const Parameters<T, Exec>& parameters_;
  std::vector<Flat> sums_;  ///< with the extents of the gradients, the tail included
  typename Flat::HostMirror tail_;
  Index samples_ = 0;
};

}  // namespace aloni::nn
