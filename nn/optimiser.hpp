#pragma once
// Optimisers as values: the rule by which an update computes new parameters from gradients. Pure.
//
//   Parameters<float> parameters(comm, queue, net, seed, ParameterUse::training, OptimiserKind::adam);
//   for (std::int64_t step = 1; step <= steps; ++step) {
//     network.train_step(queue);
//     parameters.update(queue, AdamOptions{.learning_rate = 1e-3}, step);
//   }
//
// The kind is chosen once, because it determines the memory: the state tensors, each as large as the parameters. All
// other members of the options may change from one update to the next.
//
// Gradients can be clipped by their norm (UpdateOptions::max_norm). This too is chosen once, because the norm needs
// memory and, where weights are split, a sum over the ranks.
//
// A new optimiser is an alternative of Optimiser, its properties in nn/optimiser.cpp, a kernel in
// nn/local/pointwise.cpp, and the call of the kernel in nn/parameters.cpp. Plans, memory and costs follow from the
// properties.
#include <aloni/nn/loss_scaling.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace aloni::nn {

/// Stochastic gradient descent, with d = g + weight_decay w: v = momentum v + d; w = w - learning_rate v. The weight
/// decay is the gradient of an L2 penalty.
/// nesterov: w = w - learning_rate (d + momentum v), with the new v, as torch.optim.SGD (Sutskever et al., On the
/// importance of initialization and momentum in deep learning, 2013). @pre momentum > 0
struct SgdOptions {
  double learning_rate = 0.05;
  double momentum = 0.9;
  double weight_decay = 0.0;
  bool nesterov = false;
};

/// l2: the gradient of the penalty weight_decay/2 |w|² is added to g, so the moments contain it.
/// decoupled: the update subtracts learning_rate weight_decay w, and the moments do not contain it (Loshchilov and
/// Hutter, Decoupled weight decay regularization, 2019, algorithm 2).
enum class WeightDecay : std::uint8_t { l2, decoupled };
const char* name(WeightDecay decay);

/// Adam (Kingma and Ba, Adam: a method for stochastic optimization, 2015, algorithm 1). With t the number of the
/// update, from 1:
///   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g²;
///   w = w - learning_rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon).
struct AdamOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  WeightDecay decay = WeightDecay::l2;
};

/// LARS, layer-wise adaptive rate scaling (You, Gitman and Ginsburg, Large batch training of convolutional networks,
/// 2017, algorithm 1). With the norms |w| and |g| of one tensor over all ranks:
///   rate = trust |w| / (|g| + weight_decay |w| + epsilon);
///   v = momentum v + learning_rate rate (g + weight_decay w);  w = w - v.
/// The rate is 1 where |w| or |g| is 0. Biases, gamma and beta have the rate 1 and no weight decay.
struct LarsOptions {
  double learning_rate = 1.0;
  double momentum = 0.9;
  double weight_decay = 0.0;
  double trust = 1e-3;
  double epsilon = 1e-8;
};

using Optimiser = std::variant<SgdOptions, AdamOptions, LarsOptions>;

/// The alternatives of Optimiser, in their order.
enum class OptimiserKind : std::uint8_t { sgd, adam, lars };

inline OptimiserKind kind_of(const Optimiser& optimiser) { return static_cast<OptimiserKind>(optimiser.index()); }

double learning_rate(const Optimiser& optimiser);
void set_learning_rate(Optimiser& optimiser, double rate);

/// The facts about a kind that plans and Parameters need.
struct OptimiserProperties {
  const char* name;  ///< "sgd"
  /// State tensors of each learned tensor, in the order in which the kernel takes them. The state "momentum" of the
  /// tensor "conv1.weight" is "conv1.weight.momentum". All are zero before the first update.
  std::span<const std::string_view> states;
  double flops;     ///< per element, with weight decay
  bool uses_norms;  ///< of the values and gradients of each tensor
};
const OptimiserProperties& properties_of(OptimiserKind kind);
inline const char* name(OptimiserKind kind) { return properties_of(kind).name; }

/// The parts of an update beside the optimiser. As the optimiser's kind, they are chosen once.
struct UpdateOptions {
  /// Largest norm of all gradients together, over all ranks. A larger one scales all gradients by max_norm / (norm +
  /// 1e-6) in the update, as torch.nn.utils.clip_grad_norm_. The gradients in memory stay as they are. Above 0; empty:
  /// not clipped. Source: Pascanu, Mikolov and Bengio, On the difficulty of training recurrent neural networks, 2013.
  std::optional<double> max_norm = {};
  /// The gradients are those of Parameters::loss_scale() times the loss (nn/loss_scaling.hpp). The update divides them
  /// by it, before max_norm counts. If the norm of all gradients is not finite, the update changes neither values nor
  /// states.
  std::optional<LossScaling> loss_scaling = {};

  friend bool operator==(const UpdateOptions&, const UpdateOptions&) = default;
};

/// Whether the update needs sums of squares (nn/plan/norm_layout.hpp).
inline bool uses_norms(OptimiserKind kind, const UpdateOptions& options) {
  return properties_of(kind).uses_norms || options.max_norm || options.loss_scaling;
}

/// Throws InvalidArgument for a member out of range. `operation`: for the error text. Equal on all ranks that pass
/// equal arguments.
void check(const UpdateOptions& options, const std::string& operation);

/// Throws InvalidArgument for a member out of range, or a number of the update below 1. `operation`: for the error
/// text. Equal on all ranks that pass equal arguments.
void check(const Optimiser& optimiser, std::int64_t step, const std::string& operation);

}  // namespace aloni::nn
