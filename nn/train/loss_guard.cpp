#include <aloni/nn/train/loss_guard.hpp>

#include <aloni/core/error.hpp>

#include <cmath>
#include <cstdio>

namespace aloni::nn {

namespace {

std::string text(double value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.6g", value);
  return digits;
}

}  // namespace

void LossGuard::check(const std::string& name, double loss, double learning_rate) {
  if (std::isfinite(loss)) {
    last_ = loss;
    last_name_ = name;
  } else if (!allows_) {
    const std::string before =
        last_name_.empty() ? "no loss before it" : "last finite loss " + text(last_) + ", the " + last_name_;
    throw NotFinite("aloni::nn::train", name, std::isnan(loss) ? "NaN" : text(loss),
                    "a finite number (learning rate " + text(learning_rate) + "; " + before +
                        "); take a smaller learning rate, or allow_nonfinite to go on");
  }
}

}  // namespace aloni::nn
