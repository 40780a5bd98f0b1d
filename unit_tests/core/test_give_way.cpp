#include <aloni/core/give_way.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

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

using namespace std::chrono_literals;

TEST(WaitPauses, SleepOnlyInLongWaits) {
  EXPECT_EQ(WaitPauses::sleep_after(0ns), 0ns);
  EXPECT_EQ(WaitPauses::sleep_after(WaitPauses::short_wait - 1ns), 0ns);
  EXPECT_GT(WaitPauses::sleep_after(WaitPauses::short_wait), 0ns);
}

TEST(WaitPauses, SleepForASmallPartOfTheWait) {
  for (const std::chrono::nanoseconds waited : {20'000'000ns, 100'000'000ns, 500'000'000ns})
    EXPECT_EQ(WaitPauses::sleep_after(waited), waited / WaitPauses::part_of_wait);
  EXPECT_EQ(WaitPauses::sleep_after(10s), WaitPauses::longest_sleep);
}

TEST(WaitPauses, TellWhetherTheySlept) {
  WaitPauses pauses;
  EXPECT_FALSE(pauses.pause());
  std::this_thread::sleep_for(WaitPauses::short_wait);
  EXPECT_TRUE(pauses.pause());
  pauses.restart();
  EXPECT_FALSE(pauses.pause());
}

}  // namespace test_give_way
}  // namespace aloni
