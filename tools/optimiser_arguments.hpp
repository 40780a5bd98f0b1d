#pragma once
// The options of a training that choose the optimiser, its learning rate over time, and the smoothing of labels.
#include <aloni/core/comm/agreement.hpp>
#include <aloni/nn/local/element_type.hpp>
#include <aloni/nn/optimiser.hpp>
#include <aloni/nn/trainer.hpp>
#include <aloni/tools/kfac_arguments.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
  /// Empty unless chosen. Starts a thread that ends with the last copy of the result.
  std::optional<nn::KfacOptions> kfac() const;
  bool uses_kfac() const { return optimiser_ == "kfac"; }
  /// @pre uses_kfac()
  std::string describe_kfac() const { return kfac_.describe(); }
  /// `activations`: of the network; those of float16 have loss scaling unless an option turns it off.
  nn::UpdateOptions update(nn::ElementType activations) const;
  nn::LearningRate schedule() const;
  nn::EarlyStop early_stop() const;
  std::optional<nn::Averaging> average() const;
  double label_smoothing() const { return label_smoothing_; }

 private:
  bool given(const char* option) const;
  void check_optimiser() const;
  void check_schedule() const;
  /// Throws UsageError.
  std::vector<std::int64_t> milestones() const;

  CLI::App* command_ = nullptr;
  KfacArguments kfac_;
  std::string optimiser_ = "sgd", schedule_ = "linear", decay_ = "l2";
  double learning_rate_ = nn::SgdOptions{}.learning_rate;
  double momentum_ = nn::SgdOptions{}.momentum;
  double beta1_ = nn::AdamOptions{}.beta1, beta2_ = nn::AdamOptions{}.beta2, epsilon_ = nn::AdamOptions{}.epsilon;
  double weight_decay_ = 0, trust_ = nn::LarsOptions{}.trust, clip_ = 0, label_smoothing_ = 0, average_ = 0;
  double loss_scale_ = 0;
  bool nesterov_ = false;
  std::int64_t step_every_ = 0, patience_ = nn::PlateauSchedule{}.patience, warm_up_ = 0, early_stop_ = 0;
  std::string milestones_;
  double factor_ = nn::StepSchedule{}.factor, lowest_ = 0;
};

}  // namespace aloni::tools
