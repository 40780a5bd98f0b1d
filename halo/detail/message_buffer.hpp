#pragma once
// The outgoing or the incoming messages of a transfer on one rank: peers, contents, and memory.
//
//   outgoing  [ to rank 1: moves of item 0, of item 1 | to rank 4: … ]
//
// There is one message per peer, ascending by rank. A message contains the items in order, and for each item the moves
// of its plan. The names are those of the forward direction: the adjoint packs into the incoming buffer and unpacks
// from the outgoing one.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/shared_view.hpp>
#include <aloni/halo/detail/peer.hpp>
#include <aloni/halo/detail/transfer_items.hpp>
#include <aloni/halo/transfer.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace aloni::halo::detail {

template <class Exec>
struct MessageBuffer {
  using memory_space = typename Exec::memory_space;
  using item_type = AnyTransferItem<memory_space>;
  using Direction = std::vector<Message> TransferPlan::*;

  // Messages are sent from and received in memory that the host can read. If the host cannot read the tensors' memory
  // space, messages are staged.
  static constexpr bool staged = !Kokkos::SpaceAccessibility<Kokkos::HostSpace, memory_space>::accessible;
  using HostMemory = std::conditional_t<staged, Kokkos::SharedHostPinnedSpace, memory_space>;

  /// A move in a message.
  struct Part {
    const item_type& item;
    const Move& move;
    std::size_t at;      ///< first byte of the move in the message
    std::size_t number;  ///< index among all moves of the buffer
    std::size_t peer;    ///< index of the message's peer in `peers`
  };

  Direction direction = nullptr;
  std::vector<Peer> peers;
  Kokkos::View<char*, memory_space> data;
  Kokkos::View<char*, HostMemory> host;  ///< data itself unless staged; empty if all peers use device memory
  std::shared_ptr<void> memory;          ///< owns the memory of `data`, unless `data` counts its own references

  /// For each move, where its sender has the cells. Outgoing: on this rank; incoming: on the peer.
  std::vector<Place> places;
  /// For each move, where its receiver has the cells. Incoming: on this rank; outgoing: on the peer.
  std::vector<Place> adjoint_places;
  /// For each move the peer's opened memory: incoming from places, outgoing from adjoint_places. Null: not reachable.
  std::vector<std::shared_ptr<std::byte>> opened;

  MessageBuffer() = default;
  /// Does not allocate. sends_or_receives: &TransferPlan::sends or &TransferPlan::receives.
  MessageBuffer(const comm::Communicator& comm, const std::vector<item_type>& items, Direction sends_or_receives)
      : direction(sends_or_receives) {
    Index number = 0;
    for (const auto& [rank, content] : content_by_peer(items)) {
      Peer peer{.rank = rank, .first_move = number};
      peer.bytes = walk_content(content, [&](const item_type&, const Move&, std::size_t) { ++number; });
      peer.moves = number - peer.first_move;
      peer.on_device = staged && comm.carries_device_memory(rank);
      peers.push_back(peer);
    }
  }

  /// @pre `consolidated` of the peers is set
  void allocate(const comm::Communicator& comm, const Exec& exec, const std::string& label) {
    std::size_t n = 0;
    for (Peer& peer : peers) {
      if (!staged && peer.consolidated) continue;  // packed straight into the relay's memory
      peer.offset = aligned(n, 64);                // each message begins on a cache line of its own
      n = peer.offset + peer.bytes;
    }
    // Values that a peer copies from View to View never come here: their pages stay untouched.
    std::tie(data, memory) = comm::allocate_shared<char>(comm, exec, label, n, comm::SharedViewContents::undefined);
    if constexpr (staged) {
      // Pinned memory is scarce: only for values that may pass through it.
      if (std::ranges::any_of(peers, [](const Peer& p) { return !p.on_device && !p.grouped(); }))
        host = decltype(host)(Kokkos::view_alloc(label + ", host"), n);
    } else {
      host = data;
    }
  }

  std::size_t num_moves() const {
    return peers.empty() ? 0 : static_cast<std::size_t>(peers.back().first_move + peers.back().moves);
  }

  /// Calls f(part) for all moves, ascending by number. @pre `items` are those of the constructor
  template <class F>
  void for_each_move(const std::vector<item_type>& items, F&& f) const {
    std::size_t number = 0, peer = 0;
    for (const auto& [rank, content] : content_by_peer(items)) {
      walk_content(content, [&](const item_type& item, const Move& move, std::size_t at) {
        f(Part{item, move, at, number++, peer});
      });
      ++peer;
    }
  }

  std::size_t bytes() const { return data.size() + (staged ? host.size() : 0); }

  /// The memory that kernels pack into or unpack from.
  std::byte* packed(const Peer& peer) const {
    if (!staged && peer.consolidated) return peer.consolidated;
    return in_data(peer).data();
  }
  // @pre staged or not consolidated
  std::span<std::byte> in_data(const Peer& peer) const {
    return {reinterpret_cast<std::byte*>(data.data() + peer.offset), peer.bytes};
  }
  std::span<std::byte> in_host(const Peer& peer) const {
    return {reinterpret_cast<std::byte*>(host.data() + peer.offset), peer.bytes};
  }

 private:
  using Content = std::vector<std::pair<const item_type*, const Message*>>;  ///< contents of one message

  std::map<int, Content> content_by_peer(const std::vector<item_type>& items) const {
    std::map<int, Content> content;
    for (const item_type& item : items)
      for (const Message& m : plan_of(item).*direction) content[m.peer].emplace_back(&item, &m);
    return content;
  }

  /// Calls f(item, move, first byte in the message) for all moves; returns the bytes of the message.
  template <class F>
  static std::size_t walk_content(const Content& content, F&& f) {
    std::size_t at = 0;
    for (const auto& [item, message] : content) {
      const std::size_t unit = element_bytes(*item);
      at = aligned(at, unit);
      for (const Move& move : message->moves) {
        f(*item, move, at);
        at += static_cast<std::size_t>(move.source.size()) * unit;
      }
    }
    return at;
  }

  static std::size_t aligned(std::size_t at, std::size_t to) { return (at + to - 1) / to * to; }
};

}  // namespace aloni::halo::detail
