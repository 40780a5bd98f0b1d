#pragma once
// An exponential moving average of the learned values, with which a network often evaluates better (Polyak and
// Juditsky, Acceleration of stochastic approximation by averaging, 1992).
//
//   WeightAverage<float, Exec> average(queue, parameters, {.decay = 0.999});
//   for (std::int64_t t = 1; t <= steps; ++t) {
//     network.train_step(queue, optimiser, t);
//     average.add(queue.space(), t);
//   }
//   average.exchange(queue);   // the parameters now have the averages …
//   network.evaluate(queue);
//   average.exchange(queue);   // … and again their values
//
// Averages lie as the values do: each rank keeps those of its own blocks. Running statistics of batch normalisation are
// not averaged.
#include <aloni/core/queue.hpp>
#include <aloni/nn/averaging.hpp>
#include <aloni/nn/parameters.hpp>

#include <cstdint>
#include <vector>

namespace aloni::nn {

template <class T, class Exec>
class WeightAverage {
 public:
  using Flat = typename Parameters<T, Exec>::Flat;
  using HostFlat = typename Parameters<T, Exec>::HostFlat;

  /// Allocates as much memory as the values take, and copies them. Not collective. @pre the parameters outlive this
  /// object. Throws InvalidArgument for a decay out of range.
  WeightAverage(const Queue<Exec>& queue, const Parameters<T, Exec>& parameters, const Averaging& averaging);

  /// Adds the present values, as one kernel per segment. `update`: number of the update before, from 1. Asynchronous on
  /// `exec`. Not collective. @pre the averages are not exchanged
  void add(const Exec& exec, std::int64_t update) const;

  /// Exchanges the values of the parameters with the averages. A second call restores both. Asynchronous on the queue.
  /// Not collective.
  void exchange(const Queue<Exec>& queue) const;

  /// The averages of all segments, with the extents of the values.
  const std::vector<Flat>& averages() const { return averages_; }
  /// All averages, whole and in the order of Parameters::descriptions(). Collective as Parameters::gather_values().
  HostFlat gather(const Queue<Exec>& queue) const;
  /// Sets the boxes that this rank keeps. `all`: ordered as gathered. Not collective.
  /// Throws InvalidArgument for another number of elements.
  void scatter(const Queue<Exec>& queue, const HostFlat& all) const;

  /// Bytes of the averages on this rank.
  Index bytes() const;

 private:
  const Parameters<T, Exec>& parameters_;
  Averaging averaging_;
  std::vector<Flat> averages_;
};

}  // namespace aloni::nn
