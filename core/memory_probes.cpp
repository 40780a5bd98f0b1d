#include <aloni/core/memory_probes.hpp>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace aloni {

namespace {

using Clock = std::chrono::steady_clock;

void scale(const float* x, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] = 0.5f * x[i] + 1.0f;
}

}  // namespace

std::size_t cache_bytes(int level) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    int found = 0;
    std::string type, size;
    std::ifstream(folder + "level") >> found;
    std::ifstream(folder + "type") >> type;
    std::ifstream(folder + "size") >> size;  // "512K"
    if (found != level || type == "Instruction" || size.empty()) continue;
    const std::size_t unit = size.back() == 'K' ? 1024 : size.back() == 'M' ? 1024 * 1024 : 1;
    std::size_t number = 0;
    for (const char c : size)
      if (c >= '0' && c <= '9') number = 10 * number + static_cast<std::size_t>(c - '0');
    return number * unit;
  }
  return 0;
}

double copy_bandwidth(std::size_t bytes, int threads, double seconds) {
  const std::size_t n = bytes / 2 / sizeof(float);
  // One measurement takes 20 µs or more, so that the clock and the barriers do not count.
  const std::size_t passes = std::max<std::size_t>(1, std::size_t{1 << 20} / bytes);
  std::barrier together(threads);
  std::vector<double> best(static_cast<std::size_t>(threads), std::numeric_limits<double>::infinity());
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  const auto work = [&](std::size_t thread) {
    std::vector<float> x(n, 1.0f), y(n, 1.0f);
    bool more = true;
    for (int i = 0; i < 3 || more; ++i) {
      together.arrive_and_wait();
      const auto start = Clock::now();
      for (std::size_t k = 0; k < passes; ++k)
        scale(k % 2 == 0 ? x.data() : y.data(), k % 2 == 0 ? y.data() : x.data(), n);
      const std::chrono::duration<double> time = Clock::now() - start;
      if (i > 0) best[thread] = std::min(best[thread], time.count());
      more = Clock::now() < end;
    }
    together.arrive_and_drop();
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(work, static_cast<std::size_t>(t));
  work(0);
  for (std::thread& t : others) t.join();
  double sum = 0;
  for (const double time : best) sum += static_cast<double>(2 * n * sizeof(float) * passes) / time;
  return sum;
}

}  // namespace aloni
