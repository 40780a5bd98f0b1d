#pragma once
// A lower bound of the cost of all placements.
#include <aloni/halo/placement/square_matrix.hpp>
#include <aloni/halo/placement/traffic_matrix.hpp>

namespace aloni::halo::detail {

/// The bound of Gilmore 1962 and Lawler 1963. Subdomain i on rank a costs at least its flows, largest first, times the
/// distances of a, smallest first. The best placement by these costs is a linear assignment problem. Beyond 256 ranks
/// the solution takes too long. Then the bound is the larger of two sums: each subdomain on its cheapest rank, and each
/// rank with its cheapest subdomain. The bound equals the optimum if all distances between ranks are equal, and all
/// distances of a rank to itself. @pre equal sizes
double lower_bound(const TrafficMatrix& traffic, const SquareMatrix& distance);

/// The least sum of n entries, no two in one row or column. The Hungarian method in O(n³).
double linear_assignment(const SquareMatrix& cost);

}  // namespace aloni::halo::detail
