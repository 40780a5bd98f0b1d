#pragma once
// Measures how fast the links between ranks are. Placement reads this table.
//
//   const LinkTable links = measure_links(comm);
//   const Placement placement = place(traffic, links.seconds_per_byte);   // placement.hpp
//
// In a halo exchange all ranks send at the same time, and ranks that share a link share its bandwidth. The measurement
// does likewise: disjoint pairs exchange at the same time. First come pairs within nodes, in all nodes together. Then
// nodes meet in pairs, and each rank of one node exchanges with a rank of the other. So all links between nodes are
// measured under the load of all ranks of a node, and all links within nodes too. The bandwidths are therefore lower
// than in a benchmark of two ranks: if eight ranks share a network interface, each gets an eighth. Placement needs this
// ratio of the cost of a byte within a node and between nodes.
// Data lie in host memory. Devices have other links: pass a table of your own.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/halo/placement/square_matrix.hpp>

#include <cstddef>

namespace aloni::halo {

struct LinkOptions {
  std::size_t bytes = std::size_t{1} << 20;  ///< bytes of a message, in each direction at the same time
  int repetitions = 5;                       ///< exchanges of each pair; the median counts
  /// Up to this many ranks, all pairs of ranks are measured. With more ranks, all pairs within nodes are measured. Each
  /// pair of nodes then meets once, with as many pairs of ranks as the smaller node has ranks. All pairs of ranks
  /// between the two nodes get the mean. 1024 ranks in nodes of 8 take 134 rounds.
  int all_pairs_up_to = 64;

  friend bool operator==(const LinkOptions&, const LinkOptions&) = default;
};

/// Symmetric matrices; the diagonal is 0.
struct LinkTable {
  SquareMatrix seconds_per_byte;     ///< added to the time of a short message
  SquareMatrix seconds_per_message;  ///< time of a message of 8 bytes
};

/// Measures the links; equal on all ranks. Other work on the machine disturbs the measurement. It takes about as long
/// as ranks × repetitions exchanges of `bytes` with another node, and memory for two matrices.
/// Collective.
/// @pre options equal on all ranks
/// @pre bytes ≥ 1, repetitions ≥ 1, all_pairs_up_to ≥ 0
/// Throws InvalidArgument on all ranks.
LinkTable measure_links(const comm::Communicator& comm, const LinkOptions& options = {});

}  // namespace aloni::halo
