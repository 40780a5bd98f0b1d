#pragma once
// Options of K-FAC (nn/kfac.hpp), the layers that it preconditions, and the callable that inverts its factors. Pure.
//
//   const KfacPlan plan = plan_kfac(network, resolve(strategy, network, ranks), ranks);
//   plan.layers[0].owner;    // the rank that inverts the factors of the first convolution or dense layer
//   plan.plain;              // layers with learned tensors that plain SGD updates, for example normalisations
#include <aloni/core/index.hpp>
#include <aloni/nn/layer_split.hpp>
#include <aloni/nn/network_description.hpp>

#include <cstdint>
#include <functional>
#include <future>
#include <string>
#include <vector>

namespace aloni::nn {

/// Inverts a symmetric positive definite matrix of order × order elements, both triangles dense. The result is the
/// whole inverse in the same form. The call may return before the inverse is there: then the training goes on, and the
/// future is read some steps later. Equal matrices must give equal bits, in any order of calls.
/// An error is thrown by the call or by future.get(): FactorisationError for a pivot that is not positive.
using FactorSolver = std::function<std::future<std::vector<double>>(std::vector<double> matrix, Index order)>;

/// The inverse by a Cholesky factorisation on the calling thread. Returns when it is there.
FactorSolver serial_factor_solver();

struct KfacOptions {
  std::int64_t every = 10;         ///< updates between two inversions of the factors, at least 1
  std::int64_t factors_every = 1;  ///< updates between two mini-batches that enter the factors, at least 1
  /// Updates from the start of an inversion to the first update that uses it; below `every`. 0: the same update. The
  /// number is fixed, so results do not depend on the time that the solver takes. The first inversion is used at once.
  std::int64_t delay = 0;
  double damping = 0.03;  ///< λ, above 0
  double decay = 0.95;    ///< of the running averages of the factors, in [0, 1)
  /// Largest learning_rate² Σ ⟨V, ∇W⟩ of an update, which approximates twice the KL divergence from the network before.
  /// A larger one scales V. 0: not limited.
  double kl_clip = 1e-3;
  FactorSolver solver = serial_factor_solver();
};

/// Throws InvalidArgument for a member out of range. `operation`: for the error text. Equal on all ranks that pass
/// equal arguments.
void check(const KfacOptions& options, const std::string& operation);

/// One layer with factors.
struct KfacLayer {
  int layer = 0;        ///< in the network
  Index rows = 0;       ///< filters or features: order of G
  Index columns = 0;    ///< weights of a filter, and one more with a bias: order of A
  bool bias = false;    ///< the last column is that of the bias
  Index positions = 1;  ///< pixels of the output of one sample
  int owner = 0;        ///< rank that inverts the factors and computes V
};

struct KfacPlan {
  std::vector<KfacLayer> layers = {};  ///< ascending by layer
  std::vector<int> plain = {};         ///< other layers with learned tensors
};

/// Convolutions without groups and dense layers have factors. Owners: the layer with the most work first, rows³ +
/// columns³, each to the rank with the least work.
/// @pre splits.size() == network.layers.size(), ranks ≥ 1
/// Throws Unsupported for a convolution or dense layer with split channels or filters, naming it. Throws
/// InvalidArgument. Equal on all ranks.
KfacPlan plan_kfac(const NetworkDescription& network, const std::vector<LayerSplit>& splits, int ranks);

/// "conv1, conv2, fc1 by K-FAC; bn1 by SGD".
std::string to_string(const KfacPlan& plan, const NetworkDescription& network);

}  // namespace aloni::nn
