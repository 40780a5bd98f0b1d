#pragma once
// Which rank takes which subdomain, so that much data goes over fast links and little over slow ones.
//
//   const LinkTable links = measure_links(comm);                             // link_table.hpp; or any table of the user's
//   const TrafficMatrix traffic = make_traffic_matrix(x, needed, boundaries, sizeof(float));       // traffic.hpp
//   const Placement placement = place(traffic, links.seconds_per_byte);
//   std::clog << describe(placement) << '\n';
//   const comm::Communicator placed = place_ranks(comm, placement);          // place_ranks.hpp; rank i holds subdomain i
//
// The quadratic assignment problem of Pearson et al., "Node-Aware Stencil Communication for Heterogeneous Supercomputers", iWAPT 2020
// ("Placement"): subdomains i, j exchange w(i, j) bytes, a byte from rank a to b takes d(a, b) seconds, and
//     cost = sum over i, j of w(i, j) * d(rank of i, rank of j)
// is to be least. Up to nine ranks all orders are searched. Beyond: the paper's swaps of two (CRAFT) from an order that gives each
// node, and each part of a node that is clearly closer together, a brick of the grid; from the trivial order; from the best so far with
// a few subdomains moved; and from random ones.
// Nodes of unequal bandwidth or size need nothing special: the table says it all.
//
// Pure and the same on all ranks for the same arguments: nobody has to ask anybody.
#include <aloni/halo/placement/square_matrix.hpp>
#include <aloni/halo/placement/traffic_matrix.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace aloni::halo {

struct PlacementOptions {
  /// Random orders to start from, at most. Before each the best one so far is changed a little, at random, once per rank.
  int restarts = 100;
  std::uint64_t seed = 1;
  int exact_up_to = 9;  ///< ranks, at most 10, of which all orders are searched
  /// Where the search ends: in entries of flows looked at, not in time, so that all ranks end it at the same place. The default
  /// takes less than a second.
  std::int64_t work = 150'000'000;
};

struct Placement {
  std::vector<int> rank_of;  ///< of each subdomain; each rank once
  double cost = 0;           ///< in seconds, if the links were used one after the other
  double lower_bound = 0;    ///< no order costs less; equal to the cost where all were searched
  double trivial_cost = 0;   ///< with subdomain i on rank i; never below the cost

  friend bool operator==(const Placement&, const Placement&) = default;
};

/// @pre traffic.size() ≥ 1, and shares in range
/// @pre seconds_per_byte.size() == traffic.size(); entries, and bytes of the traffic, finite and ≥ 0. The diagonal counts what a subdomain sends
/// itself, which make_traffic_matrix() says nothing about.
/// @pre restarts ≥ 0, work ≥ 0, 0 ≤ exact_up_to ≤ 10
/// Throws InvalidArgument (equal on all ranks).
Placement place(const TrafficMatrix& traffic, const SquareMatrix& seconds_per_byte,
                const PlacementOptions& options = {});

/// What an order costs. @pre as place(), and rank_of has each rank once. Throws InvalidArgument.
double placement_cost(const TrafficMatrix& traffic, const SquareMatrix& seconds_per_byte,
                      const std::vector<int>& rank_of);

/// "16 ranks placed at cost 0.00123 s, 52.3 % below the trivial order (0.00258 s); no order is below 0.00119 s".
std::string describe(const Placement& placement);

}  // namespace aloni::halo
