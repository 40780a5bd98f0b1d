#pragma once
// The steps of a training whose nodes are timed.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/trace.hpp>
#include <aloni/nn/step_times.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <vector>

namespace aloni::nn {

class TimedSteps {
 public:
  static constexpr std::int64_t warm_up = 5;  ///< steps that are slower: memory is touched for the first time

  /// `wanted` of the steps begin … total - 1: those after the warm-up, or the last steps of a shorter training.
  TimedSteps(std::int64_t wanted, std::int64_t total, std::int64_t begin = 0)
      : count_(std::min(wanted, total - begin)), first_(begin + std::min(warm_up, total - begin - count_)) {
    if (count_ > 0) times_ = std::make_shared<StepTimes>();
  }

  /// Null if step `step`, counted from 0, is not timed.
  StepTimes* of(std::int64_t step) const { return step >= first_ && step < first_ + count_ ? times_.get() : nullptr; }
  /// After each step. Measures the clock offset right after the last timed step: clocks drift. Collective.
  void after(const comm::Communicator& comm, std::int64_t step) const {
    if (times_ && step == first_ + count_ - 1) times_->set_clock_offset(comm::clock_offset(comm));
  }
  const std::shared_ptr<StepTimes>& times() const { return times_; }

  /// Of the seconds of consecutive steps, without the warm-up, which is at most half of them. @pre not empty
  static double median_after_warm_up(std::vector<double> seconds) {
    const auto first = seconds.begin() + std::min<std::ptrdiff_t>(warm_up, std::ssize(seconds) / 2);
    const auto middle = first + (seconds.end() - first) / 2;
    std::nth_element(first, middle, seconds.end());
    return *middle;
  }

 private:
  std::int64_t count_, first_;
  std::shared_ptr<StepTimes> times_;
};

}  // namespace aloni::nn
