#pragma once
// Seconds that the cost model predicts for a plan on a machine, by layer, and the reasons for the splits.
//
//   PlanRequest request = …;                                     // plan_summary.hpp
//   std::optional<PlanChoice> choice = choose(request, machine);      // sets the strategy of the request
//   PlanSummary summary = summarise(request);
//   summary.prediction = predict(request, summary, machine, choice);
//
// Times are those of the slowest rank in a step (model/simulate.hpp). Pure; nothing is collective.
#include <aloni/core/index.hpp>
#include <aloni/model/choose_strategy.hpp>
#include <aloni/model/machine.hpp>
#include <aloni/model/simulate.hpp>
#include <aloni/model/step_limits.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/tools/step_sources.hpp>

#include <optional>
#include <string>
#include <vector>

namespace aloni::tools {

struct PlanRequest;
struct PlanSummary;

/// Seconds. `compute + exposed` adds up to the step.
struct PredictedTime {
  double compute = 0;                           ///< kernels
  model::CommunicationTime communication = {};  ///< by itself, also the part that kernels hide
  double exposed = 0;                           ///< communication and waits that no kernel hides

  double seconds() const { return compute + exposed; }
  PredictedTime& operator+=(const PredictedTime& other);
};

struct SplitReason {
  std::string text = {};                      ///< one line
  std::optional<std::string> runner_up = {};  ///< the best other split; of a chosen strategy only
  double runner_up_seconds = 0;               ///< by which the step would be longer, LayerChoice::runner_up_seconds
  int candidates = 0;                         ///< LayerChoice::candidates, likewise
  bool own_candidates = true;                 ///< LayerChoice::own_candidates, likewise
};

/// The result of the search.
struct PlanChoice {
  model::StrategyChoice strategy;
  model::StepLimits limits;
};

struct PlanPrediction {
  std::string machine;
  double step_seconds = 0;
  std::vector<PredictedTime> layers = {};  ///< the last element belongs to no layer: loss, update
  PredictedTime total = {};
  StepSources sources = {};
  std::vector<SplitReason> reasons = {};             ///< by layer
  std::vector<model::Candidates> candidates = {};    ///< StrategyChoice::candidates; empty: the strategy is given
  std::optional<model::UniformChoice> uniform = {};  ///< of a chosen strategy: the best one with one grid
  int ranks = 1;                                     ///< of the plan
  bool chosen = false;                               ///< whether the model chose the strategy
  std::vector<int> rank_of = {};                     ///< StrategyChoice::rank_of
  std::vector<int> nodes = {};                       ///< of each rank; empty: all ranks are on one node
  std::string placement_reason = {};                 ///< StrategyChoice::placement_reason, or that it is given
  std::string savings_reason = {};                   ///< StrategyChoice::savings_reason
  std::string repeats_reason = {};                   ///< StrategyChoice::repeats_reason
  model::StepLimits limits = {};                     ///< of the plan; the reason may be that those of the file count
  Index direct_bytes = 0, consolidate_below = 0;     ///< fields of MachineDescription
  Index memory_bytes = 0, machine_memory_bytes = 0;  ///< of a rank: planned, and of the machine; 0: not known

  bool feasible() const { return machine_memory_bytes == 0 || memory_bytes <= machine_memory_bytes; }
};

/// The best strategy by the model for the objective. It becomes that of the request, with its ranks placed on nodes and
/// the limits of model::choose_step_limits(). For throughput the mini-batch of the request may grow too
/// (PlanRequest::requested_batch). The strategy fits into the memory limit of the request, or without one into the
/// memory of the machine. Throws InvalidArgument as model::choose_strategy().
PlanChoice choose(PlanRequest& request, const model::Machine& machine);

/// @pre `summary` is summarise(request). `choice`: the result of choose() for the request; empty: its strategy is given
/// Throws InvalidArgument if the machine has fewer ranks.
PlanPrediction predict(const PlanRequest& request, const PlanSummary& summary, const model::Machine& machine,
                       const std::optional<PlanChoice>& choice);

/// Several lines: a row for each layer, and for chosen splits their reasons. At most 100 columns, unless names of
/// layers are long.
std::string to_text(const PlanPrediction& prediction, const nn::NetworkDescription& network);

}  // namespace aloni::tools
