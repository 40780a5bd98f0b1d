#pragma once
// What every benchmark binary shares: a main that works under mpirun, and timed loops whose time is that of the
// slowest rank.
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
// Counts of repetitions agree on all ranks: a collective calibration at registration fixes them (counts that each
// rank adapts on its own differ, and then ranks wait for each other forever). Only cases whose name fits
// --benchmark_filter are set up; --benchmark_min_time replaces every case's own. Rank 0 reports, the others are
// silent. With more ranks than cores a case is set up, checked and run once, and reported without a time, unless
// --time_oversubscribed says that something else than the cores is the bottleneck (a shaped link: two_hosts.sh).
//
// Time is reported in microseconds per repetition, the mean over batches; the counter best_us is that of the fastest
// batch, which a busy machine disturbs least.
#include <aloni/core/comm/communicator.hpp>

#include <functional>
#include <map>
#include <string>

namespace aloni::bench {

/// One prepared case.
struct Case {
  std::function<void()> run;                    ///< one repetition, ends with its kernels complete (fence its queue)
  double bytes = 0;                             ///< per repetition, all ranks together; also as bytes_per_second
  double flops = 0;                             ///< per repetition, all ranks together; reported as a rate
  double items = 0;                             ///< per repetition, all ranks together; reported as items_per_second
  std::map<std::string, double> counters = {};  ///< others, reported as they are
  std::string label = {};                       ///< beside the figures of rank 0
  /// Rank 0 alone runs it and all cores are its own: the others sleep until it is done, and the time is rank 0's.
  bool on_first_rank = false;
  std::function<void()> before = {};  ///< untimed, before every repetition; repetitions are then timed one by one
};

struct TimedOptions {
  double min_seconds = 0.3;  ///< all batches together
  int min_repetitions = 1;   ///< unless --benchmark_min_time is given
  int max_repetitions = 1000000;
  int batches = 10;
};

/// Collective, called in the same order on all ranks. `make` is called on every rank, once to calibrate and once to
/// measure; what it throws ends the program. Batches of repetitions are timed from a common barrier to the end of the
/// slowest rank.
void add_timed(const comm::Communicator& world, const std::string& name, std::function<Case()> make,
               TimedOptions options = {});

/// Every rank copies so many bytes of its own, all at the same time: what exchanges are compared with. Collective.
Case memcpy_case(const comm::Communicator& world, double bytes);

/// Seconds of one call on the slowest rank: barrier, clock, f, clock, maximum. Collective.
double seconds_of_slowest(const comm::Communicator& world, const std::function<void()>& f);

/// Whether every machine has at least one core per rank, so that times mean something. Collective the first time.
bool enough_cores(const comm::Communicator& world);

/// Defined by each benchmark binary; called by the shared main on every rank after MPI and Kokkos are up.
void register_benchmarks(const comm::Communicator& world);

namespace detail {

/// --benchmark_min_time of the command line, in seconds; 0 when absent.
void set_min_seconds(double seconds);
/// --time_oversubscribed of the command line.
void set_time_oversubscribed();

}  // namespace detail

}  // namespace aloni::bench
