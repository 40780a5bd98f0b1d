#pragma once
// The sums of K-FAC (nn/kfac.hpp) on one rank: Σ a aᵀ and Σ g gᵀ of each layer. Network::record_factors() fills them
// during the backward pass, where inputs and gradients of outputs are in memory at the same time.
//
//   FactorSums<float, Exec> sums(queue, plan);
//   network.record_factors(&sums);
//   sums.begin(64);                    // the next step has 64 samples, on all ranks together
//   network.compute_gradients(queue);
//   sums.values();                     // of the outputs that this rank owns; copies of other ranks are not counted
#include <aloni/core/queue.hpp>
#include <aloni/nn/kfac_options.hpp>
#include <aloni/nn/local/convolution_problem.hpp>
#include <aloni/nn/local/local_types.hpp>
#include <aloni/views/local_view.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <vector>

namespace aloni::nn {

/// T: type of activations.
template <class T, class Exec>
class FactorSums {
 public:
  using Parameter = parameter_type_t<T>;
  using Flat = Kokkos::View<Parameter*, typename Exec::memory_space>;
  using View = views::LocalView<T, typename Exec::memory_space>;

  /// Allocates the sums, all 0, and memory for patches. Not collective. @pre `plan` outlives this object
  FactorSums(const Queue<Exec>& queue, const KfacPlan& plan);

  /// The next backward passes are those of a mini-batch, or a micro-batch, of so many samples on all ranks together.
  /// dL/dy of the mean loss times this number is g, the gradient of the loss of a sample.
  void begin(Index samples) {
    batch_ = static_cast<double>(samples);
    samples_ += samples;
  }
  /// Adds one region of a layer: x, with ghosts where the problem reads them, and dL/dy. Does nothing for a layer
  /// without factors. Asynchronous on `exec`. @pre views as the problem says
  void add(const Exec& exec, int layer, const local::ConvolutionProblem& problem, const View& x, const View& dy);
  /// All sums become 0, over 0 samples. Asynchronous on `exec`.
  void clear(const Exec& exec);

  /// Samples of all calls of begin() since the last clear().
  Index samples() const { return samples_; }
  /// Of each layer of the plan first A = Σ a aᵀ, columns × columns, then G = Σ g gᵀ, rows × rows. The sums are over the
  /// positions of samples; they are not divided by any number.
  const Flat& values() const { return values_; }
  std::size_t begin_of_a(std::size_t i) const { return begins_[2 * i]; }
  std::size_t begin_of_g(std::size_t i) const { return begins_[2 * i + 1]; }
  Index bytes() const { return static_cast<Index>((values_.size() + patches_.size()) * sizeof(Parameter)); }

 private:
  /// c += factor RᵀR, where R has the patches of the problem.
  void add_products(const Exec& exec, const local::ConvolutionProblem& problem, const View& x, bool ones, double factor,
                    Parameter* c, Index order);

  const KfacPlan& plan_;
  std::vector<std::size_t> begins_;
  std::vector<int> position_;  ///< in the plan, by layer; -1: no factors
  Flat values_, patches_;
  double batch_ = 1;
  Index samples_ = 0;
};

}  // namespace aloni::nn
