#pragma once
// One call of train(): its memory, the loop over epochs and steps, and the report.
#include <aloni/core/comm/partial_all_reduce.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/nn/kfac.hpp>
#include <aloni/nn/train/checkpoints.hpp>
#include <aloni/nn/train/loss_guard.hpp>
#include <aloni/nn/train/networks.hpp>
#include <aloni/nn/train/source.hpp>
#include <aloni/nn/train/timed_steps.hpp>
#include <aloni/nn/trainer.hpp>
#include <aloni/nn/weight_average.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace aloni::nn {

/// The position of a training between two steps.
struct TrainingProgress {
  std::int64_t steps = 0;    ///< done
  std::int64_t updates = 0;  ///< done; more than steps if late gradients had an update of their own
};

template <class T>
class Training {
 public:
  using Exec = execution_space_t<T>;
  using Parameter = parameter_type_t<T>;

  /// Collective. @pre all arguments outlive this object, and have passed check_arguments()
  Training(const comm::Communicator& comm, const NetworkDescription& description, const Strategy& strategy,
           Source<T>& source, const TrainOptions& options, TrainObserver* observer);

  /// Collective. To be called once.
  TrainReport run();

 private:
  /// Sums over the steps of one epoch.
  struct Epoch {
    double loss = 0, seconds = 0;
    Index steps = 0, samples = 0;
  };

  bool waits_for_all() const { return options_.gradients == GradientReduction::all; }
  Parameters<Parameter, Exec> make_parameters() const;
  /// Of networks for full mini-batches, with the blocks that are computed again. Collective.
  NetworkOptions make_network_options() const;
  /// Restores the state of a checkpoint. Returns whether there is one.
  bool resume();
  /// Writes a checkpoint if one is due. Returns whether the training must stop.
  bool save_if_due();
  /// All state that the next steps and the report depend on. Not collective.
  void archive(checkpoint::Archive& archive);
  void archive_loss_scale(checkpoint::Archive& archive);
  /// Makes the objects that the first steps would make, so that their time does not contain this.
  void prepare();
  /// Sizes of the incomplete mini-batches of the steps that are left and of the tests.
  std::set<Index> incomplete_batches() const;
  /// Bytes of host memory that a checkpoint takes while it is written. Not collective.
  Index checkpoint_bytes();
  /// Returns whether the training goes on.
  bool run_epoch(int epoch);
  /// Of an epoch that a checkpoint has interrupted: the sums over its first steps.
  Epoch sums_of(int epoch) const;
  /// The samples first … first + samples - 1 of the epoch.
  void run_step(Epoch& epoch, Index first, Index samples);
  bool stopped_early() const { return ended_ != 0 && options_.early_stop.patience > 0; }
  /// Enters the loss of an epoch into the schedule and the early stop.
  void observe_epoch(double loss);
  /// After each update: adapts the loss scale, and adds the new values to their average. An update that was skipped,
  /// because gradients were not finite, does not count. Throws NotFinite after `most_skipped_updates` in a row.
  void finish_update();
  /// Calls `f` while the parameters have their average, if there is one.
  template <class F>
  void with_average(const F& f);
  /// Calls `train` with the network for so many samples, which has their mini-batch. Returns its result.
  template <class F>
  auto with_batch(Index first, Index samples, StepTimes* times, const F& train);
  StepResult train_and_update(Index first, Index samples, StepTimes* times);
  void update(Network<T, Exec>& network, StepTimes* times);
  /// The next backward pass adds the factors of so many samples, if K-FAC wants them.
  void record_factors(Network<T, Exec>& network, Index samples);
  /// Sets the learning rate of the next step.
  void schedule_learning_rate();
  /// Adds the gradients that were too late for the last step of an epoch.
  void update_by_late_gradients();
  void finish_report();
  std::uint64_t maximum(std::uint64_t value) const;

  const comm::Communicator& comm_;
  const NetworkDescription& description_;
  const Strategy& strategy_;
  Source<T>& source_;
  const TrainOptions& options_;
  TrainObserver* observer_;

  Queue<Exec> queue_;
  Parameters<Parameter, Exec> parameters_;
  std::optional<WeightAverage<Parameter, Exec>> average_;
  NetworkOptions network_options_;
  Networks<T> networks_;
  std::optional<comm::PartialAllReduce<Parameter>> partial_;
  std::optional<Kfac<T, Exec>> kfac_;
  Optimiser optimiser_;

  Index batch_;  ///< samples of a step
  Index micro_;  ///< samples that a network computes at once
  Index steps_per_epoch_;
  std::int64_t total_steps_;
  int epochs_;
  TrainingProgress progress_;
  PlateauState plateau_;
  EarlyStopState early_stop_;
  std::int64_t ended_ = 0;  ///< 1: the early stop has ended the training

  LossGuard guard_;
  std::optional<Checkpoints> checkpoints_;
  TimedSteps timed_;
  TrainReport report_;
  std::vector<double> step_seconds_, timed_step_seconds_;
  double train_seconds_ = 0;
  Index trained_ = 0;  ///< samples
  /// The epochs of the report, as a checkpoint saves them.
  struct SavedEpochs {
    std::vector<double> losses, test_accuracies, test_losses;
    std::map<std::string, std::vector<double>> test_metrics;  ///< by name
  } epochs_saved_;
};

}  // namespace aloni::nn
