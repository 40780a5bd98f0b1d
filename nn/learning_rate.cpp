#include <aloni/nn/learning_rate.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <string_view>
#include <type_traits>

namespace aloni::nn {

namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

void require(const std::string& operation, bool good, const char* argument, double value, const char* expectation) {
  if (!good) throw InvalidArgument(operation, argument, std::to_string(value), expectation);
}

}  // namespace

const char* name(const Schedule& schedule) {
  constexpr std::array names{"constant", "linear", "step", "cosine", "plateau"};
  static_assert(names.size() == std::variant_size_v<Schedule>);
  return names[schedule.index()];
}

double factor(const LearningRate& rate, std::int64_t step, std::int64_t total, const PlateauState& state) {
  const auto behind = static_cast<double>(std::max<std::int64_t>(0, step - rate.warm_up));
  const auto length = static_cast<double>(std::max<std::int64_t>(1, total - rate.warm_up));
  const double done = std::min(1.0, behind / length);
  const double of_schedule = std::visit(
      Overloaded{[](const ConstantSchedule&) { return 1.0; }, [&](const LinearSchedule&) { return 1 - done; },
                 [&](const StepSchedule& s) {
                   const std::int64_t reached =
                       s.every > 0 ? step / s.every
                                   : std::ranges::upper_bound(s.milestones, step) - s.milestones.begin();
                   return std::pow(s.factor, static_cast<double>(reached));
                 },
                 [&](const CosineSchedule& s) {
                   return s.lowest + (1 - s.lowest) * (1 + std::cos(std::numbers::pi * done)) / 2;
                 },
                 [&](const PlateauSchedule&) { return state.factor; }},
      rate.schedule);
  if (step >= rate.warm_up) return of_schedule;
  return of_schedule * static_cast<double>(step + 1) / static_cast<double>(rate.warm_up);
}

void observe(const LearningRate& rate, PlateauState& state, double value) {
  const auto* plateau = std::get_if<PlateauSchedule>(&rate.schedule);
  if (!plateau) return;
  const bool first = std::isinf(state.best);  // infinity × 0 would be NaN
  if (first ? value < state.best : value < state.best * (1 - plateau->threshold)) {
    state.best = value;
    state.bad = 0;
    return;
  }
  if (++state.bad <= plateau->patience) return;
  state.factor = std::max(plateau->lowest, state.factor * plateau->factor);
  state.bad = 0;
}

void check(const LearningRate& rate, const std::string& operation) {
  const auto good = [&](bool fine, const char* argument, double value, const char* expectation) {
    require(operation, fine, argument, value, expectation);
  };
  good(rate.warm_up >= 0, "warm-up", static_cast<double>(rate.warm_up), "at least 0 steps");
  const auto fraction = [&](const char* argument, double value) {
    good(value > 0 && value < 1, argument, value, "a number above 0 and below 1");
  };
  const auto lowest = [&](double value) {
    good(value >= 0 && value <= 1, "lowest factor of the learning rate", value, "a number in [0, 1]");
  };
  std::visit(Overloaded{[](const ConstantSchedule&) {}, [](const LinearSchedule&) {},
                        [&](const StepSchedule& s) {
                          fraction("factor of the learning rate", s.factor);
                          good(s.every >= 0, "steps between milestones", static_cast<double>(s.every), "at least 1");
                          good((s.every > 0) == s.milestones.empty(), "milestones",
                               static_cast<double>(s.milestones.size()),
                               "either milestones or a number of steps between them");
                          for (std::size_t i = 0; i < s.milestones.size(); ++i)
                            good(s.milestones[i] > (i > 0 ? s.milestones[i - 1] : 0), "milestone",
                                 static_cast<double>(s.milestones[i]), "ascending steps above 0");
                        },
                        [&](const CosineSchedule& s) { lowest(s.lowest); },
                        [&](const PlateauSchedule& s) {
                          fraction("factor of the learning rate", s.factor);
                          good(s.patience >= 0, "patience", s.patience, "at least 0 observations");
                          good(s.threshold >= 0 && s.threshold < 1, "threshold", s.threshold, "a number in [0, 1)");
                          lowest(s.lowest);
                        }},
             rate.schedule);
}

bool observe(const EarlyStop& stop, EarlyStopState& state, double value) {
  if (stop.patience == 0) return false;
  if (value < state.best - stop.least_improvement) {
    state.best = value;
    state.bad = 0;
    return false;
  }
  return ++state.bad >= stop.patience;
}

void check(const EarlyStop& stop, const std::string& operation) {
  require(operation, stop.patience >= 0, "patience of the early stop", stop.patience, "at least 0 (0: no early stop)");
  require(operation, std::isfinite(stop.least_improvement) && stop.least_improvement >= 0, "least improvement",
          stop.least_improvement, "a finite number ≥ 0");
}

}  // namespace aloni::nn
