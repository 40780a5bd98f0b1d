#pragma once
// Message consolidation: what the ranks of one node have for those of another travels as one message (paper: node-aware-stencil).
//
// On either side one rank relays. Who sends packs straight into the relay's memory and tells it by an empty message; when all have, the
// relay sends everything at once; the relay over there receives it, and its node's ranks unpack straight from its memory. So the data are
// touched as often as without, and whoever waits for the others of the node is the engine, not a caller. Relays are spread: of a node's
// pairs each takes another one of the ranks that have something for that pair.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/index.hpp>
#include <aloni/halo/detail/peer.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace aloni::halo::detail {

/// What goes from one rank to another.
struct Parcel {
  int from = 0, to = 0;
  std::size_t bytes = 0;
  std::byte* data = nullptr;  ///< on either side: where it is packed, or has arrived; null: a message of its own
};

/// All of one node for another. Ranks of both make the same, each from what its own node knows.
struct NodePair {
  int relay_from = -1, relay_to = -1;
  std::vector<Parcel> parcels;       ///< ascending
  std::vector<std::size_t> offsets;  ///< of each in the message
  std::size_t bytes = 0;
  Index place = 0;  ///< in the memory of a relay
};

/// Pairs of nodes whose parcels are shorter than `below` bytes on average, and two at least. Parcels: those that leave or enter the node of
/// `rank`. `node_of`: of each rank, numbered from 0. Pure; in an order that is the same on all ranks.
std::vector<NodePair> pair_nodes(std::vector<Parcel> parcels, std::span<const int> node_of, std::size_t below);

class Consolidation {
 public:
  /// Nothing is consolidated.
  Consolidation() = default;
  /// Collective. The parcels of this rank, ascending; on their way through memory that the ranks of a node share, without which nothing is
  /// consolidated. Sets their `data`.
  /// @pre below equal on all ranks; what one rank sends the other receives
  Consolidation(const comm::Communicator& comm, std::span<Parcel> outgoing, std::span<Parcel> incoming,
                std::size_t below, int priority);

  /// Whether this rank takes part. Those that don't needn't call what follows.
  bool active() const { return active_; }
  /// Asynchronous, collective among those that take part. @pre outgoing parcels (backwards: incoming ones) are packed. When it is complete,
  /// the others have arrived, and the packed ones may be overwritten.
  comm::Request start(bool backwards) const { return (backwards ? backward_ : forward_).move.start(); }
  /// The same: what has arrived is unpacked, and by all when it is complete.
  comm::Request release(bool backwards) const { return (backwards ? backward_ : forward_).release.start(); }
  /// Messages that this rank sends to other nodes for it in one direction.
  int messages_sent(bool backwards) const { return (backwards ? backward_ : forward_).messages_sent; }
  /// Of the memory of this rank through which it relays.
  std::size_t bytes() const { return bytes_; }

 private:
  struct Direction {
    comm::PersistentCollective move, release;
    int messages_sent = 0;
  };
  Direction make_direction(const comm::Communicator& comm, const std::vector<NodePair>& pairs, std::size_t bytes,
                           bool backwards, int priority) const;

  bool active_ = false;
  std::shared_ptr<std::byte> memory_;  ///< of what this rank relays
  std::size_t bytes_ = 0;
  std::vector<std::shared_ptr<std::byte>> others_;  ///< of the relays to which it packs and from which it unpacks
  Direction forward_, backward_;
};

/// Collective. Of a transfer's messages those to and from other nodes, except where device memory is sent: sets the peers' `other_node` and
/// `consolidated`. @pre as of Consolidation
Consolidation consolidate(const comm::Communicator& comm, std::span<Peer> outgoing, std::span<Peer> incoming,
                          std::size_t below, int priority);

}  // namespace aloni::halo::detail
