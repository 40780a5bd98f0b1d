// Schedules of the learning rate against tables that follow from the formulas by hand.
#include <aloni/core/error.hpp>
#include <aloni/nn/learning_rate.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace aloni::nn {
namespace test_learning_rate {

/// The factors of the steps 0 to steps - 1.
std::vector<double> factors(const LearningRate& rate, std::int64_t steps) {
  std::vector<double> all;
  for (std::int64_t step = 0; step < steps; ++step) all.push_back(factor(rate, step, steps));
  return all;
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12) << "step " << i;
}

TEST(LearningRate, IsConstantOrFallsLinearly) {
  expect_near(factors({}, 3), {1, 1, 1});
  expect_near(factors({.schedule = LinearSchedule{}}, 4), {1, 0.75, 0.5, 0.25});
}

TEST(LearningRate, FallsAtMilestones) {
  expect_near(factors({.schedule = StepSchedule{.every = 2, .factor = 0.5}}, 7), {1, 1, 0.5, 0.5, 0.25, 0.25, 0.125});
  expect_near(factors({.schedule = StepSchedule{.milestones = {1, 4}, .factor = 0.1}}, 6),
              {1, 0.1, 0.1, 0.1, 0.01, 0.01});
}

/// (1 + cos(pi t)) / 2 at t = 0, 1/6, 1/3, 1/2, 2/3, 5/6.
TEST(LearningRate, FallsAsACosineToItsFloor) {
  const double root = std::sqrt(3.0) / 2;
  const std::vector<double> cosine{1, (1 + root) / 2, 0.75, 0.5, 0.25, (1 - root) / 2};
  expect_near(factors({.schedule = CosineSchedule{}}, 6), cosine);
  std::vector<double> above;
  for (const double c : cosine) above.push_back(0.1 + 0.9 * c);
  expect_near(factors({.schedule = CosineSchedule{.lowest = 0.1}}, 6), above);
}

TEST(LearningRate, WarmsUpBeforeTheSchedule) {
  expect_near(factors({.warm_up = 4}, 6), {0.25, 0.5, 0.75, 1, 1, 1});
  // The schedule has four steps behind the warm-up.
  expect_near(factors({.schedule = LinearSchedule{}, .warm_up = 2}, 6), {0.5, 1, 1, 0.75, 0.5, 0.25});
  expect_near(factors({.schedule = CosineSchedule{}, .warm_up = 2}, 5), {0.5, 1, 1, 0.75, 0.25});
  expect_near(factors({.schedule = StepSchedule{.every = 3, .factor = 0.5}, .warm_up = 2}, 7),
              {0.5, 1, 1, 0.5, 0.5, 0.5, 0.25});
  expect_near(factors({.schedule = CosineSchedule{}, .warm_up = 9}, 2), {1.0 / 9, 2.0 / 9});  // longer than all steps
}

/// torch.optim.lr_scheduler.ReduceLROnPlateau(factor=0.5, patience=2, threshold=0.1, min_lr=0.2 of the first rate).
TEST(LearningRate, FallsOnAPlateauAfterThePatience) {
  const LearningRate rate{.schedule = PlateauSchedule{.factor = 0.5, .patience = 2, .threshold = 0.1, .lowest = 0.2}};
  PlateauState state;
  const std::vector<double> losses{10, 8, 7.5, 7.3, 7.25, 7.21, 7.1, 7.1, 7.1, 7.1, 7.1, 7.1, 7.1},
      expected{1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.2};
  for (std::size_t i = 0; i < losses.size(); ++i) {
    observe(rate, state, losses[i]);
    EXPECT_DOUBLE_EQ(factor(rate, 0, 100, state), expected[i]) << "value " << i;
  }
}

TEST(LearningRate, TakesNaNForNoImprovement) {
  const LearningRate rate{.schedule = PlateauSchedule{.factor = 0.5, .patience = 0}};
  PlateauState state;
  observe(rate, state, 1.0);
  observe(rate, state, std::nan(""));
  EXPECT_EQ(state.factor, 0.5);
  EXPECT_EQ(state.best, 1.0);
}

TEST(LearningRate, OtherSchedulesObserveNothing) {
  PlateauState state;
  observe({.schedule = CosineSchedule{}}, state, 1.0);
  EXPECT_EQ(state, PlateauState{});
}

TEST(EarlyStop, EndsATrainingThatDoesNotImprove) {
  const EarlyStop stop{.patience = 2, .least_improvement = 0.5};
  EarlyStopState state;
  std::vector<bool> ends;
  for (const double value : {5.0, 4.0, 3.6, 3.4, 3.0, 2.95}) ends.push_back(observe(stop, state, value));
  EXPECT_THAT(ends, testing::ElementsAre(false, false, false, false, false, true));
  EXPECT_EQ(state.best, 3.4);
  EarlyStopState never;
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(observe(EarlyStop{}, never, 1.0));
}

/// The error of check(); empty if there is none.
template <class Value>
std::string fault(const Value& value) {
  try {
    check(value, "test");
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "";
}

TEST(LearningRate, NamesTheMemberOutOfRange) {
  using testing::HasSubstr;
  EXPECT_EQ(fault(LearningRate{}), "");
  EXPECT_EQ(fault(LearningRate{.schedule = StepSchedule{.every = 1}}), "");
  EXPECT_EQ(fault(LearningRate{.schedule = PlateauSchedule{}}), "");
  EXPECT_THAT(fault(LearningRate{.warm_up = -1}), HasSubstr("warm-up"));
  EXPECT_THAT(fault(LearningRate{.schedule = StepSchedule{}}), HasSubstr("milestones"));
  EXPECT_THAT(fault(LearningRate{.schedule = StepSchedule{.every = 2, .milestones = {3}}}), HasSubstr("milestones"));
  EXPECT_THAT(fault(LearningRate{.schedule = StepSchedule{.milestones = {3, 3}}}), HasSubstr("ascending"));
  EXPECT_THAT(fault(LearningRate{.schedule = StepSchedule{.every = 2, .factor = 1}}), HasSubstr("factor"));
  EXPECT_THAT(fault(LearningRate{.schedule = CosineSchedule{.lowest = 2}}), HasSubstr("lowest"));
  EXPECT_THAT(fault(LearningRate{.schedule = PlateauSchedule{.patience = -1}}), HasSubstr("patience"));
  EXPECT_THAT(fault(LearningRate{.schedule = PlateauSchedule{.threshold = 1}}), HasSubstr("threshold"));
  EXPECT_THAT(fault(EarlyStop{.patience = -1}), HasSubstr("patience"));
  EXPECT_THAT(fault(EarlyStop{.least_improvement = std::nan("")}), HasSubstr("least improvement"));
}

}  // namespace test_learning_rate
}  // namespace aloni::nn
