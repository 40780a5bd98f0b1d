#pragma once
// How fast the present core runs now, by a fixed loop of arithmetic. A core is slower while a neighbour uses the other
// hardware thread of it, or while its clock is low. On a shared host this lasts for seconds, and the times of kernels
// then grow to 1.6 times. Medians do not help against seconds; leaving out the runs in these periods does.
//
//   CoreSpeed speed;
//   const bool before = speed.is_full();
//   run();
//   if (before && speed.is_full()) keep(time);
#include <algorithm>
#include <cstdint>
#include <limits>

namespace aloni {

/// Seconds of a loop of independent multiplications and additions, about 3 µs. They fill the arithmetic units of a
/// core, so the loop notices another thread on the same units.
double seconds_of_arithmetic();

/// How often the system has given the core of this thread to another one so far; 0 where that is not known.
std::int64_t preemptions();

class CoreSpeed {
 public:
  /// Whether the loop now takes at most `tolerance` times the least time that this object has seen.
  bool is_full(double tolerance = 1.15) {
    double now = seconds_of_arithmetic();
    best_ = std::min(best_, now);
    // An interrupt makes one loop slow, but hardly two.
    if (now > tolerance * best_) now = std::min(now, seconds_of_arithmetic());
    return now <= tolerance * best_;
  }

 private:
  double best_ = std::numeric_limits<double>::infinity();
};

}  // namespace aloni
