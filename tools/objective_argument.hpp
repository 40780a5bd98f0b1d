#pragma once
// The option --objective of `aloni plan` and `aloni simulate`: the aim of --strategy auto.
//
//   ObjectiveArgument objective;
//   objective.add_options(command);                    // then: app.parse(…), objective.check(strategy)
//   objective.value();                                 // model::Objective::throughput
#include <aloni/core/comm/agreement.hpp>
#include <aloni/core/index.hpp>
#include <aloni/model/choose_strategy.hpp>
#include <aloni/nn/plan/step_plan.hpp>
#include <aloni/tools/strategy_argument.hpp>

#include <string>

namespace CLI {
class App;
}

namespace aloni::tools {

/// "step", "latency", "throughput".
std::string objective_name(model::Objective objective);
/// Training for model::Objective::training_step, otherwise inference.
nn::StepKind step_kind_of(model::Objective objective);
/// "training step", "inference step".
std::string step_text(model::Objective objective);
/// " (32 x --batch 64)" for a mini-batch that the search has enlarged; empty if `batch` is `requested`.
std::string enlarged_text(Index batch, Index requested);

class ObjectiveArgument {
 public:
  /// @pre this object outlives `command`
  void add_options(CLI::App& command);
  /// Throws UsageError for an unknown objective, for one without --strategy auto, and for options of a training beside
  /// latency and throughput: --accumulate, --optimiser.
  void check(const StrategyArgument& strategy) const;
  /// All ranks must pass the option alike.
  void add_to(comm::ReplicatedValues& values) const;

  /// @pre check() has returned
  model::Objective value() const;

 private:
  CLI::App* command_ = nullptr;
  std::string objective_ = "step";
};

}  // namespace aloni::tools
