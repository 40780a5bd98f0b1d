#pragma once
// What every benchmark binary shares: a main that works under mpirun, and timed loops whose time is the maximum over ranks.
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
// Iteration counts agree on all ranks: a collective calibration at registration fixes them (adaptive counts differ between
// ranks and then deadlock). Only cases whose name fits --benchmark_filter are set up. Rank 0 reports, the others are silent.
// With more ranks than cores a case is still set up, checked and run once, and reported without a time.
#include <aloni/core/comm/communicator.hpp>

#include <functional>
#include <map>
#include <string>

namespace aloni::bench {

/// One prepared case.
struct Case {
  std::function<void()> run;               ///< one repetition, ends with its kernels complete (fence its queue)
  double bytes = 0;                        ///< moved per repetition by all ranks; reported as bytes and bytes_per_second
  double flops = 0;                        ///< computed per repetition by all ranks
  std::map<std::string, double> counters;  ///< others, reported as they are (messages, samples …)
  double items = 0;                        ///< reported as items_per_second (samples …)
  std::function<void()> before = {};       ///< untimed, before every repetition
};

struct TimedOptions {
  double min_seconds = 0.3;  ///< of one measurement; the number of repetitions follows
  int max_iterations = 100000;
  int repetitions = 1;       ///< Google Benchmark's repetitions, aggregates included when > 1
};

/// Collective, called in the same order on all ranks. `make` is called once to calibrate and once to measure, on every
/// rank. Time is measured from a common barrier to the end of the slowest rank, per batch of repetitions.
void add_timed(const comm::Communicator& world, const std::string& name, std::function<Case()> make, TimedOptions options = {});

/// Seconds of one call on the slowest rank: barrier, clock, f, clock, maximum. Collective.
double seconds_of_slowest(const comm::Communicator& world, const std::function<void()>& f);

/// Whether this machine has at least one core per rank, so that times mean something.
bool enough_cores(const comm::Communicator& world);

/// Defined by each benchmark binary; called by the shared main on every rank after MPI and Kokkos are up.
void register_benchmarks(const comm::Communicator& world);

}  // namespace aloni::bench
