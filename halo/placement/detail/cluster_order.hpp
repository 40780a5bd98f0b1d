#pragma once
// A good start order for a machine of clusters (nodes of a machine, sockets of a node): neighbouring subdomains share a
// cluster.
#include <aloni/halo/placement/square_matrix.hpp>
#include <aloni/halo/placement/traffic_matrix.hpp>

#include <vector>

namespace aloni::halo::detail {

/// Groups of ranks with clearly larger distances between groups than inside, at the coarsest level; one group if there
/// is no clear gap. Single linkage: the minimal spanning tree without the edges above the topmost gap in edge lengths.
std::vector<std::vector<int>> clusters_of(const std::vector<int>& ranks, const SquareMatrix& distance);

/// The rank of each subdomain. From the coarsest clusters down, the subdomains are split into one part per cluster.
/// Parts are bricks of the grid if these fit, of the shape with the fewest bytes between parts. A quadratic assignment
/// problem of as many parts as clusters decides which cluster gets which part. @pre equal sizes
std::vector<int> cluster_order(const TrafficMatrix& traffic, const SquareMatrix& distance);

}  // namespace aloni::halo::detail
