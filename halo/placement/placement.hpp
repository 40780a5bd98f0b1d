#pragma once
// Chooses which rank takes which subdomain (block), so that most bytes travel over fast links.
//
//   const LinkTable links = measure_links(comm);                      // link_table.hpp; or a table of your own
//   const TrafficMatrix traffic = make_traffic_matrix(x, needed, boundaries, sizeof(float));   // traffic_matrix.hpp
//   const Placement placement = place(traffic, links.seconds_per_byte);
//   std::clog << describe(placement) << '\n';
//   const comm::Communicator placed = place_ranks(comm, placement);   // place_ranks.hpp; rank i takes subdomain i
//
// This is the quadratic assignment problem of Pearson et al., "Node-Aware Stencil Communication for Heterogeneous
// Supercomputers", iWAPT 2020 ("Placement"). Subdomain i sends w(i, j) bytes to j, and a byte from rank a to b takes
// d(a, b) seconds. Minimised is
//     cost = sum over i, j of w(i, j) * d(rank of i, rank of j)
// Up to nine ranks, all orders are searched. With more ranks, the search improves an order by the paper's swaps of two
// subdomains (CRAFT). It starts from several orders:
// - one that gives each node, and each clearly closer group of ranks in a node, a brick of the grid;
// - the trivial order;
// - the best order so far with a few subdomains moved;
// - random orders.
// Nodes of unequal bandwidth or size are no special case: the table of links describes them.
//
// Pure arithmetic: equal arguments give equal results on all ranks, without communication.
#include <aloni/halo/placement/square_matrix.hpp>
#include <aloni/halo/placement/traffic_matrix.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace aloni::halo {

struct PlacementOptions {
  /// Largest number of random orders to start from. Before each of them, the search changes the best order so far a
  /// little at random, once per rank.
  int restarts = 100;
  std::uint64_t seed = 1;
  int exact_up_to = 9;  ///< number of ranks up to which all orders are searched; at most 10
  /// Limit of the search: number of traffic entries read. Not a time, so that all ranks stop at the same order. The
  /// default takes less than a second.
  std::int64_t work = 150'000'000;
};

struct Placement {
  std::vector<int> rank_of;  ///< rank of each subdomain; each rank once
  double cost = 0;           ///< in seconds, if the links were used one after another
  double lower_bound = 0;    ///< no order costs less; equals the cost if all orders were searched
  double trivial_cost = 0;   ///< cost with subdomain i on rank i; never below the cost

  friend bool operator==(const Placement&, const Placement&) = default;
};

/// The best order that the search finds. The diagonal of seconds_per_byte applies to bytes that a subdomain sends to
/// itself; make_traffic_matrix() counts none.
/// @pre traffic.size() ≥ 1; the shares of each subdomain ascend within [0, traffic.size())
/// @pre seconds_per_byte.size() == traffic.size(); all entries and all bytes of the traffic are finite and ≥ 0
/// @pre restarts ≥ 0, work ≥ 0, 0 ≤ exact_up_to ≤ 10
/// Throws InvalidArgument (equal on all ranks).
Placement place(const TrafficMatrix& traffic, const SquareMatrix& seconds_per_byte,
                const PlacementOptions& options = {});

/// The cost of an order, in seconds. @pre as place(); rank_of contains each rank once. Throws InvalidArgument.
double placement_cost(const TrafficMatrix& traffic, const SquareMatrix& seconds_per_byte,
                      const std::vector<int>& rank_of);

/// "16 ranks placed at cost 0.00123 s, 52.3 % below the trivial order (0.00258 s); no order is below 0.00119 s".
std::string describe(const Placement& placement);

}  // namespace aloni::halo
