#pragma once
// The options of a training that choose the optimiser and its learning rate over time.
#include <aloni/core/comm/agreement.hpp>
#include <aloni/nn/optimiser.hpp>
#include <aloni/nn/trainer.hpp>

#include <string>

namespace CLI {
class App;
}

namespace aloni::tools {

class OptimiserArguments {
 public:
  /// Adds the options to `command`. @pre this object outlives `command`
  void add_options(CLI::App& command);
  /// Throws UsageError for a value out of range, and for an option that does not belong to the chosen optimiser.
  void check() const;
  /// The options that all ranks must pass alike.
  void add_to(comm::ReplicatedValues& values) const;

  nn::Optimiser optimiser() const;
  nn::LearningRateSchedule schedule() const;

 private:
  bool given(const char* option) const;

  CLI::App* command_ = nullptr;
  std::string optimiser_ = "sgd", schedule_ = "linear", decay_ = "l2";
  double learning_rate_ = nn::SgdOptions{}.learning_rate;
  double momentum_ = nn::SgdOptions{}.momentum;
  double beta1_ = nn::AdamOptions{}.beta1, beta2_ = nn::AdamOptions{}.beta2, epsilon_ = nn::AdamOptions{}.epsilon;
  double weight_decay_ = 0;
};

}  // namespace aloni::tools
