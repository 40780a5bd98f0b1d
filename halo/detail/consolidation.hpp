#pragma once
// Message consolidation (halo/node_pairs.hpp has the plan of its messages).
//
// A sending rank packs straight into the relay's memory and signals it by an empty message. When all senders have
// signalled, the relay sends one message to the relay of the other node. The ranks there unpack straight from their
// relay's memory. So consolidation adds no copies, and the engine waits for the other ranks, not the caller.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/index.hpp>
#include <aloni/halo/detail/peer.hpp>
#include <aloni/halo/node_pairs.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace aloni::halo::detail {

class Consolidation {
 public:
  /// Consolidates no messages.
  Consolidation() = default;
  /// Consolidates this rank's parcels and sets their `data`. If the ranks of a node cannot share memory, it
  /// consolidates none. Collective.
  /// @pre parcels are ascending; `below` is equal on all ranks; each rank's outgoing parcels are its peers' incoming
  /// ones
  Consolidation(const comm::Communicator& comm, std::span<Parcel> outgoing, std::span<Parcel> incoming,
                std::size_t below, int priority);

  /// Whether this rank takes part. Other ranks need not call the functions below.
  bool active() const { return active_; }
  /// Sends the packed parcels. When the request is complete, this rank's incoming parcels have arrived (backwards: the
  /// outgoing ones), and the packed ones may be overwritten. Asynchronous, collective among active ranks.
  /// @pre outgoing parcels (backwards: incoming ones) are packed
  comm::Request start(bool backwards) const { return (backwards ? backward_ : forward_).move.start(); }
  /// Says that this rank has unpacked its parcels. When the request is complete, all ranks that unpack from this rank's
  /// memory have done so. Asynchronous, collective among active ranks.
  comm::Request release(bool backwards) const { return (backwards ? backward_ : forward_).release.start(); }
  /// Number of consolidated messages that this rank sends to other nodes in one direction.
  int messages_sent(bool backwards) const { return (backwards ? backward_ : forward_).messages_sent; }
  /// Size of this rank's relay memory.
  std::size_t bytes() const { return bytes_; }

 private:
  struct Direction {
    comm::PersistentCollective move, release;
    int messages_sent = 0;
  };
  Direction make_direction(const comm::Communicator& comm, const std::vector<NodePair>& pairs, std::size_t bytes,
                           bool backwards, int priority) const;

  bool active_ = false;
  std::shared_ptr<std::byte> memory_;  ///< memory of the messages that this rank relays
  std::size_t bytes_ = 0;
  std::vector<std::shared_ptr<std::byte>> others_;  ///< memory of the relays that this rank packs to and unpacks from
  Direction forward_, backward_;
};

/// Consolidates a transfer's messages between nodes, except messages from device memory and of groups. Sets
/// `other_node` and `consolidated` of the peers. Collective. @pre as Consolidation
Consolidation consolidate(const comm::Communicator& comm, std::span<Peer> outgoing, std::span<Peer> incoming,
                          std::size_t below, int priority);

}  // namespace aloni::halo::detail
