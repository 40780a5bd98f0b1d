// Magnetised gas in a periodic box: eight quantities per cell, differences of sixth order. The Views belong to the
// application, which chooses their memory and layout. In each substep the ghosts travel while the interior is computed.
// The result has the same bits for any number of ranks and any split.
//   mpirun -n 2 stencil --size 64 --steps 300 --vtk vortex        a picture
//   mpirun -n 2 stencil --size 256 --grid d2 --measure            does computing hide the exchange?
//   mpirun -n 4 stencil --size 48 --every 3 --measure             does a deep halo pay, with one exchange in three?
//   mpirun -n 16 stencil --size 256 --place --tune --measure      blocks, ranks and exchange chosen for this machine
//   mpirun -n 2 stencil --scaling; stencil --plan                 more ranks
// Its own CMakeLists.txt builds it from an installed package, like any other application.
#include "options.hpp"
#include "place.hpp"
#include "simulation.hpp"
#include "times.hpp"
#include "vtk.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/environment.hpp>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <optional>

namespace stencil {

/// Redundant cells in per cent of the cells that an exchange in every substep would compute.
double computed_twice(Index redundant_cells, Index computed_cells) {
  return 100 * static_cast<double>(redundant_cells) /
         static_cast<double>(std::max<Index>(1, computed_cells - redundant_cells));
}

/// Measured times of the exchange methods, fastest first; the first one is in use.
void print_methods(const comm::Communicator& comm, const std::vector<halo::MethodTime>& methods) {
  if (comm.rank() != 0 || methods.empty()) return;
  double usual = 0;
  for (const halo::MethodTime& m : methods)
    if (m.method == halo::ExchangeMethod{}) usual = m.seconds;
  const halo::MethodTime& best = methods.front();
  std::printf("tuned: exchanges %s, measured %.1f us, %.1f %% less than the default; measured were\n%s",
              to_string(best.method).c_str(), 1e6 * best.seconds, usual > 0 ? 100 * (1 - best.seconds / usual) : 0,
              halo::to_string(methods).c_str());
}

template <class T>
void simulate(const comm::Communicator& comm, const Options& options) {
  Simulation<T> simulation(comm, cube(options.size, options.grid), options.size, options.every, options.tune);
  print_methods(comm, simulation.methods());
  const auto say = [&](const char* format, auto... values) {
    if (comm.rank() == 0) std::printf(format, values...);
  };
  Times step, exchange, parts, at_once;
  for (Index i = 0; i < options.steps; ++i) {
    if (options.measure) {
      exchange.measure(comm, [&] { simulation.exchange_only(); });
      at_once.measure(comm, [&] { simulation.compute_at_once(); });
      parts.measure(comm, [&] { simulation.compute_in_parts(); });
    }
    step.measure(comm, [&] { simulation.step(); });
  }
  const auto [low, high] = simulation.density_range();
  if (!(low > 0))
    throw aloni::InvalidArgument("stencil", "density", std::to_string(low),
                                 "more than 0: the step in time is too long");

  say("%d steps of %dx%dx%dx%d in %s, split %s: checksum %016" PRIx64 "\n", static_cast<int>(options.steps),
      static_cast<int>(options.size), static_cast<int>(options.size), static_cast<int>(options.size), quantities,
      options.single ? "float" : "double", to_string(options.grid).c_str(), simulation.checksum());
  say("time %.4g, density %.3g to %.3g\n", static_cast<double>(options.steps) * simulation.time_step(), low, high);
  const auto row = [&](const char* what, const Times& times) {
    say("%-28s %10.2f %10.2f\n", what, times.median() * 1e3, times.best() * 1e3);
  };
  say("%-28s %10s %10s\n", "ms, slowest rank", "median", "best");
  row("step with exchanges", step);
  if (options.measure) {
    row("computation alone, in parts", parts);
    row("computation alone, at once", at_once);
    row("exchanges alone", exchange);
    const auto compare = [&](const char* what, const Times& alone) {
      const Times ratios = step.over(alone);
      say("a step takes %.3f times as long as computing alone, %s (medians of %d turns; in half of the turns %.3f to "
          "%.3f)\n",
          step.median() / alone.median(), what, step.turns(), ratios.quantile(0.25), ratios.quantile(0.75));
    };
    compare("in parts", parts);
    compare("at once", at_once);
    const halo::TransferCount cost = simulation.counts();
    const halo::DeepHalo& deep = simulation.deep();
    say("one exchange in %d substep%s: rank 0 sends %d message%s of %" PRId64
        " bytes in all, and computes %.1f %% more cells than it owns\n",
        deep.steps(), deep.steps() == 1 ? "" : "s", static_cast<int>(cost.sent_messages),
        cost.sent_messages == 1 ? "" : "s", cost.sent_elements * static_cast<Index>(sizeof(T)),
        computed_twice(deep.redundant_cells(), deep.computed_cells()));
  }
  if (!options.vtk.empty()) write_vtk(comm, options.vtk, simulation);
}

struct Run {
  double seconds = 0;
  std::uint64_t checksum = 0;
};

/// Collective over `comm`, which may have fewer ranks than the program.
template <class T>
Run timed_run(const comm::Communicator& comm, const Distribution& domain, const Options& options) {
  // One rank exchanges nothing: its bits are those of an exchange in every substep.
  Simulation<T> simulation(comm, domain, options.size, comm.size() == 1 ? 1 : options.every, options.tune);
  Times times;
  for (Index i = 0; i < options.steps; ++i) times.measure(comm, [&] { simulation.step(); });
  return {times.median(), simulation.checksum()};
}

template <class T>
void scale(const comm::Communicator& comm, const Options& options) {
  comm.set_stuck_after(std::chrono::milliseconds(0));  // ranks that do not take part wait without a limit
  std::vector<int> counts;
  for (int n = 1; n < comm.size(); n *= 2) counts.push_back(n);
  counts.push_back(comm.size());
  std::optional<Run> one;
  if (comm.rank() == 0)
    std::printf(
        "%d steps, %s, %d³ cells of %d quantities, exchanges every %d substeps: ms per step (median, "
        "slowest rank)\n"
        "%5s  %-8s %10s %11s %10s %9s  %s\n",
        static_cast<int>(options.steps), options.single ? "float" : "double", static_cast<int>(options.size),
        quantities, options.every, "ranks", "split", "weak", "efficiency", "strong", "speed-up", "strong: checksum");
  for (const int n : counts) {
    const ProcessGrid grid = n == comm.size() ? options.grid : even_grid(n);
    if (comm.rank() < n) {
      std::vector<int> members(static_cast<std::size_t>(n));
      for (int i = 0; i < n; ++i) members[static_cast<std::size_t>(i)] = i;
      const auto some = comm.subgroup(members);
      const Run strong = timed_run<T>(some, cube(options.size, grid), options);
      const Run weak = n == 1 ? strong : timed_run<T>(some, cube_per_rank(options.size, grid), options);
      if (!one) one = strong;
      if (comm.rank() == 0)
        std::printf("%5d  %-8s %10.2f %9.1f %% %10.2f %9.2f  %016" PRIx64 "\n", n, to_string(grid).c_str(),
                    weak.seconds * 1e3, 100 * one->seconds / weak.seconds, strong.seconds * 1e3,
                    one->seconds / strong.seconds, strong.checksum);
      if (comm.rank() == 0 && strong.checksum != one->checksum)
        throw aloni::InvalidArgument("stencil", "checksum on " + std::to_string(n) + " ranks",
                                     std::to_string(strong.checksum), "the bits of one rank");
    }
    comm.barrier();
  }
  if (comm.rank() == 0) std::printf("all of the same bits as on one rank\n");
}

/// Messages and bytes of each exchange on up to 64 ranks. Plans are arithmetic: one rank makes the plans of all ranks.
void print_plans(const Options& options) {
  const Index bytes_per_value = options.single ? sizeof(float) : sizeof(double);
  for (const bool weak : {true, false}) {
    std::printf(
        "%s scaling, %d³ cells of %d quantities%s, %s: messages and bytes of one exchange, every %d substeps\n"
        "%5s  %-8s %17s %14s %14s %16s %14s\n",
        weak ? "weak" : "strong", static_cast<int>(options.size), quantities, weak ? " per rank" : "",
        options.single ? "float" : "double", options.every, "ranks", "split", "messages per rank", "bytes per rank",
        "all messages", "all bytes", "computed twice");
    for (int ranks = 1; ranks <= 64; ranks *= 2) {
      const ProcessGrid grid = even_grid(ranks);
      const Distribution domain = weak ? cube_per_rank(options.size, grid) : cube(options.size, grid);
      Index most_messages = 0, most_bytes = 0, messages = 0, bytes = 0, computed = 0, redundant = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const halo::DeepHalo deep = deep_halo(domain, rank, options.every);
        const halo::TransferCount cost = count(plan_halo(domain, deep.needed(), periodic(), rank));
        most_messages = std::max(most_messages, cost.sent_messages);
        most_bytes = std::max(most_bytes, cost.sent_elements * bytes_per_value);
        messages += cost.sent_messages;
        bytes += cost.sent_elements * bytes_per_value;
        computed += deep.computed_cells();
        redundant += deep.redundant_cells();
      }
      std::printf("%5d  %-8s %17" PRId64 " %14" PRId64 " %14" PRId64 " %16" PRId64 " %12.1f %%\n", ranks,
                  to_string(grid).c_str(), most_messages, most_bytes, messages, bytes,
                  computed_twice(redundant, computed));
    }
  }
}

}  // namespace stencil

int main(int argc, char** argv) {
  const aloni::Environment environment(argc, argv);  // removes the arguments of Kokkos
  auto comm = aloni::comm::from_mpi(MPI_COMM_WORLD);
  stencil::Options options;
  try {
    options = stencil::parse(argc, argv, comm.size());
  } catch (const aloni::InvalidArgument& e) {
    if (comm.rank() == 0) std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
  const auto run = [&](const auto& program) { options.single ? program(float{}) : program(double{}); };
  try {
    if (options.ranks_per_node > 0)
      comm = aloni::comm::from_mpi(MPI_COMM_WORLD, {.ranks_per_node = options.ranks_per_node});
    if (options.place && !options.help && !options.plan) {
      run([&]<class T>(T) {
        const stencil::Placed placed = stencil::place<T>(comm, options);
        comm = placed.comm;
        options.grid = placed.grid;
      });
    }
    if (options.help) {
      if (comm.rank() == 0) std::fputs(stencil::usage, stdout);
    } else if (options.plan) {
      if (comm.rank() == 0) stencil::print_plans(options);
    } else if (options.scaling) {
      run([&]<class T>(T) { stencil::scale<T>(comm, options); });
    } else {
      run([&]<class T>(T) { stencil::simulate<T>(comm, options); });
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %d: %s\n", comm.rank(), e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}
