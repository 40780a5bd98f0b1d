#include <aloni/nn/optimiser.hpp>

#include <aloni/core/error.hpp>

#include <array>
#include <cmath>
#include <type_traits>

namespace aloni::nn {

static_assert(
    std::is_same_v<std::variant_alternative_t<static_cast<std::size_t>(OptimiserKind::sgd), Optimiser>, SgdOptions>);
static_assert(
    std::is_same_v<std::variant_alternative_t<static_cast<std::size_t>(OptimiserKind::adam), Optimiser>, AdamOptions>);
static_assert(
    std::is_same_v<std::variant_alternative_t<static_cast<std::size_t>(OptimiserKind::lars), Optimiser>, LarsOptions>);

const char* name(WeightDecay decay) { return decay == WeightDecay::l2 ? "l2" : "decoupled"; }

const OptimiserProperties& properties_of(OptimiserKind kind) {
  static constexpr std::array<std::string_view, 1> momentum{"momentum"};
  static constexpr std::array<std::string_view, 2> moments{"first_moment", "second_moment"};
  // SGD: three products with their sums; the fourth of Nesterov momentum is not counted. Adam: 3 for the first moment,
  // 4 for the second, 2 for the decay; then two products, a root, a sum, a division and a difference.
  // LARS: four products with their sums, without a sum for the factor of clipping.
  static constexpr std::array<OptimiserProperties, std::variant_size_v<Optimiser>> all{
      {{"sgd", momentum, 6, false}, {"adam", moments, 15, false}, {"lars", momentum, 7, true}}};
  return all[static_cast<std::size_t>(kind)];
}

double learning_rate(const Optimiser& optimiser) {
  return std::visit([](const auto& o) { return o.learning_rate; }, optimiser);
}

void set_learning_rate(Optimiser& optimiser, double rate) {
  std::visit([rate](auto& o) { o.learning_rate = rate; }, optimiser);
}

void check(const UpdateOptions& options, const std::string& operation) {
  if (options.max_norm && !(std::isfinite(*options.max_norm) && *options.max_norm > 0)) {
    throw InvalidArgument(operation, "max_norm", std::to_string(*options.max_norm),
                          "a finite number above 0, or none for gradients that are not clipped");
  }
  if (options.loss_scaling) check(*options.loss_scaling, operation);
}

void check(const Optimiser& optimiser, std::int64_t step, const std::string& operation) {
  const auto require = [&](bool good, const char* argument, double value, const char* expectation) {
    if (!good) throw InvalidArgument(operation, argument, std::to_string(value), expectation);
  };
  const auto require_fraction = [&](const char* argument, double value) {
    require(value >= 0 && value < 1, argument, value, "a number in [0, 1)");
  };
  if (step < 1) throw InvalidArgument(operation, "step", std::to_string(step), "at least 1, the first update");
  std::visit(
      [&](const auto& o) {
        require(std::isfinite(o.learning_rate), "learning rate", o.learning_rate, "a finite number");
        require(std::isfinite(o.weight_decay) && o.weight_decay >= 0, "weight decay", o.weight_decay,
                "a finite number ≥ 0");
        using Options = std::decay_t<decltype(o)>;
        if constexpr (std::is_same_v<Options, SgdOptions>) {
          require_fraction("momentum", o.momentum);
          require(!o.nesterov || o.momentum > 0, "momentum", o.momentum, "above 0 with nesterov");
        } else if constexpr (std::is_same_v<Options, LarsOptions>) {
          require_fraction("momentum", o.momentum);
          require(std::isfinite(o.trust) && o.trust > 0, "trust", o.trust, "a finite number above 0");
          require(std::isfinite(o.epsilon) && o.epsilon >= 0, "epsilon", o.epsilon, "a finite number ≥ 0");
        } else {
          require_fraction("beta1", o.beta1);
          require_fraction("beta2", o.beta2);
          require(std::isfinite(o.epsilon) && o.epsilon > 0, "epsilon", o.epsilon, "a finite number above 0");
        }
      },
      optimiser);
}

}  // namespace aloni::nn
