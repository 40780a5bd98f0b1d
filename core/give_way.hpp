#pragma once
// A pause of a thread that polls for an event of another thread or rank.
//
// std::this_thread::yield() is right while no other thread wants the core: it returns at once. On a core that others
// use too it is wrong in two ways. Linux (EEVDF, from 6.6 on) charges a whole time slice to a thread that yields. So a
// rank that yields beside a computing thread runs again milliseconds later, and each message to it costs as much. And
// ranks that only yield switch contexts a hundred thousand times per second. A thread that sleeps keeps its claim, and
// runs soon after it wakes.
//
// So a yield that took long is followed by sleeps: by one, and by twice as many after each further long yield in turn.
//
// A long wait sleeps in any case, for a small part of its time so far. It ends late by that part at most. Its core is
// free for other ranks and other programs meanwhile.
#include <algorithm>
#include <chrono>
#include <thread>

namespace aloni {

/// Which pauses are sleeps.
class PauseRule {
 public:
  /// Whether the next pause is a sleep. Otherwise it is a yield, and the caller tells how long it took.
  bool sleeps() {
    if (sleeps_left_ == 0) return false;
    --sleeps_left_;
    return true;
  }

  void yielded(std::chrono::nanoseconds time) {
    row_ = time > long_yield ? std::clamp(2 * row_, 1, longest_row) : 0;
    sleeps_left_ = row_;
  }

  /// Far more than a yield without other threads takes, and far less than their time slice.
  static constexpr std::chrono::microseconds long_yield{20};
  /// About 20 ms, the time of some time slices.
  static constexpr int longest_row = 256;

 private:
  int row_ = 0, sleeps_left_ = 0;
};

/// Yields the core, or sleeps for some tens of microseconds where others use it.
inline void give_way() {
  using Clock = std::chrono::steady_clock;
  thread_local PauseRule rule;
  if (rule.sleeps()) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));  // and the timer's slack, 50 µs
    return;
  }
  const Clock::time_point start = Clock::now();
  std::this_thread::yield();
  rule.yielded(Clock::now() - start);
}

/// The pauses of one wait.
class WaitPauses {
 public:
  using Clock = std::chrono::steady_clock;

  /// The time of a sleep of a wait that has lasted `waited`; 0: not yet.
  static std::chrono::nanoseconds sleep_after(std::chrono::nanoseconds waited) {
    if (waited < short_wait) return {};
    return std::min<std::chrono::nanoseconds>(waited / part_of_wait, longest_sleep);
  }

  /// There was progress: a new wait begins with the next pause.
  void restart() { start_ = {}; }

  /// A pause between two looks. Returns whether it slept because the wait is long: then look at everything.
  bool pause() {
    const Clock::time_point now = Clock::now();
    if (start_ == Clock::time_point{}) start_ = now;
    const auto sleep = sleep_after(now - start_);
    if (sleep.count() == 0) {
      give_way();
      return false;
    }
    std::this_thread::sleep_for(sleep);
    return true;
  }

  static constexpr std::chrono::milliseconds short_wait{20};
  static constexpr int part_of_wait = 512;
  static constexpr std::chrono::milliseconds longest_sleep{1};

 private:
  Clock::time_point start_;
};

}  // namespace aloni
