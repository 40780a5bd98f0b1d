#include <aloni/halo/detail/direct_reading.hpp>

#include <aloni/halo/detail/walk.hpp>
#include <aloni/views/detail/instantiate.hpp>

#include <algorithm>
#include <span>
#include <type_traits>
#include <variant>

namespace aloni::halo::detail {

namespace {

// Bytes. For shorter pieces the receiver would fetch whole cache lines from another core but use only a part of each.
// This takes longer than packing them first.
constexpr Index shortest_direct_run = 64;

static_assert(std::is_trivially_copyable_v<Place> && std::is_trivially_copyable_v<comm::ExposedMemory>,
              "ranks send them as bytes");

/// Where a peer finds a box in the tensor itself. Not reachable if the peer must not read it there.
template <class T, class MemorySpace>
Place place_in_tensor(const comm::Communicator& comm, const TensorRef<T, MemorySpace>& tensor, const views::Box& box,
                      int peer) {
  constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, MemorySpace>::accessible;
  Place place{.strides = strides_of(tensor), .is_packed = 0};
  if (std::ranges::any_of(place.strides, [](Index stride) { return stride < 0; })) return {};
  if (on_host && run_of(box, place.strides) * static_cast<Index>(sizeof(T)) < shortest_direct_run) return {};
  const T* const first = tensor.data.data() + walk_box(tensor, box).offset;
  place.memory = comm.expose(first, span_of(box, place.strides) * sizeof(T), peer);
  return place;
}

/// Where a peer finds a move's destination, for the adjoint. Some ghosts must be packed. In place, ghosts become zero
/// before peers could read them. Mirrored or replicated ghosts are not in the order of the message.
template <class T, class MemorySpace>
Place ghosts_in_tensor(const comm::Communicator& comm, const TransferItem<T, MemorySpace>& item, const Move& move,
                       int peer) {
  if (item.same_tensor || !is_plain(move)) return {};
  return place_in_tensor(comm, item.destination, move.destination, peer);
}

template <class T>
std::span<std::byte> bytes_of(std::vector<T>& all, std::size_t first, std::size_t count) {
  return std::as_writable_bytes(std::span(all).subspan(first, count));
}
std::span<std::byte> places_of(std::vector<Place>& places, const Peer& peer) {
  return bytes_of(places, static_cast<std::size_t>(peer.first_move), static_cast<std::size_t>(peer.moves));
}
std::span<std::byte> bytes_of(bool& flag) { return std::as_writable_bytes(std::span(&flag, 1)); }

}  // namespace

template <class Exec>
void agree_on_direct_reading(const comm::Communicator& comm, const comm::TransferMessages& messages,
                             std::size_t direct_bytes,
                             const std::vector<AnyTransferItem<typename Exec::memory_space>>& items,
                             MessageBuffer<Exec>& outgoing, MessageBuffer<Exec>& incoming) {
  const auto large = [&](const Peer& peer) { return peer.bytes >= direct_bytes; };

  // Where this rank has the cells that peers read, forward and in the adjoint.
  const auto say_where = [&](MessageBuffer<Exec>& buffer, std::vector<Place>& places, const auto& in_tensor) {
    places.resize(buffer.num_moves());
    buffer.for_each_move(items, [&](const auto& part) {
      const Peer& peer = buffer.peers[part.peer];
      const Move& move = part.move;
      if (!large(peer) || move.source.empty()) return;
      Place& place = places[part.number];
      place = std::visit([&](const auto& item) { return in_tensor(item, move, peer.rank); }, part.item);
      if (place.memory.reachable()) return;
      const std::size_t bytes = static_cast<std::size_t>(move.source.size()) * element_bytes(part.item);
      place = {comm.expose(buffer.packed(peer) + part.at, bytes, peer.rank), dense_strides(move.source), 1};
    });
  };
  say_where(outgoing, outgoing.places, [&](const auto& item, const Move& move, int peer) {
    return place_in_tensor(comm, item.source, move.source, peer);
  });
  say_where(incoming, incoming.adjoint_places,
            [&](const auto& item, const Move& move, int peer) { return ghosts_in_tensor(comm, item, move, peer); });

  // Where the peers have the cells that this rank reads.
  incoming.places.resize(incoming.num_moves());
  outgoing.adjoint_places.resize(outgoing.num_moves());
  using enum comm::TransferMessage;
  std::vector<comm::Request> requests;
  messages.begin(comm::TransferDirection::setup);
  for (const Peer& p : incoming.peers)
    requests.push_back(messages.receive(places_of(incoming.places, p), p.rank, values));
  for (const Peer& p : outgoing.peers)
    requests.push_back(messages.receive(places_of(outgoing.adjoint_places, p), p.rank, answer));
  for (const Peer& p : outgoing.peers) requests.push_back(messages.send(places_of(outgoing.places, p), p.rank, values));
  for (const Peer& p : incoming.peers)
    requests.push_back(messages.send(places_of(incoming.adjoint_places, p), p.rank, answer));
  comm.wait(requests);
  requests.clear();

  // Which of these cells this rank can reach.
  const auto open_all = [&](MessageBuffer<Exec>& buffer, const std::vector<Place>& places, bool Peer::*direct) {
    buffer.opened.resize(places.size());
    for (Peer& p : buffer.peers) p.*direct = large(p);
    buffer.for_each_move(items, [&](const auto& part) {
      Peer& peer = buffer.peers[part.peer];
      const Move& move = part.move;
      if (!(peer.*direct) || move.source.empty()) return;
      const Place& place = places[part.number];
      auto& opened = buffer.opened[part.number];
      opened = comm.open(peer.rank, place.memory, span_of(move.source, place.strides) * element_bytes(part.item));
      peer.*direct = opened != nullptr;
    });
  };
  open_all(incoming, incoming.places, &Peer::direct);
  open_all(outgoing, outgoing.adjoint_places, &Peer::direct_adjoint);

  messages.begin(comm::TransferDirection::setup);
  for (Peer& p : outgoing.peers) requests.push_back(messages.receive(bytes_of(p.direct), p.rank, answer));
  for (Peer& p : incoming.peers) requests.push_back(messages.receive(bytes_of(p.direct_adjoint), p.rank, values));
  for (Peer& p : incoming.peers) requests.push_back(messages.send(bytes_of(p.direct), p.rank, answer));
  for (Peer& p : outgoing.peers) requests.push_back(messages.send(bytes_of(p.direct_adjoint), p.rank, values));
  comm.wait(requests);
}

#define INSTANTIATE(Exec)                                                                                      \
  template void agree_on_direct_reading(const comm::Communicator&, const comm::TransferMessages&, std::size_t, \
                                        const std::vector<AnyTransferItem<typename Exec::memory_space>>&,      \
                                        MessageBuffer<Exec>&, MessageBuffer<Exec>&);
ALONI_INSTANTIATE_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::halo::detail
