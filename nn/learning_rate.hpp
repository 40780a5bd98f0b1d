#pragma once
// The learning rate over time as a value, and the early stop of a training. Pure.
//
//   const LearningRate rate{.schedule = CosineSchedule{.lowest = 0.01}, .warm_up = 500};
//   PlateauState plateau;
//   for (std::int64_t step = 0; step < total; ++step) {
//     set_learning_rate(optimiser, base * factor(rate, step, total, plateau));
//     … the step …
//     if (epoch_ends) observe(rate, plateau, test_loss);
//   }
//
// All factors multiply the base rate of the optimiser. A schedule is a function of the number of the step, except
// PlateauSchedule: its state follows from the observed values. States are plain numbers, for checkpoints.
#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

namespace aloni::nn {

/// The factor 1.
struct ConstantSchedule {
  friend bool operator==(const ConstantSchedule&, const ConstantSchedule&) = default;
};

/// From 1 at step 0 towards 0 at the end of the training.
struct LinearSchedule {
  friend bool operator==(const LinearSchedule&, const LinearSchedule&) = default;
};

/// factor^n, with the number n of milestones that have been reached: `every` × 1, 2, 3, …, or the given ones.
/// As torch.optim.lr_scheduler.StepLR and MultiStepLR. @pre one of `every` and `milestones` is given
struct StepSchedule {
  std::int64_t every = 0;                     ///< steps; 0: `milestones`
  std::vector<std::int64_t> milestones = {};  ///< steps, ascending
  double factor = 0.1;
  friend bool operator==(const StepSchedule&, const StepSchedule&) = default;
};

/// lowest + (1 - lowest) (1 + cos(pi t)) / 2, with t from 0 to 1 over the training, as
/// torch.optim.lr_scheduler.CosineAnnealingLR (Loshchilov and Hutter, SGDR: stochastic gradient descent with warm
/// restarts, 2017, equation 5, without restarts).
struct CosineSchedule {
  double lowest = 0;  ///< factor at the end
  friend bool operator==(const CosineSchedule&, const CosineSchedule&) = default;
};

/// Multiplies by `factor` once `patience` + 1 observed values in a row were no improvement, as
/// torch.optim.lr_scheduler.ReduceLROnPlateau in the mode "min" with threshold_mode "rel".
struct PlateauSchedule {
  double factor = 0.1;
  int patience = 10;        ///< observations
  double threshold = 1e-4;  ///< an improvement is a value below best × (1 - threshold)
  double lowest = 0;        ///< least factor
  friend bool operator==(const PlateauSchedule&, const PlateauSchedule&) = default;
};

using Schedule = std::variant<ConstantSchedule, LinearSchedule, StepSchedule, CosineSchedule, PlateauSchedule>;
/// "constant", "linear", "step", "cosine", "plateau".
const char* name(const Schedule& schedule);

struct LearningRate {
  Schedule schedule = ConstantSchedule{};
  /// In the first so many steps the factor is that of the schedule times (step + 1) / warm_up (Goyal et al., Accurate,
  /// large minibatch SGD: training ImageNet in 1 hour, 2017, section 2.2). Linear and cosine schedules begin behind it.
  /// StepSchedule counts all steps.
  std::int64_t warm_up = 0;
  friend bool operator==(const LearningRate&, const LearningRate&) = default;
};

/// The values on which PlateauSchedule depends.
struct PlateauState {
  double factor = 1;
  double best = std::numeric_limits<double>::infinity();
  std::int64_t bad = 0;  ///< observations in a row without an improvement
  friend bool operator==(const PlateauState&, const PlateauState&) = default;
};

/// The factor of step `step`, from 0, of `total` steps. `state`: counts for PlateauSchedule only. @pre check() throws
/// nothing; 0 ≤ step < total
double factor(const LearningRate& rate, std::int64_t step, std::int64_t total, const PlateauState& state = {});

/// Enters an observed value, for example the loss of the test set after an epoch. Smaller is better. NaN is no
/// improvement. Without effect for other schedules than PlateauSchedule.
void observe(const LearningRate& rate, PlateauState& state, double value);

/// Throws InvalidArgument for a member out of range. `operation`: for the error text.
void check(const LearningRate& rate, const std::string& operation);

/// Ends a training that no longer improves.
struct EarlyStop {
  int patience = 0;              ///< observations without an improvement that end the training; 0: no early stop
  double least_improvement = 0;  ///< an improvement is a value below best - least_improvement
  friend bool operator==(const EarlyStop&, const EarlyStop&) = default;
};
struct EarlyStopState {
  double best = std::numeric_limits<double>::infinity();
  std::int64_t bad = 0;
  friend bool operator==(const EarlyStopState&, const EarlyStopState&) = default;
};
/// Enters an observed value, as above. Returns whether the training ends.
bool observe(const EarlyStop& stop, EarlyStopState& state, double value);
/// Throws InvalidArgument for a member out of range. `operation`: for the error text.
void check(const EarlyStop& stop, const std::string& operation);

}  // namespace aloni::nn
