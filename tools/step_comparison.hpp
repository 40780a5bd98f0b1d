#pragma once
// The training step that the cost model predicts beside the measured one: by phase, by kind of work, by layer and node.
//
//   const StepPrediction predicted = predict_step(network, layers, machine, options, comm.rank());
//   …                                                            // the training, with TrainOptions::timed_steps
//   if (const auto comparison = compare_over_ranks(comm, predicted, report)) print(to_text(*comparison));
//
// Times of nodes are medians of timed steps. They contain waits for other ranks. On a device a timed node waits for its
// queue, so its communication is not hidden; the model's times of nodes are of that kind too. The time of the whole
// step is that of steps whose nodes are not timed, and has overlap.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/model/machine.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/step_times.hpp>
#include <aloni/nn/trainer.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace aloni::tools {

struct PredictedNode {
  std::string label;
  int layer = -1;  ///< -1: none
  nn::StepPhase phase = nn::StepPhase::forward;
  std::size_t kind = 0;  ///< of kinds_of_work()
  double seconds = 0;
};

/// The step of one rank.
struct StepPrediction {
  std::string machine;
  double seconds = 0;                     ///< of the whole step, on the slowest rank
  std::vector<std::string> layers = {};   ///< names
  std::vector<PredictedNode> nodes = {};  ///< in the order of the plan
};

/// The kinds of kernels (model/kernel.hpp), then "other kernels", "halo", "redistribution", "collective".
const std::vector<std::string>& kinds_of_work();

/// The plan of the rank with predicted seconds. The kernels are those of the machine's own layout of processes.
/// Equal on ranks that pass equal arguments; not collective. @pre `layers` was made from `network`
/// Throws InvalidArgument as model::simulate().
StepPrediction predict_step(const nn::NetworkDescription& network, const nn::NetworkPlan& layers,
                            const model::Machine& machine, const nn::StepOptions& options, int rank);

/// Measured seconds of one rank.
struct MeasuredStep {
  std::vector<std::string> labels = {};
  std::vector<double> nodes = {};  ///< medians, in the order of the plan
  double input = 0;                ///< median time to fill the mini-batch
  int steps = 0;                   ///< that were timed
};

/// Of each timed step. Steps of a rest of samples have fewer, but maybe not on each rank.
std::vector<double> flops_of_steps(const nn::StepTimes& times);

/// Of the steps with most flops, which have a full mini-batch. `flops`: by step, as flops_of_steps() gives them, or
/// their sums over ranks, so that all ranks take the same steps. @pre a step was timed
MeasuredStep measure_step(const nn::StepTimes& times, const std::vector<double>& flops);

struct ComparedTime {
  std::string name;
  double predicted = 0, measured = 0;

  /// As a share of the measured time; 0 if nothing was measured.
  double error() const { return measured > 0 ? (predicted - measured) / measured : 0; }
};

struct StepComparison {
  std::string machine;
  int ranks = 1, steps = 0;
  /// Without the input, which is no part of the model. On the slowest rank.
  ComparedTime step = {};
  double input = 0;
  // Means over ranks. A kind, layer or phase that does not occur has zeros.
  std::vector<ComparedTime> phases = {};  ///< forward, loss, backward, update
  std::vector<ComparedTime> kinds = {};   ///< kinds_of_work()
  std::vector<ComparedTime> layers = {};  ///< the last element belongs to no layer
  std::vector<ComparedTime> nodes = {};   ///< of this rank

  /// Sum of the differences of layers, without sign, divided by the measured time of all layers.
  double mean_error() const;
  /// The layer with the largest error of those that take at least one per cent of the time of all; null if none does.
  const ComparedTime* worst_layer() const;
};

/// Of this rank. `step_seconds`: with the input, as TrainReport::step_seconds.
/// Throws InvalidArgument if the nodes differ: the training was planned for another machine.
StepComparison compare(const StepPrediction& predicted, const MeasuredStep& measured, double step_seconds);

/// The measured steps of the training beside the prediction of each rank; the nodes stay those of this rank. Equal on
/// all ranks, but for the nodes. Empty if no step ran.
/// Collective. Throws on all ranks as compare(). @pre report.times
std::optional<StepComparison> compare_over_ranks(const comm::Communicator& comm, const StepPrediction& predicted,
                                                 const nn::TrainReport& report);

/// A table of at most 100 columns: the step, its phases, kinds of work, and the layers that differ most.
std::string to_text(const StepComparison& comparison);

}  // namespace aloni::tools
