#include "support/benchmark.hpp"

#include <aloni/core/comm/mpi.hpp>

#include <benchmark/benchmark.h>

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace aloni::bench {

namespace {

double min_seconds_of_command_line = 0;
bool oversubscribed_too = false;

struct Repetitions {
  int per_batch = 1, batches = 1;
};

// Identifies the running kernel, equal on all ranks of a machine even with several host names; 0 if unknown.
std::int64_t machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  return file >> id ? static_cast<std::int64_t>(std::hash<std::string>()(id) | 1) : 0;
}

/// Seconds of f() on rank 0. The other ranks sleep meanwhile: in a barrier they would spin and take cores from rank 0.
double seconds_of_first(const comm::Communicator& world, const std::function<void()>& f) {
  world.barrier();
  std::chrono::duration<double> own{0};
  if (world.rank() == 0) {
    const auto start = std::chrono::steady_clock::now();
    f();
    own = std::chrono::steady_clock::now() - start;
  }
  MPI_Request done = MPI_REQUEST_NULL;
  comm::check_mpi(MPI_Ibarrier(MPI_COMM_WORLD, &done), "MPI_Ibarrier");
  for (int complete = 0;;) {
    comm::check_mpi(MPI_Test(&done, &complete, MPI_STATUS_IGNORE), "MPI_Test");
    if (complete != 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return static_cast<double>(world.all_reduce(static_cast<std::int64_t>(own.count() * 1e9), comm::Reduction::max)) *
         1e-9;
}

double seconds_of_batch(const comm::Communicator& world, const Case& c, int repetitions) {
  if (c.before) c.before();
  const auto all = [&] {
    for (int i = 0; i < repetitions; ++i) c.run();
  };
  return c.on_first_rank ? seconds_of_first(world, all) : seconds_of_slowest(world, all);
}

Repetitions calibrate(const comm::Communicator& world, const Case& c, const TimedOptions& options) {
  const double wish = min_seconds_of_command_line > 0 ? min_seconds_of_command_line : options.min_seconds;
  seconds_of_batch(world, c, 1);  // warms up
  int repetitions = 1;
  double seconds = seconds_of_batch(world, c, repetitions);
  while (!c.before && seconds < std::min(1e-3, wish / options.batches) && repetitions < options.max_repetitions) {
    repetitions *= 2;
    seconds = seconds_of_batch(world, c, repetitions);
  }
  const double each = std::max(seconds / repetitions, 1e-9);  // equal on all ranks, and so are the counts below
  const double least = min_seconds_of_command_line > 0 ? 1 : options.min_repetitions;
  const auto total =
      static_cast<int>(std::clamp(std::ceil(wish / each), least, static_cast<double>(options.max_repetitions)));
  if (c.before) return {1, total};
  return {std::max(1, total / options.batches), std::min(options.batches, total)};
}

}  // namespace

namespace detail {

void set_min_seconds(double seconds) { min_seconds_of_command_line = seconds; }
void set_time_oversubscribed() { oversubscribed_too = true; }

}  // namespace detail

Case memcpy_case(const comm::Communicator& world, double bytes) {
  const auto from = std::make_shared<std::vector<char>>(static_cast<std::size_t>(bytes), char(1));
  const auto to = std::make_shared<std::vector<char>>(from->size());
  return {.run =
              [from, to] {
                std::memcpy(to->data(), from->data(), from->size());
                asm volatile("" : : "r"(to->data()) : "memory");  // the copy must happen
              },
          .bytes = world.all_reduce(bytes, comm::Reduction::sum)};
}

double seconds_of_slowest(const comm::Communicator& world, const std::function<void()>& f) {
  world.barrier();
  const auto start = std::chrono::steady_clock::now();
  f();
  const std::chrono::duration<double> own = std::chrono::steady_clock::now() - start;
  return static_cast<double>(world.all_reduce(static_cast<std::int64_t>(own.count() * 1e9), comm::Reduction::max)) *
         1e-9;
}

bool enough_cores(const comm::Communicator& world) {
  static std::optional<bool> enough;
  if (!enough) {
    const auto cores = static_cast<std::int64_t>(std::thread::hardware_concurrency());
    const auto machines = world.all_gather(machine());
    const auto here = machine() != 0 ? std::ranges::count(machines, machine()) : world.node().size();
    enough = world.all_reduce(std::int64_t{here <= cores ? 1 : 0}, comm::Reduction::min) == 1;
  }
  return *enough;
}

void add_timed(const comm::Communicator& world, const std::string& name, std::function<Case()> make,
               TimedOptions options) {
  const auto calibrated = std::make_shared<std::optional<Repetitions>>();  // --benchmark_repetitions runs a case again
  auto run = [&world, make = std::move(make), options, calibrated](benchmark::State& state) {
    const bool enough = enough_cores(world), timed = enough || oversubscribed_too;
    const Case c = make();
    if (!*calibrated) *calibrated = timed ? calibrate(world, c, options) : Repetitions{};
    const auto [per_batch, batches] = **calibrated;
    seconds_of_batch(world, c, 1);
    double total = 0, best = std::numeric_limits<double>::max();
    const int repeated = per_batch * batches;
    for ([[maybe_unused]] auto _ : state) {  // once
      for (int i = 0; i < batches; ++i) {
        const double seconds = seconds_of_batch(world, c, per_batch);
        best = std::min(best, seconds / per_batch);
        total += seconds;
      }
      state.SetIterationTime(timed ? total / repeated : 0);
    }
    for (const auto& [key, value] : c.counters) state.counters[key] = value;
    if (c.bytes > 0) state.counters["bytes"] = c.bytes;
    if (!timed) {  // a rate per time of zero would be no number
      state.SetLabel("not timed: more ranks than cores");
      return;
    }
    if (!enough) {
      state.SetLabel("more ranks than cores");
    } else if (!c.label.empty()) {
      state.SetLabel(c.label);
    }
    state.counters["best_us"] = best * 1e6;
    state.counters["repetitions"] = repeated;
    if (c.bytes > 0)
      state.counters["bytes_per_second"] =
          benchmark::Counter(c.bytes, benchmark::Counter::kIsRate, benchmark::Counter::kIs1024);
    if (c.flops > 0) state.counters["flops"] = benchmark::Counter(c.flops, benchmark::Counter::kIsRate);
    if (c.items > 0) state.counters["items_per_second"] = benchmark::Counter(c.items, benchmark::Counter::kIsRate);
  };
  // One iteration for Google Benchmark: it needs the count at registration, before the case is calibrated.
  benchmark::RegisterBenchmark(name.c_str(), std::move(run))
      ->Iterations(1)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace aloni::bench
