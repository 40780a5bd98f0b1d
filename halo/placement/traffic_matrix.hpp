#pragma once
// How many bytes the subdomains of a tensor send each other: what a placement weighs the links of the machine with.
//
//   const TrafficMatrix traffic = make_traffic_matrix(x, needed, boundaries, sizeof(float));
//   traffic.sends[0];                     // {{1, 4096}, {4, 65536}, …}: to subdomain 1, to subdomain 4, …
//
// Subdomain i is what rank i of the distribution holds. Sparse: a subdomain has 26 neighbours at most in three
// dimensions, however many there are in all.
#include <aloni/halo/transfer_plan.hpp>

#include <vector>

namespace aloni::halo {

struct TrafficMatrix {
  struct Share {
    int to = 0;
    double bytes = 0;

    friend bool operator==(const Share&, const Share&) = default;
  };

  std::vector<std::vector<Share>> sends;  ///< of each subdomain: ascending by `to`, each at most once
  /// How the subdomains lie if they fill a grid, numbered as its ranks; a grid of another size otherwise.
  views::ProcessGrid grid;

  int size() const { return static_cast<int>(sends.size()); }

  friend bool operator==(const TrafficMatrix&, const TrafficMatrix&) = default;
};

/// Counted from the plans of all ranks. Takes time in proportion to the ranks and their neighbours: 4 ms for 1024 ranks.
/// @pre bytes_per_element > 0, and what plan_halo asks for
/// Throws InvalidArgument (equal on all ranks).
TrafficMatrix make_traffic_matrix(const views::Distribution& distribution, const NeededBox& needed,
                                  const BoundaryConditions& boundaries, double bytes_per_element);

/// The traffic of both: of several tensors that are exchanged by the same ranks. @pre of the same size. Throws InvalidArgument.
TrafficMatrix operator+(const TrafficMatrix& a, const TrafficMatrix& b);

}  // namespace aloni::halo
