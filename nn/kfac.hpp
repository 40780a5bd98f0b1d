#pragma once
// K-FAC: gradients of convolutions and dense layers times the inverse of a Fisher matrix made of Kronecker factors.
// SGD with momentum then takes them in place of the gradients.
//
//   Parameters<float> parameters(comm, queue, net, seed);             // whole on every rank, for SGD
//   Network<float> network(comm, queue, net, strategy, 64, parameters);
//   Kfac<float, Exec> kfac(comm, queue, net, resolve(strategy, net, comm.size()), parameters, {.every = 20});
//   for (std::int64_t t = 1; t <= steps; ++t) {
//     network.record_factors(kfac.begin(64, t));                      // null in a step whose mini-batch is not wanted
//     network.train_step(queue);                                      // forward, backward, sums of the gradients
//     kfac.precondition(queue, 0.02, t);
//     parameters.sgd(queue, {.learning_rate = 0.02});
//   }
//
// A layer has weights and bias W, rows × columns. Its inputs a have a 1 for the bias. The gradients g are those of the
// loss of a sample with respect to the output. Then:
//   A = mean over samples of Σ a aᵀ, over the positions of a sample (for a convolution a is a patch);
//   G = mean over samples and positions of g gᵀ;
//   V = (G + sqrt(λ)/π 1)⁻¹ ∇W (A + π sqrt(λ) 1)⁻¹,  π² = (tr A / columns) / (tr G / rows).
// A and G are running averages: with decay min(1 - 1/t, decay), t = 1 for the first mini-batch that enters. The
// gradients become ν V, with ν = min(1, sqrt(kl_clip / (rate² Σ ⟨V, ∇W⟩))). The targets are those of the data: the
// empirical Fisher matrix. Other layers keep their gradients. Weight decay of SGD is added after the preconditioning.
//
// Sources: Martens and Grosse, "Optimizing neural networks with Kronecker-factored approximate curvature", ICML 2015,
// sections 3 (factors), 5 (averages), 6.3 (π). Grosse and Martens, "A Kronecker-factored approximate Fisher matrix for
// convolution layers", ICML 2016, section 3. Limit ν: Ba, Grosse and Martens, "Distributed second-order optimization
// using Kronecker-factored approximations", ICLR 2017, section 5.
//
// Ranks. Each rank sums the products of its own samples and pixels, ghosts included in a. One all-reduce adds the lower
// triangles. Each layer has an owner (KfacPlan). Only the owner keeps averages and inverses, and computes V, which it
// broadcasts in every update (MEM-OPT of Pauloski et al., "KAISA", SC 2021). Broadcasts of the inverses instead would
// need them on every rank, and each rank would multiply all of them. Then V would have equal bits only where all ranks
// have the same BLAS and number of threads. Replicated parameters must be identical.
//
// Inversion beside the training. KfacOptions::solver may return before an inverse is there. It is used exactly
// KfacOptions::delay updates later, when precondition() waits for it if it must. Steps in between use the one before.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/nn/checkpoint/archive.hpp>
#include <aloni/nn/factor_sums.hpp>
#include <aloni/nn/kfac_options.hpp>
#include <aloni/nn/parameters.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <future>
#include <string>
#include <vector>

namespace aloni::nn {

/// T: type of activations.
template <class T, class Exec>
class Kfac {
 public:
  using Parameter = parameter_type_t<T>;
  using AllParameters = Parameters<Parameter, Exec>;
  using Sums = FactorSums<T, Exec>;

  /// `splits`: of the networks, from resolve(). Equal arguments on all ranks, apart from the solver. Not collective.
  /// @pre the parameters have gradients, and outlive this object
  /// Throws Unsupported and InvalidArgument as plan_kfac() and check(), equal on all ranks.
  Kfac(const comm::Communicator& comm, const Queue<Exec>& queue, const NetworkDescription& network,
       const std::vector<LayerSplit>& splits, const AllParameters& parameters, const KfacOptions& options);
  Kfac(const Kfac&) = delete;
  Kfac& operator=(const Kfac&) = delete;

  const KfacPlan& plan() const { return plan_; }

  /// The sums that the next backward pass must fill, for Network::record_factors(); null if this update does not take
  /// its mini-batch. With micro-batches, one call for each of them. `update`: number of the update, from 1. Not
  /// collective.
  Sums* begin(Index samples, std::int64_t update);

  /// Replaces the gradients of the parameters by ν V. `learning_rate`: of the update that follows.
  /// Collective. @pre the gradients are summed over ranks; begin() was called for this update, and its sums are filled.
  /// Throws NotFinite if a factor is NaN or infinite, and the errors of the solver, on the owner of the layer. Then the
  /// other ranks throw PeerFailed.
  void precondition(const Queue<Exec>& queue, double learning_rate, std::int64_t update);

  /// Waits for inversions that have been started, so that archive() can save them. They are used at the same update as
  /// otherwise. Collective. Throws as precondition().
  void finish_pending();
  /// Averages, inverses in use, and those that wait for their update: "conv1.kfac_a", …. Not collective.
  /// @pre finish_pending() was called since the last precondition(). Throws as Archive.
  void archive(checkpoint::Archive& archive, const Queue<Exec>& queue);

  /// Bytes on this rank. Inversions that run are not included.
  Index bytes() const;

 private:
  using Flat = Kokkos::View<Parameter*, typename Exec::memory_space>;
  using HostFlat = typename Flat::HostMirror;
  using Matrix = std::vector<double>;

  /// One factor of a layer that this rank owns.
  struct Factor {
    Index order = 0;
    Matrix average;
    Flat inverse;
    std::future<Matrix> pending = {};
    Matrix next = {};  ///< an inverse that waits for its update
  };
  struct Owned {
    std::size_t layer = 0;  ///< in the plan
    Factor a, g;
  };

  void sum_over_ranks(const Queue<Exec>& queue);
  void average(Factor& factor, const double* sum, double divisor, double decay) const;
  /// Starts the inversions of all owned factors.
  void submit();
  void use_next(const Queue<Exec>& queue);
  /// Waits for the futures of this rank.
  void fetch();
  /// V of an owned layer, at its place in directions_. Returns ⟨V, ∇W⟩.
  double direction(const Exec& exec, Owned& owned);
  void exchange_directions(const Queue<Exec>& queue);
  void write_gradients(const Exec& exec, double scale);
  void archive_matrix(checkpoint::Archive& archive, const std::string& name, Index order, Matrix* values) const;

  comm::Communicator comm_;
  KfacPlan plan_;
  std::vector<std::string> names_;  ///< of the layers of the plan
  const AllParameters& parameters_;
  KfacOptions options_;
  Sums sums_;
  HostFlat host_sums_;
  std::vector<double> packed_;  ///< lower triangles, to be added over ranks
  std::vector<Owned> owned_;
  std::vector<std::size_t> places_;        ///< of each layer in directions_
  std::vector<std::size_t> owners_begin_;  ///< of each rank in directions_, and the end
  Flat directions_;                        ///< V of all layers, those of one owner one after another
  HostFlat host_directions_;
  Flat gradient_, product_;    ///< of one layer, with the bias as last column
  std::int64_t averaged_ = 0;  ///< mini-batches in the averages
  std::int64_t due_ = 0;       ///< update that first uses the inversions that have been started; 0: none
  std::int64_t inverted_ = 0;  ///< 1: there are inverses
};

}  // namespace aloni::nn
