#include <aloni/nn/loss_scaling.hpp>

#include <aloni/core/error.hpp>

#include <cmath>

namespace aloni::nn {

namespace {

constexpr double largest_scale = 0x1p127;

}  // namespace

void observe(const LossScaling& scaling, LossScale& scale, bool finite) {
  if (!finite) {
    scale.value *= scaling.backoff;
    scale.updates = 0;
    ++scale.skipped;
    ++scale.skipped_in_all;
    return;
  }
  scale.skipped = 0;
  scale.updates = (scale.updates + 1) % scaling.interval;
  if (scale.updates > 0) return;
  if (scale.value * scaling.growth <= largest_scale) scale.value *= scaling.growth;
}

void check(const LossScaling& s, const std::string& operation) {
  const auto require = [&](bool good, const char* argument, double value, const char* expectation) {
    if (!good) throw InvalidArgument(operation, argument, std::to_string(value), expectation);
  };
  require(s.initial > 0 && s.initial <= largest_scale, "initial loss scale", s.initial, "above 0 and at most 2^127");
  require(std::isfinite(s.growth) && s.growth >= 1, "growth of the loss scale", s.growth, "a finite number ≥ 1");
  require(s.backoff > 0 && s.backoff <= 1, "backoff of the loss scale", s.backoff, "above 0 and at most 1");
  require(s.interval >= 1, "interval of the loss scale", static_cast<double>(s.interval), "at least 1 update");
}

}  // namespace aloni::nn
