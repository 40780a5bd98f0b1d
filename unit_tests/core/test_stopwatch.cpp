#include <aloni/core/stopwatch.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace test_stopwatch {

using aloni::Stopwatch;
using Phase = Stopwatch::Phase;
using namespace std::chrono_literals;

TEST(Stopwatch, CountsOnlyInsideAScope) {
  Stopwatch stopwatch;
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(stopwatch.seconds(Phase::compute), 0.0);
  {
    auto scope = stopwatch.measure(Phase::compute);
    std::this_thread::sleep_for(5ms);
  }
  const double counted = stopwatch.seconds(Phase::compute);
  EXPECT_GE(counted, 0.005);
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(stopwatch.seconds(Phase::compute), counted);
  EXPECT_EQ(stopwatch.seconds(Phase::halo), 0.0);
}

TEST(Stopwatch, AnInnerPhasePausesTheOuterOne) {
  Stopwatch stopwatch;
  const auto start = std::chrono::steady_clock::now();
  {
    auto outer = stopwatch.measure(Phase::compute);
    std::this_thread::sleep_for(2ms);
    {
      auto inner = stopwatch.measure(Phase::collective);
      std::this_thread::sleep_for(20ms);
    }
    std::this_thread::sleep_for(2ms);
  }
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  EXPECT_GE(stopwatch.seconds(Phase::collective), 0.020);
  EXPECT_GE(stopwatch.seconds(Phase::compute), 0.004);
  EXPECT_LE(stopwatch.seconds(Phase::compute) + stopwatch.seconds(Phase::collective), passed.count());
}

TEST(Stopwatch, ResetInsideAScopeForgetsWhatWasBefore) {
  Stopwatch stopwatch;
  {
    auto scope = stopwatch.measure(Phase::input);
    std::this_thread::sleep_for(50ms);
    stopwatch.reset();
  }
  EXPECT_LT(stopwatch.seconds(Phase::input), 0.050);
}

}  // namespace test_stopwatch
