#pragma once
// Stops a training whose loss is NaN or infinite. Pure.
#include <string>

namespace aloni::nn {

class LossGuard {
 public:
  /// `allows`: goes on after a loss that is NaN or infinite.
  explicit LossGuard(bool allows) : allows_(allows) {}

  /// `name`: for the error text, for example "loss of step 3". `learning_rate`: of the last update.
  /// Throws NotFinite. All ranks have the same losses, so all ranks throw.
  void check(const std::string& name, double loss, double learning_rate);

 private:
  bool allows_;
  double last_ = 0;
  std::string last_name_;
};

}  // namespace aloni::nn
