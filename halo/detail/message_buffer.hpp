#pragma once
// The messages of a transfer that leave a rank, or those that arrive: to whom, what is in them, and where they lie.
//
//   outgoing  [ to rank 1: moves of item 0, of item 1 | to rank 4: … ]
//
// One message per peer, ascending; in it the items in order, of each the moves of its plan. Those of the forward direction: the adjoint
// packs into what is incoming here, and unpacks from what is outgoing.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/shared_view.hpp>
#include <aloni/halo/detail/peer.hpp>
#include <aloni/halo/detail/transfer_items.hpp>
#include <aloni/halo/transfer.hpp>

#include <Kokkos_Core.hpp>

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

  // Messages leave from and arrive in memory that the host can read; where that is not the tensors' own, they are
  // staged.
  static constexpr bool staged = !Kokkos::SpaceAccessibility<Kokkos::HostSpace, memory_space>::accessible;
  using HostMemory = std::conditional_t<staged, Kokkos::SharedHostPinnedSpace, memory_space>;

  /// A move in a message.
  struct Part {
    const item_type& item;
    const Move& move;
    std::size_t at;      ///< its first byte in the message
    std::size_t number;  ///< among all moves
    std::size_t peer;    ///< its position in `peers`
  };

  Direction direction = nullptr;
  std::vector<Peer> peers;
  Kokkos::View<char*, memory_space> data;
  Kokkos::View<char*, HostMemory> host;  ///< the same as data unless staged
  std::shared_ptr<void> memory;          ///< behind data, unless that counts its own references

  std::vector<Place> places;          ///< by move, where the sender has it: outgoing this rank, incoming the peer
  std::vector<Place> adjoint_places;  ///< by move, where the receiver has it: incoming this rank, outgoing the peer
  std::vector<std::shared_ptr<std::byte>>
      opened;  ///< by move, incoming those of places, outgoing of adjoint_places; null: not to be reached

  MessageBuffer() = default;
  /// Without memory. `direction`: &TransferPlan::sends or &TransferPlan::receives.
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

  /// @pre what is consolidated says so
  void allocate(const comm::Communicator& comm, const Exec& exec, const std::string& label) {
    std::size_t n = 0;
    for (Peer& peer : peers) {
      if (!staged && peer.consolidated) continue;  // packed over there at once
      peer.offset = aligned(n, 64);                // messages begin on cache lines of their own
      n = peer.offset + peer.bytes;
    }
    std::tie(data, memory) = comm::allocate_shared<char>(comm, exec, label, n);
    if constexpr (staged)
      host = decltype(host)(Kokkos::view_alloc(label + ", host"), n);
    else
      host = data;
  }

  std::size_t num_moves() const {
    return peers.empty() ? 0 : static_cast<std::size_t>(peers.back().first_move + peers.back().moves);
  }

  /// Calls f(part) for all moves, ascending by number. @pre the items of the constructor
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

  /// Where kernels pack or unpack.
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
  using Content = std::vector<std::pair<const item_type*, const Message*>>;  ///< of one message

  std::map<int, Content> content_by_peer(const std::vector<item_type>& items) const {
    std::map<int, Content> content;
    for (const item_type& item : items)
      for (const Message& m : plan_of(item).*direction) content[m.peer].emplace_back(&item, &m);
    return content;
  }

  /// Calls f(item, move, first byte in the message); returns the message's bytes.
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
