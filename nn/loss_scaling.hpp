#pragma once
// Loss scaling: the gradients of a step are those of a multiple of its loss, the update divides by it. With float16
// activations small gradients would otherwise become zero (Micikevicius et al., Mixed precision training, 2018, section
// 3.2). Pure.
//
//   Parameters<float> parameters(comm, queue, net, seed, ParameterUse::training, OptimiserKind::sgd,
//                                {.loss_scaling = LossScaling{}});
//   Network<comm::float16> network(comm, queue, net, strategy, 64, parameters, {.update = true});
//   network.train_step(queue, optimiser, step);
//   if (!parameters.adapt_loss_scale(queue)) …   // gradients were not finite: no update, and a smaller scale
//
// Scales are powers of two if `initial`, `growth` and `backoff` are, and then only gradients outside the range of
// normal numbers differ from unscaled ones.
#include <cstdint>
#include <string>

namespace aloni::nn {

/// The rule of torch.amp.GradScaler, with its defaults.
struct LossScaling {
  double initial = 65536;  ///< the first scale
  double growth = 2;       ///< multiplies the scale after `interval` updates in a row; 1: it never grows
  double backoff = 0.5;    ///< multiplies the scale when gradients are not finite; 1: it never falls
  std::int64_t interval = 2000;

  friend bool operator==(const LossScaling&, const LossScaling&) = default;
};

/// The scale of the next step, and the steps since it last changed.
struct LossScale {
  double value = 1;
  std::int64_t updates = 0;  ///< in a row since the last change or skipped update
  std::int64_t skipped = 0;  ///< updates in a row that were skipped
  std::int64_t skipped_in_all = 0;

  friend bool operator==(const LossScale&, const LossScale&) = default;
};

/// The scale after a step whose gradients were all finite, or not. It does not grow beyond 2^127, the range of float.
void observe(const LossScaling& scaling, LossScale& scale, bool finite);

/// Throws InvalidArgument for a member out of range. `operation`: for the error text.
void check(const LossScaling& scaling, const std::string& operation);

}  // namespace aloni::nn
