#pragma once
// Shared by all benchmark programs: a main that runs under mpirun, and timed cases, whose time is that of the slowest
// rank.
//
//   void aloni::bench::register_benchmarks(const comm::Communicator& world) {
//     add_timed(world, "exchange/lenet-conv2/forward/h2", [&world]() -> Case {
//       auto state = std::make_shared<State>(world);          // allocates; collective
//       state->check();                                       // correctness before the clock starts; throws
//       return {.run = [state] { state->exchange(); state->queue.fence("aloni::bench: end of repetition"); },
//               .bytes = state->bytes};
//     });
//   }
//
// Registration is cheap: a case is set up when it runs. Cases that --benchmark_filter excludes are never set up, and
// --benchmark_list_tests sets up none. All ranks run the cases in the order of registration.
//
// All ranks repeat a case equally often: a collective calibration fixes the count before the case is timed. If each
// rank adapted its own count, ranks would wait for each other forever. --benchmark_min_time replaces the time of all
// cases.
//
// Rank 0 reports, the others are silent. With more ranks than cores a case is set up, checked and run once, and
// reported without a time. --time_oversubscribed reports the time anyway: for runs whose bottleneck is not the cores,
// as with the shaped link of two_hosts.sh.
//
// The time reported is the mean per repetition, in microseconds; the counter repetitions has their number. The counter
// best_us is the mean of the fastest batch, which a busy machine disturbs least.
#include <aloni/core/comm/communicator.hpp>

#include <functional>
#include <map>
#include <string>

namespace aloni::bench {

/// One prepared case.
struct Case {
  std::function<void()> run;                    ///< one repetition; ends with a fence of its queue
  double bytes = 0;                             ///< per repetition, all ranks together; also as bytes_per_second
  double flops = 0;                             ///< per repetition, all ranks together; reported per second
  double items = 0;                             ///< per repetition, all ranks together; reported as items_per_second
  std::map<std::string, double> counters = {};  ///< further counters, reported unchanged
  std::string label = {};                       ///< text that rank 0 reports beside the figures
  /// Only rank 0 runs the case, on all cores; the other ranks sleep until it ends. The time is that of rank 0.
  bool on_first_rank = false;
  std::function<void()> before = {};  ///< untimed work before every repetition; each repetition is timed alone then
};

struct TimedOptions {
  double min_seconds = 0.3;  ///< of all batches together
  int min_repetitions = 1;   ///< ignored if --benchmark_min_time is given
  int max_repetitions = 1000000;
  int batches = 10;
};

/// Registers a case; all ranks register the same cases in the same order. `make` sets the case up: all ranks call it
/// when the case runs, once per run. An exception from `make` ends the program. Batches of repetitions are timed from a
/// common barrier to the end of the slowest rank. `world` must outlive the benchmarks.
void add_timed(const comm::Communicator& world, const std::string& name, std::function<Case()> make,
               TimedOptions options = {});

/// A case to compare exchanges with: every rank copies `bytes` of its own memory, all ranks at once. Collective.
Case memcpy_case(const comm::Communicator& world, double bytes);

/// Seconds that f() takes on the slowest rank, from a common barrier on. Collective.
double seconds_of_slowest(const comm::Communicator& world, const std::function<void()>& f);

/// Whether every machine has at least one core per rank: only then times mean something. The first call is collective.
bool enough_cores(const comm::Communicator& world);

/// Defined by each benchmark program. The shared main calls it on every rank, after MPI and Kokkos have started.
void register_benchmarks(const comm::Communicator& world);

namespace detail {

/// --benchmark_min_time of the command line, in seconds; 0 when absent.
void set_min_seconds(double seconds);
/// --time_oversubscribed of the command line.
void set_time_oversubscribed();

}  // namespace detail

}  // namespace aloni::bench
