#include <aloni/core/error.hpp>
#include <aloni/nn/optimiser.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace aloni::nn {
namespace test_optimiser {

/// The error of check(); empty if there is none.
std::string fault(const Optimiser& optimiser, std::int64_t step = 1) {
  try {
    check(optimiser, step, "test");
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "";
}

TEST(Optimiser, HasAKindWithNamedStates) {
  EXPECT_EQ(kind_of(SgdOptions{}), OptimiserKind::sgd);
  EXPECT_EQ(kind_of(AdamOptions{}), OptimiserKind::adam);
  EXPECT_EQ(kind_of(LarsOptions{}), OptimiserKind::lars);
  EXPECT_STREQ(name(OptimiserKind::adam), "adam");
  EXPECT_STREQ(name(OptimiserKind::lars), "lars");
  EXPECT_THAT(properties_of(OptimiserKind::lars).states, testing::ElementsAre("momentum"));
  EXPECT_THAT(properties_of(OptimiserKind::sgd).states, testing::ElementsAre("momentum"));
  EXPECT_THAT(properties_of(OptimiserKind::adam).states, testing::ElementsAre("first_moment", "second_moment"));
}

TEST(Optimiser, NamesTheMemberOutOfRange) {
  using testing::HasSubstr;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(fault(SgdOptions{}), "");
  EXPECT_EQ(fault(AdamOptions{}), "");
  EXPECT_THAT(fault(SgdOptions{.learning_rate = nan}), HasSubstr("learning rate"));
  EXPECT_THAT(fault(SgdOptions{.momentum = 1}), HasSubstr("momentum"));
  EXPECT_THAT(fault(SgdOptions{.momentum = 0, .nesterov = true}), HasSubstr("above 0 with nesterov"));
  EXPECT_THAT(fault(SgdOptions{.weight_decay = -1}), HasSubstr("weight decay"));
  EXPECT_THAT(fault(AdamOptions{.learning_rate = 1 / 0.0}), HasSubstr("learning rate"));
  EXPECT_THAT(fault(AdamOptions{.beta1 = 1}), HasSubstr("beta1"));
  EXPECT_THAT(fault(AdamOptions{.beta2 = -0.1}), HasSubstr("beta2"));
  EXPECT_THAT(fault(AdamOptions{.epsilon = 0}), HasSubstr("epsilon"));
  EXPECT_THAT(fault(AdamOptions{.weight_decay = nan}), HasSubstr("weight decay"));
  EXPECT_THAT(fault(AdamOptions{}, 0), HasSubstr("step"));
  EXPECT_EQ(fault(LarsOptions{}), "");
  EXPECT_THAT(fault(LarsOptions{.momentum = 1}), HasSubstr("momentum"));
  EXPECT_THAT(fault(LarsOptions{.trust = 0}), HasSubstr("trust"));
  EXPECT_THAT(fault(LarsOptions{.epsilon = -1}), HasSubstr("epsilon"));
}

TEST(Optimiser, NeedsNormsForLarsAndForClipping) {
  EXPECT_FALSE(uses_norms(OptimiserKind::sgd, {}));
  EXPECT_TRUE(uses_norms(OptimiserKind::adam, {.max_norm = 1}));
  EXPECT_TRUE(uses_norms(OptimiserKind::sgd, {.loss_scaling = LossScaling{}}));
  EXPECT_TRUE(uses_norms(OptimiserKind::lars, {}));
}

TEST(LossScaling, GrowsAfterAnIntervalOfUpdatesAndFallsAtOnce) {
  const LossScaling rule{.initial = 8, .growth = 4, .backoff = 0.5, .interval = 3};
  LossScale scale{.value = rule.initial};
  const auto values = [&](const std::vector<bool>& finite) {
    std::vector<double> all;
    for (const bool f : finite) {
      observe(rule, scale, f);
      all.push_back(scale.value);
    }
    return all;
  };
  EXPECT_THAT(values({true, true, true, true}), testing::ElementsAre(8, 8, 32, 32));
  EXPECT_THAT(values({false, false}), testing::ElementsAre(16, 8));
  EXPECT_EQ(scale.skipped, 2);
  EXPECT_THAT(values({true, true, false, true, true, true}), testing::ElementsAre(8, 8, 4, 4, 4, 16));
  EXPECT_EQ(scale.skipped, 0);
  EXPECT_EQ(scale.skipped_in_all, 3);
}

TEST(LossScaling, StaysInTheRangeOfFloat) {
  const LossScaling rule{.initial = 0x1p126, .interval = 1};
  LossScale scale{.value = rule.initial};
  for (int i = 0; i < 3; ++i) observe(rule, scale, true);
  EXPECT_EQ(scale.value, 0x1p127);
}

TEST(LossScaling, NamesTheMemberOutOfRange) {
  const auto fault_of = [](const LossScaling& scaling) -> std::string {
    try {
      check(UpdateOptions{.loss_scaling = scaling}, "test");
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "";
  };
  using testing::HasSubstr;
  EXPECT_EQ(fault_of({}), "");
  for (const double initial : {0.0, -1.0, 0x1p128, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THAT(fault_of({.initial = initial}), HasSubstr("initial loss scale"));
  EXPECT_THAT(fault_of({.growth = 0.5}), HasSubstr("growth"));
  EXPECT_THAT(fault_of({.growth = std::numeric_limits<double>::infinity()}), HasSubstr("growth"));
  for (const double backoff : {0.0, 1.5}) EXPECT_THAT(fault_of({.backoff = backoff}), HasSubstr("backoff"));
  EXPECT_THAT(fault_of({.interval = 0}), HasSubstr("interval"));
}

}  // namespace test_optimiser
}  // namespace aloni::nn
