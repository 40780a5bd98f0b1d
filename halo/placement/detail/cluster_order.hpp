#pragma once
// A good order to start from on a machine of clusters (nodes of a cluster, sockets of a node): neighbouring subdomains share one.
#include <aloni/halo/placement/square_matrix.hpp>
#include <aloni/halo/placement/traffic_matrix.hpp>

#include <vector>

namespace aloni::halo::detail {

/// The groups of ranks between which distances are clearly larger than inside, at the coarsest level where there are any; one group
/// if there are none. By single linkage: the minimal spanning tree without the edges above the topmost gap in their lengths.
std::vector<std::vector<int>> clusters_of(const std::vector<int>& ranks, const SquareMatrix& distance);

/// rank_of each subdomain. From the coarsest clusters down: subdomains are split into one part for each cluster, bricks of their grid
/// where those fit, with as few bytes between the parts as any shape of bricks has; which cluster gets which part is an assignment
/// problem of its own, of as many parts as clusters. @pre of the same size
std::vector<int> cluster_order(const TrafficMatrix& traffic, const SquareMatrix& distance);

}  // namespace aloni::halo::detail
