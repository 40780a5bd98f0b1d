#include <aloni/core/comm/calibration.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <chrono>
#include <span>
#include <vector>

namespace aloni::comm {

namespace {

/// Seconds for a message: every rank sends to the next rank and receives from the previous rank.
double seconds_of_shift(const Communicator& comm, std::size_t bytes, double seconds) {
  const std::vector<std::byte> from(bytes);
  std::vector<std::byte> to(bytes);
  const int p = comm.size(), r = comm.rank();
  return seconds_per_call(comm, seconds, [&] {
    Request requests[] = {comm.receive(to, (r + p - 1) % p, 0), comm.send(from, (r + 1) % p, 0)};
    comm.wait(requests);
  });
}

constexpr std::size_t part_sizes[] = {0, 128 << 10, 512 << 10, 2 << 20, 8 << 20};  // 0: the library's default
constexpr double clearly_better = 0.9;

}  // namespace

double seconds_per_call(const Communicator& comm, double seconds, const std::function<void()>& f) {
  const auto batch = [&](int repetitions) {
    comm.barrier();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repetitions; ++i) f();
    const std::chrono::duration<double> own = std::chrono::steady_clock::now() - start;
    return comm.all_reduce(own.count(), Reduction::max) / repetitions;
  };
  constexpr int batches = 3;
  const double once = std::max(batch(1), 1e-9);
  const int repetitions = static_cast<int>(std::clamp(seconds / batches / once, 1.0, 1e5));
  double best = batch(repetitions);
  for (int i = 1; i < batches; ++i) best = std::min(best, batch(repetitions));
  return best;
}

Tuning calibrate(const Communicator& comm, const CalibrationOptions& options) {
  if (options.smallest_bytes < sizeof(float) || options.largest_bytes < options.smallest_bytes ||
      !(options.seconds_per_case > 0)) {
    throw InvalidArgument("aloni::comm::calibrate", "options",
                          std::to_string(options.smallest_bytes) + " to " + std::to_string(options.largest_bytes) +
                              " bytes, " + std::to_string(options.seconds_per_case) + " s",
                          "smallest_bytes of at least 4, largest_bytes not below it, seconds_per_case above 0");
  }
  using A = AllReduceAlgorithm;
  Tuning t{.ranks = comm.size()};
  t.nodes = static_cast<int>(comm.all_reduce(std::int64_t{comm.node().rank() == 0 ? 1 : 0}, Reduction::sum));
  const double seconds = options.seconds_per_case;
  constexpr std::size_t large = std::size_t{1} << 20;
  if (comm.size() > 1) {
    t.latency = seconds_of_shift(comm, 8, seconds);
    t.seconds_per_byte = std::max(0.0, seconds_of_shift(comm, large, seconds) - t.latency) / large;
  }
  const ElementOperation sum = element_operation<float>(Reduction::sum);
  std::vector<float> a(large / sizeof(float)), b(a.size());
  t.combine_seconds_per_byte =
      seconds_per_call(comm, seconds, [&] { sum.combine(nullptr, a.data(), a.data(), b.data(), a.size()); }) / large;

  for (std::size_t bytes = options.smallest_bytes; bytes <= options.largest_bytes; bytes *= 4) {
    std::vector<float> values(bytes / sizeof(float));
    for (const A algorithm : all_reduce_algorithms) {
      try {
        Measurement best{algorithm, bytes};
        for (const std::size_t part : part_sizes) {
          if (part >= bytes) break;  // the same as a single part
          const CollectiveOptions how{.algorithm = algorithm,
                                      .part_elements = static_cast<Index>(part / sizeof(float))};
          const double time =
              seconds_per_call(comm, seconds, [&] { comm.all_reduce(std::span(values), Reduction::sum, how); });
          // Keep the default part size unless another is clearly better: small differences are mostly noise.
          if (part == 0 || time < clearly_better * best.seconds) best = {algorithm, bytes, time, part};
        }
        t.measurements.push_back(best);
      } catch (const Unsupported&) {
        // These ranks cannot use the algorithm; all ranks throw.
      }
    }
  }
  return t;
}

}  // namespace aloni::comm
