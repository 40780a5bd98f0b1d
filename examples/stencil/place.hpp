#pragma once
// Blocks and their ranks, chosen for the nodes of the machine: stencil --place.
#include "options.hpp"
#include "simulation.hpp"
#include "times.hpp"

#include <aloni/halo/placement/decomposition.hpp>
#include <aloni/halo/placement/link_table.hpp>
#include <aloni/halo/placement/place_ranks.hpp>
#include <aloni/halo/placement/placement.hpp>
#include <aloni/halo/placement/traffic_matrix.hpp>

#include <cstdio>
#include <string>
#include <vector>

namespace stencil {

struct Placed {
  comm::Communicator comm;  ///< rank i holds block i of `grid`
  ProcessGrid grid;
};

/// Median of the exchanges of a time step, in seconds. Collective.
template <class T>
double exchange_seconds(const comm::Communicator& comm, const ProcessGrid& grid, const Options& options) {
  Simulation<T> simulation(comm, cube(options.size, grid), options.size, options.every);
  Times times;
  for (int i = -1; i < 11; ++i) {
    if (i == 0) times = {};  // the first one warms up
    times.measure(comm, [&] { simulation.exchange_only(); });
  }
  return times.median();
}

/// Collective: splits the box for the machine's nodes, unless --grid says how. Then measures the links between all
/// ranks, and gives each rank the block that minimises traffic over slow links. Rank 0 prints the choice, its estimated
/// cost and, if the choice differs from the default, measured times of both. The default stays if it is as fast.
template <class T>
Placed place(const comm::Communicator& comm, const Options& options) {
  const int ranks = comm.size(), mates = comm.node().size();
  const bool even_nodes = comm.all_reduce(mates, comm::Reduction::min) == comm.all_reduce(mates, comm::Reduction::max);
  const auto say = [&](const std::string& text) {
    if (comm.rank() == 0) std::printf("placed: %s\n", text.c_str());
  };
  const auto traffic_of = [&](const ProcessGrid& grid) {
    const Distribution domain = cube(options.size, grid);
    return halo::make_traffic_matrix(domain, deep_halo(domain, 0, options.every).needed(), periodic(), sizeof(T));
  };

  // The halo is equally wide in all dimensions, so that the default widths of DecompositionOptions do.
  const auto extents = cube(options.size, options.grid).extents();
  const std::vector<Dim> dims{Dim::depth, Dim::height, Dim::width};
  halo::Decomposition decomposition{options.grid, {}};
  if (!options.grid_given)
    decomposition =
        even_nodes ? halo::decompose(extents, dims, ranks / mates, mates) : halo::decompose(extents, dims, ranks);
  const ProcessGrid& grid = decomposition.grid;
  const auto count = [](int n, const std::string& what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
  };
  const std::string machine =
      even_nodes ? count(ranks / mates, "node") + " of " + count(mates, "rank") : "nodes of different sizes";
  std::string how = options.grid_given ? " as --grid says" : "";
  if (!options.grid_given && even_nodes && mates < ranks)
    how = ", divided among nodes as " + to_string(decomposition.nodes);
  say(machine + ": blocks " + to_string(grid) + how);

  const halo::LinkTable links = halo::measure_links(comm);
  const halo::Placement placement = halo::place(traffic_of(grid), links.seconds_per_byte);
  say(halo::describe(placement));
  std::vector<int> in_order(static_cast<std::size_t>(ranks));
  std::string order;
  for (int i = 0; i < ranks; ++i) {
    in_order[static_cast<std::size_t>(i)] = i;
    order += " " + std::to_string(placement.rank_of[static_cast<std::size_t>(i)]);
  }
  say("blocks in order are held by ranks" + order);

  Placed placed{halo::place_ranks(comm, placement), grid};
  const auto compare = [&](const char* how, double before, double after) {
    char text[160];
    std::snprintf(text, sizeof text, "%s: %.3g ms, with blocks %s in the order of ranks %.3g ms: %.1f %% saved", how,
                  1e3 * after, to_string(options.grid).c_str(), 1e3 * before,
                  before > 0 ? 100 * (1 - after / before) : 0);
    say(text);
  };
  // Estimates count one byte after the other over all links, as halo::place() does.
  compare("estimated, all links one after the other",
          halo::placement_cost(traffic_of(options.grid), links.seconds_per_byte, in_order), placement.cost);
  if (grid == options.grid && placement.rank_of == in_order) {
    say("measured: the choice is the one without --place");
  } else {
    const double before = exchange_seconds<T>(comm, options.grid, options);
    const double after = exchange_seconds<T>(placed.comm, grid, options);
    compare("measured, exchanges of a time step", before, after);
    if (after >= before) {
      say("blocks " + to_string(options.grid) + " in the order of ranks are kept, because they are as fast");
      return {comm, options.grid};
    }
  }
  return placed;
}

}  // namespace stencil
