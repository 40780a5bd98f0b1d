#pragma once
// How many bytes the subdomains (blocks) of a tensor send to each other. Placement reads it with the table of links.
//
//   const TrafficMatrix traffic = make_traffic_matrix(x, needed, boundaries, sizeof(float));
//   traffic.sends[0];                     // {{1, 4096}, {4, 65536}, …}: bytes to subdomain 1, to subdomain 4, …
//
// Subdomain i is the box that rank i of the distribution owns. The matrix is sparse: in three dimensions a subdomain
// has at most 26 neighbours.
#include <aloni/halo/transfer_plan.hpp>

#include <vector>

namespace aloni::halo {

struct TrafficMatrix {
  struct Share {
    int to = 0;
    double bytes = 0;

    friend bool operator==(const Share&, const Share&) = default;
  };

  std::vector<std::vector<Share>> sends;  ///< for each subdomain: ascending by `to`, each `to` at most once
  /// The process grid of the subdomains, if they fill one; otherwise a grid of another size.
  views::ProcessGrid grid;

  int size() const { return static_cast<int>(sends.size()); }

  friend bool operator==(const TrafficMatrix&, const TrafficMatrix&) = default;
};

/// Counts the bytes in the halo plans of all ranks. The time is proportional to the number of ranks and their
/// neighbours: 4 ms for 1024 ranks.
/// @pre bytes_per_element > 0, and as plan_halo
/// Throws InvalidArgument (equal on all ranks).
TrafficMatrix make_traffic_matrix(const views::Distribution& distribution, const NeededBox& needed,
                                  const BoundaryConditions& boundaries, double bytes_per_element);

/// The sum of two matrices: the traffic of several tensors that the same ranks exchange.
/// @pre equal sizes. Throws InvalidArgument.
TrafficMatrix operator+(const TrafficMatrix& a, const TrafficMatrix& b);

}  // namespace aloni::halo
