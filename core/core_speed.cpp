#include <aloni/core/core_speed.hpp>

#include <chrono>

#if defined(__linux__)
#include <sys/resource.h>
#endif

namespace aloni {

double seconds_of_arithmetic() {
  constexpr int lanes = 96;  // twelve vectors of eight: as many as hide the latency of two units
  constexpr int steps = 1500;
  float sums[lanes];
  for (int i = 0; i < lanes; ++i) sums[i] = static_cast<float>(i);
  const auto start = std::chrono::steady_clock::now();
  for (int k = 0; k < steps; ++k)
    for (int i = 0; i < lanes; ++i) sums[i] = sums[i] * 0.999f + 0.001f;
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  volatile float result = 0;
  for (int i = 0; i < lanes; ++i) result = result + sums[i];
  return time.count();
}

std::int64_t preemptions() {
#if defined(__linux__)
  rusage usage{};
  if (getrusage(RUSAGE_THREAD, &usage) == 0) return usage.ru_nivcsw;
#endif
  return 0;
}

}  // namespace aloni
