#pragma once
// What no placement can go below.
#include <aloni/halo/placement/square_matrix.hpp>
#include <aloni/halo/placement/traffic_matrix.hpp>

namespace aloni::halo::detail {

/// Gilmore 1962, Lawler 1963: subdomain i on rank a costs at least its flows, the largest first, times a's distances, the smallest first;
/// which subdomain is on which rank is then a linear assignment problem. Beyond 256 ranks, where solving that takes too long, its
/// bound by rows and columns: each subdomain on the rank where it costs least, or each rank with the cheapest subdomain.
/// Equal to the optimum when all distances between ranks are equal, and those within. @pre of the same size
double lower_bound(const TrafficMatrix& traffic, const SquareMatrix& distance);

/// The least sum of n entries of which no two share a row or column: the Hungarian method in O(n³).
double linear_assignment(const SquareMatrix& cost);

}  // namespace aloni::halo::detail
