#include <aloni/core/give_way.hpp>

#include <gtest/gtest.h>

namespace aloni {
namespace test_give_way {

constexpr auto short_yield = PauseRule::long_yield, long_yield = 2 * PauseRule::long_yield;

int sleeps_after(PauseRule& rule, std::chrono::nanoseconds yield) {
  rule.yielded(yield);
  int sleeps = 0;
  while (rule.sleeps()) ++sleeps;
  return sleeps;
}

TEST(PauseRules, OnlyYieldWhileNoOtherThreadUsesTheCore) {
  PauseRule rule;
  EXPECT_FALSE(rule.sleeps());
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(sleeps_after(rule, short_yield), 0);
}

TEST(PauseRules, DoubleTheSleepsAfterEachFurtherLongYield) {
  PauseRule rule;
  for (int sleeps = 1; sleeps <= PauseRule::longest_row; sleeps *= 2) EXPECT_EQ(sleeps_after(rule, long_yield), sleeps);
  EXPECT_EQ(sleeps_after(rule, long_yield), PauseRule::longest_row);
}

TEST(PauseRules, BeginAnewAfterAShortYield) {
  PauseRule rule;
  for (int i = 0; i < 5; ++i) (void)sleeps_after(rule, long_yield);
  EXPECT_EQ(sleeps_after(rule, short_yield), 0);
  EXPECT_EQ(sleeps_after(rule, long_yield), 1);
}

}  // namespace test_give_way
}  // namespace aloni
