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
// A new optimiser is an alternative of Optimiser, its properties in nn/optimiser.cpp, a kernel in
// nn/local/pointwise.cpp, and the call of the kernel in nn/parameters.cpp. Plans, memory and costs follow from the
// properties.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace aloni::nn {

/// Stochastic gradient descent, with d = g + weight_decay w: v = momentum v + d; w = w - learning_rate v. The weight
/// decay is the gradient of an L2 penalty.
/// nesterov: w = w - learning_rate (d + momentum v), with the new v. So d is in effect the gradient behind the next step
/// of the momentum (Sutskever et al., On the importance of initialization and momentum in deep learning, 2013), in the
/// form of torch.optim.SGD. @pre momentum > 0
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

using Optimiser = std::variant<SgdOptions, AdamOptions>;

/// The alternatives of Optimiser, in their order.
enum class OptimiserKind : std::uint8_t { sgd, adam };

inline OptimiserKind kind_of(const Optimiser& optimiser) { return static_cast<OptimiserKind>(optimiser.index()); }

double learning_rate(const Optimiser& optimiser);
void set_learning_rate(Optimiser& optimiser, double rate);

/// The facts about a kind that plans and Parameters need.
struct OptimiserProperties {
  const char* name;  ///< "sgd"
  /// State tensors of each learned tensor, in the order in which the kernel takes them. The state "momentum" of the
  /// tensor "conv1.weight" is "conv1.weight.momentum". All are zero before the first update.
  std::span<const std::string_view> states;
  double flops;  ///< per element, with weight decay
};
const OptimiserProperties& properties_of(OptimiserKind kind);
inline const char* name(OptimiserKind kind) { return properties_of(kind).name; }

/// Throws InvalidArgument for a member out of range, or a number of the update below 1. `operation`: for the error
/// text. Equal on all ranks that pass equal arguments.
void check(const Optimiser& optimiser, std::int64_t step, const std::string& operation);

}  // namespace aloni::nn
