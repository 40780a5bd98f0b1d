#pragma once
// The plan of consolidated messages: all values from the ranks of one node to the ranks of another travel as one
// message (paper: node-aware-stencil). halo/transfer.hpp sends them; the cost model prices them. Pure.
//
//   pair_nodes(parcels, machine.nodes, 16 * 1024);
//
// A sending rank packs into the memory of the relay of its node and tells it so by an empty message. Then the relay
// sends one message to the relay of the other node, whose memory the ranks there unpack from.
#include <aloni/core/index.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace aloni::halo {

/// The values that one rank sends to another.
struct Parcel {
  int from = 0, to = 0;
  std::size_t bytes = 0;
  std::byte* data = nullptr;  ///< memory to pack into or unpack from; null: not consolidated
};

/// All parcels from one node to another. The ranks of both nodes compute equal pairs, from their own node's parcels.
struct NodePair {
  int relay_from = -1, relay_to = -1;
  std::vector<Parcel> parcels;       ///< ascending by sender, then receiver
  std::vector<std::size_t> offsets;  ///< of each parcel in the message
  std::size_t bytes = 0;
  Index place = 0;  ///< offset of the message in the relay's memory

  std::vector<int> senders() const;    ///< each once, ascending
  std::vector<int> receivers() const;  ///< each once, ascending
};

/// Bytes of a cache line: each parcel of a message begins on one of its own.
inline constexpr std::size_t parcel_alignment = 64;

/// The pair for values that travel back, as in an adjoint: the ends of all parcels and the relays are swapped.
NodePair reversed(NodePair pair);

/// The pairs of nodes with at least two parcels whose mean length is below `below` bytes. Each pair takes its relays
/// from the ranks with parcels for that pair, so that relays are spread.
/// parcels: all parcels that leave or enter this rank's node. node_of: the node of each rank, numbered from 0.
/// The order is equal on all ranks.
std::vector<NodePair> pair_nodes(std::vector<Parcel> parcels, std::span<const int> node_of, std::size_t below);

}  // namespace aloni::halo
