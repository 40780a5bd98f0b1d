#pragma once
// How fast the links between ranks are, measured: what a placement needs to know of the machine.
//
//   const LinkTable links = measure_links(comm);
//   const Placement placement = place(traffic, links.seconds_per_byte);   // placement.hpp
//
// In a halo exchange all ranks send at the same time, and those that share a link share its bandwidth. So disjoint pairs are measured
// at the same time here as well, and no pair has the machine for itself: first the pairs within nodes, in all nodes together; then
// nodes in pairs, each rank of one with a rank of the other. All links between nodes are measured under the same load then, that of all
// ranks of a node, and so are those inside. The bandwidths are thereby lower than those of a benchmark of two ranks: a network
// interface that eight ranks share shows an eighth. Placement needs just that ratio of what a byte costs inside and outside.
// A rank is one process here and data lie in host memory: for devices, whose links are others, pass a table of your own.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/halo/placement/square_matrix.hpp>

#include <cstddef>

namespace aloni::halo {

struct LinkOptions {
  std::size_t bytes = std::size_t{1} << 20;  ///< of a message, in each direction at the same time
  int repetitions = 5;                       ///< of each pair, of which the median counts
  /// Up to so many ranks any two are measured. With more, any two of a node, but two nodes only once, with as many pairs as the
  /// smaller has ranks: all ranks of one are as far from all of the other as those were on average. 1024 ranks in nodes of 8 take
  /// 134 rounds then.
  int all_pairs_up_to = 64;

  friend bool operator==(const LinkOptions&, const LinkOptions&) = default;
};

/// Symmetric; the diagonal is 0.
struct LinkTable {
  SquareMatrix seconds_per_byte;     ///< beyond what a short message takes
  SquareMatrix seconds_per_message;  ///< of 8 bytes
};

/// Collective; the same table on all ranks. Nothing else should go on meanwhile. It takes about as long as ranks × repetitions
/// exchanges of `bytes` with another node, and memory for two matrices.
/// @pre options equal on all ranks
/// @pre bytes ≥ 1, repetitions ≥ 1, all_pairs_up_to ≥ 0
/// Throws InvalidArgument on all ranks.
LinkTable measure_links(const comm::Communicator& comm, const LinkOptions& options = {});

}  // namespace aloni::halo
