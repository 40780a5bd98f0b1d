#include <aloni/halo/transfer.hpp>

#include <aloni/core/comm/shared_view.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/profiling.hpp>
#include <aloni/halo/detail/batches.hpp>
#include <aloni/halo/detail/consolidation.hpp>
#include <aloni/halo/detail/transfer_base.hpp>
#include <aloni/halo/detail/walk.hpp>
#include <aloni/views/detail/instantiate.hpp>
#include <aloni/views/for_each.hpp>
#include <aloni/views/strided_copy.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

namespace aloni::halo {

namespace {

using detail::copy;
using detail::dense_strides;
using detail::extents;
using detail::run_of;
using detail::span_of;
using detail::strides_of;
using detail::Walk;
using detail::walk;
using detail::walk_box;
using detail::walk_message;
using detail::walk_source;
using views::Box;
using views::CopyMode;
using views::num_dims;

// Bytes. Of shorter pieces whole cache lines come from another core for a part of each, which takes longer than packing them first.
constexpr Index shortest_direct_run = 64;

// Ranks may have made different numbers of transfers, on other communicators too: the largest count is free on all.
int agree_on_tag(const comm::Communicator& comm) {
  static std::atomic<std::int64_t> made{0};
  const std::int64_t number = comm.all_reduce(made.load(), comm::Reduction::max);
  made = std::max(made.load(), number + 1);
  return static_cast<int>(number % (comm::Communicator::max_tag + 1));
}

}  // namespace

const char* name(Path path) {
  switch (path) {
    case Path::view_to_view:
      return "copied from View to View";
    case Path::packed_shared:
      return "packed by the sender, copied from there";
    case Path::message:
      return "a message";
    case Path::message_from_device:
      return "a message from device memory";
    case Path::consolidated:
      break;
  }
  return "in one message with all for that node";
}

template <class Exec>
struct Transfer<Exec>::Implementation : detail::TransferBase, std::enable_shared_from_this<Implementation> {
  template <class T>
  using Item = TransferItem<T, memory_space>;
  template <class T>
  using List = views::StridedCopyList<T, Exec>;
  template <class T>
  using Entry = typename List<T>::Entry;
  /// What is copied of the items with elements of one type.
  template <class T>
  struct Lists {
    List<T> poison, pack, unpack, local, adjoint_pack, adjoint_unpack, adjoint_local;
  };

  // Messages leave from and arrive in memory that the host can read; where that is not the tensors' own, they are
  // staged.
  static constexpr bool staged = !Kokkos::SpaceAccessibility<Kokkos::HostSpace, memory_space>::accessible;
  using HostMemory = std::conditional_t<staged, Kokkos::SharedHostPinnedSpace, memory_space>;

  struct Peer {
    int rank;
    std::size_t offset, bytes;  ///< in the buffer
    Index first_move, moves;
    bool direct = false, direct_adjoint = false;  ///< nothing is sent: who receives copies from where it lies
    bool on_device = false;                       ///< sent from there, and received
    bool other_node = false;
    std::byte* consolidated = nullptr;  ///< not a message of its own: its place in one of the whole node
  };
  /// Where another rank finds the cells of a move: the first of its source box, and how to step. Travels as it is.
  struct Place {
    comm::ExposedMemory memory{};
    std::array<Index, num_dims> strides{};
    std::int32_t is_packed = 1;  ///< in the buffer, not in the tensor
  };
  struct Buffer {
    std::vector<Peer> peers;
    Kokkos::View<char*, memory_space> data;
    Kokkos::View<char*, HostMemory> host;  ///< the same as data unless staged
    std::shared_ptr<void> memory;          ///< behind data, unless that counts its own references
    std::vector<Place> places;             ///< by move, where the sender has it: outgoing this rank, incoming the peer
    std::vector<Place> ghosts;             ///< by peer, where the sender of the adjoint has them: incoming this rank
    std::vector<std::shared_ptr<std::byte>> opened;  ///< incoming by move, outgoing by peer; null: not to be reached
  };

  comm::Communicator comm;
  int tag = 0;
  std::string label;
  std::vector<item_type> items;
  TransferCount counts;

  Buffer outgoing, incoming;  // of the forward direction; the adjoint uses them the other way round
  std::size_t direct_bytes, consolidate_below;
  int priority;
  bool poisons;
  std::tuple<Lists<float>, Lists<double>, Lists<std::int32_t>, Lists<std::int64_t>> lists;
  std::vector<comm::Request> requests, readers;
  detail::Consolidation consolidation;

  bool in_flight = false, adjoint = false;
  Exec space{};

  Implementation(const comm::Communicator& c, std::vector<item_type> all, const TransferOptions& options)
      : comm(c),
        label("aloni::halo::" + options.label),
        items(std::move(all)),
        direct_bytes(options.direct_bytes),
        consolidate_below(options.consolidate_below),
        priority(options.priority),
        poisons(options.poison) {}

  const comm::Communicator& communicator() const override { return comm; }
  bool waits_for_messages() const override { return has_messages(); }

  static const TransferPlan& plan_of(const item_type& any) {
    return std::visit([](const auto& item) -> const TransferPlan& { return item.plan; }, any);
  }
  static std::size_t element_bytes(const item_type& any) {
    return std::visit([](const auto& item) { return sizeof(*item.source.data.data()); }, any);
  }

  template <class T>
  static void check_box(const char* what, const Box& box, const TensorRef<T, memory_space>& tensor) {
    if (!views::contains(tensor.box, box))
      throw InvalidArgument("aloni::halo::Transfer", what, to_string(box),
                            "a box inside the tensor's " + to_string(tensor.box));
  }

  void check() const {
    for (const item_type& any : items) std::visit([&](const auto& item) { check(item); }, any);
  }

  template <class T>
  void check(const Item<T>& item) const {
    for (const auto* tensor : {&item.source, &item.destination})
      for (views::Dim d : views::all_dims)
        if (static_cast<Index>(tensor->data.extent(static_cast<std::size_t>(views::position(d)))) !=
            tensor->box.extent(d))
          throw InvalidArgument(
              "aloni::halo::Transfer", std::string("extent of data, ") + views::name(d),
              std::to_string(tensor->data.extent(static_cast<std::size_t>(views::position(d)))),
              std::to_string(tensor->box.extent(d)) + ", the extent of the tensor's box " + to_string(tensor->box));
    for (const Message& m : item.plan.sends) {
      for (const Move& move : m.moves) check_box("box to send", move.source, item.source);
      check_peer(m.peer);
    }
    for (const Message& m : item.plan.receives) {
      for (const Move& move : m.moves) check_box("box to receive", move.destination, item.destination);
      check_peer(m.peer);
    }
    for (const Move& move : item.plan.local) {
      check_box("box to copy", move.source, item.source);
      check_box("box to fill", move.destination, item.destination);
    }
    for (const Box& box : item.plan.fills) check_box("box to fill", box, item.destination);
    for (const Box& box : item.filled_later) check_box("box filled later", box, item.destination);
  }

  void check_peer(int peer) const {
    if (peer < 0 || peer >= comm.size())
      throw InvalidArgument("aloni::halo::Transfer", "peer of a message", std::to_string(peer),
                            "a rank of the communicator, from 0 to " + std::to_string(comm.size() - 1));
  }

  // Calls f(item, move, position in the buffer, number of the move, number of its peer) for all messages of one direction: one message per
  // peer, in it the items in order. Fills in the buffer's table of peers when that is empty.
  template <class F>
  static void for_each_move(const std::vector<item_type>& items, std::vector<Message> TransferPlan::*direction,
                            std::vector<Peer>& peers, F&& f) {
    std::map<int, std::vector<std::pair<const item_type*, const Message*>>> by_peer;
    for (const item_type& item : items)
      for (const Message& m : plan_of(item).*direction) by_peer[m.peer].emplace_back(&item, &m);
    const bool is_new = peers.empty();
    constexpr std::size_t line = 64;  // messages begin on cache lines of their own
    const auto aligned = [](std::size_t at, std::size_t to) { return (at + to - 1) / to * to; };
    std::size_t at = 0, which = 0;
    Index number = 0;
    for (const auto& [peer, messages] : by_peer) {
      at = aligned(at, line);
      Peer entry{peer, at, 0, number, 0};
      for (const auto& [item, message] : messages) {
        const std::size_t unit = element_bytes(*item);
        at = aligned(at, unit);
        for (const Move& move : message->moves) {
          f(*item, move, at, number++, which);
          at += static_cast<std::size_t>(move.source.size()) * unit;
        }
      }
      entry.bytes = at - entry.offset;
      entry.moves = number - entry.first_move;
      if (is_new) peers.push_back(entry);
      ++which;
    }
  }

  static std::size_t size(const Buffer& b) {
    return b.peers.empty() ? 0 : b.peers.back().offset + b.peers.back().bytes;
  }

  void allocate(Buffer& buffer, const Exec& exec, const char* name) {
    const std::size_t n = size(buffer);
    std::tie(buffer.data, buffer.memory) = comm::allocate_shared<char>(comm, exec, label + name, n);
    if constexpr (staged)
      buffer.host = decltype(buffer.host)(Kokkos::view_alloc(label + name + ", host"), n);
    else
      buffer.host = buffer.data;
  }

  template <class T>
  struct Sum {
    const Item<T>* item;
    Box box;
    Entry<T> entry;
  };
  template <class T>
  static void append_in_batches(std::vector<Sum<T>>& sums, int first_batch, std::vector<Entry<T>>& entries) {
    std::vector<detail::Target> targets;
    std::map<const Item<T>*, int> tensors;
    for (const Sum<T>& s : sums)
      targets.push_back({tensors.try_emplace(s.item, static_cast<int>(tensors.size())).first->second, s.box});
    const std::vector<int> batches = detail::batches_of(targets);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i].entry.batch = first_batch + batches[i];
    std::stable_sort(sums.begin(), sums.end(),
                     [](const Sum<T>& a, const Sum<T>& b) { return a.entry.batch < b.entry.batch; });
    for (const Sum<T>& s : sums) entries.push_back(s.entry);
  }

  template <class T>
  static Entry<T> fill(const TensorRef<T, memory_space>& tensor, const Box& box, int batch, T value = T(0)) {
    return {nullptr, tensor.data.data(), copy(extents(box), {}, walk_box(tensor, box)), CopyMode::assign, batch, value};
  }

  /// Everything that needs no other rank.
  void allocate_buffers(const Exec& exec) {
    const auto nothing = [](const item_type&, const Move&, std::size_t, Index, std::size_t) {};
    for_each_move(items, &TransferPlan::sends, outgoing.peers, nothing);
    for_each_move(items, &TransferPlan::receives, incoming.peers, nothing);
    for (Buffer* buffer : {&outgoing, &incoming})
      for (Peer& peer : buffer->peers) peer.on_device = staged && comm.carries_device_memory(peer.rank);
    allocate(outgoing, exec, ", outgoing");
    allocate(incoming, exec, ", incoming");
    requests.reserve(outgoing.peers.size() + incoming.peers.size() + 1);
    readers.reserve(std::max(outgoing.peers.size(), incoming.peers.size()));
  }

  static std::size_t num_moves(const Buffer& b) {
    return b.peers.empty() ? 0 : static_cast<std::size_t>(b.peers.back().first_move + b.peers.back().moves);
  }

  /// Where a peer finds a move's source cells in the tensor itself; not reachable when it can't.
  template <class T>
  Place place_of(const Item<T>& item, const Move& move, int peer) const {
    Place place{.strides = strides_of(item.source), .is_packed = 0};
    if (std::ranges::any_of(place.strides, [](Index stride) { return stride < 0; })) return {};
    if (!staged && run_of(move.source, place.strides) * static_cast<Index>(sizeof(T)) < shortest_direct_run) return {};
    const T* const first = item.source.data.data() + walk_box(item.source, move.source).offset;
    place.memory = comm.expose(first, span_of(move.source, place.strides) * sizeof(T), peer);
    return place;
  }

  /// Collective among neighbours. Messages that are large enough aren't sent where the receiver reaches this rank's memory: the tensor
  /// itself, or else the buffer where they are packed. The sender says where, the receiver whether it can open all of it.
  void tell_places() {
    outgoing.places.resize(num_moves(outgoing));
    incoming.places.resize(num_moves(incoming));
    for (Buffer* buffer : {&outgoing, &incoming}) buffer->ghosts.resize(buffer->peers.size());
    incoming.opened.resize(incoming.places.size());
    outgoing.opened.resize(outgoing.peers.size());
    const auto large = [&](const Peer& peer) { return peer.bytes >= direct_bytes; };
    for_each_move(items, &TransferPlan::sends, outgoing.peers,
                  [&](const item_type& any, const Move& move, std::size_t at, Index number, std::size_t i) {
                    const Peer& peer = outgoing.peers[i];
                    if (!large(peer) || move.source.empty()) return;
                    Place& place = outgoing.places[static_cast<std::size_t>(number)];
                    place = std::visit([&](const auto& item) { return place_of(item, move, peer.rank); }, any);
                    if (place.memory.reachable()) return;
                    const std::size_t bytes = static_cast<std::size_t>(move.source.size()) * element_bytes(any);
                    place = {comm.expose(outgoing.data.data() + at, bytes, peer.rank), dense_strides(move.source), 1};
                  });
    for (std::size_t i = 0; i < incoming.peers.size(); ++i) {
      const Peer& peer = incoming.peers[i];
      if (large(peer))
        incoming.ghosts[i].memory = comm.expose(incoming.data.data() + peer.offset, peer.bytes, peer.rank);
    }

    const auto part = [](std::vector<Place>& places, Index first, Index count) {
      return std::as_writable_bytes(
          std::span(places).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)));
    };
    const auto ghost = [&](Buffer& b, const Peer& peer) { return part(b.ghosts, &peer - b.peers.data(), 1); };
    for (const Peer& p : incoming.peers)
      requests.push_back(comm.receive(part(incoming.places, p.first_move, p.moves), p.rank, tag));
    for (const Peer& p : outgoing.peers) requests.push_back(comm.receive(ghost(outgoing, p), p.rank, tag));
    for (const Peer& p : outgoing.peers)
      requests.push_back(comm.send(part(outgoing.places, p.first_move, p.moves), p.rank, tag));
    for (const Peer& p : incoming.peers) requests.push_back(comm.send(ghost(incoming, p), p.rank, tag));
    comm.wait(requests);
    requests.clear();

    for (Peer& p : incoming.peers) p.direct = large(p);
    for_each_move(items, &TransferPlan::receives, incoming.peers,
                  [&](const item_type& any, const Move& move, std::size_t, Index number, std::size_t i) {
                    Peer& peer = incoming.peers[i];
                    if (!peer.direct || move.source.empty()) return;
                    const auto n = static_cast<std::size_t>(number);
                    const Place& place = incoming.places[n];
                    incoming.opened[n] =
                        comm.open(peer.rank, place.memory, span_of(move.source, place.strides) * element_bytes(any));
                    peer.direct = incoming.opened[n] != nullptr;
                  });
    for (std::size_t i = 0; i < outgoing.peers.size(); ++i) {
      Peer& peer = outgoing.peers[i];
      if (large(peer)) outgoing.opened[i] = comm.open(peer.rank, outgoing.ghosts[i].memory, peer.bytes);
      peer.direct_adjoint = outgoing.opened[i] != nullptr;
    }
    const auto flag = [](bool& f) { return std::as_writable_bytes(std::span(&f, 1)); };
    for (Peer& p : outgoing.peers) requests.push_back(comm.receive(flag(p.direct), p.rank, tag));
    for (Peer& p : incoming.peers) requests.push_back(comm.receive(flag(p.direct_adjoint), p.rank, tag));
    for (Peer& p : incoming.peers) requests.push_back(comm.send(flag(p.direct), p.rank, tag));
    for (Peer& p : outgoing.peers) requests.push_back(comm.send(flag(p.direct_adjoint), p.rank, tag));
    comm.wait(requests);
    requests.clear();
  }

  /// Collective.
  void consolidate() {
    const comm::Communicator node = comm.node();
    if (node.size() == comm.size()) return;
    std::vector<bool> is_near(static_cast<std::size_t>(comm.size()));
    std::vector<std::int64_t> mates = node.all_gather(std::int64_t{comm.rank()});
    for (const std::int64_t r : mates) is_near[static_cast<std::size_t>(r)] = true;
    const auto parcels_of = [&](Buffer& buffer, bool leave) {
      std::vector<detail::Parcel> parcels;
      for (Peer& p : buffer.peers) {
        p.other_node = !is_near[static_cast<std::size_t>(p.rank)];
        if (!p.other_node || p.on_device || p.bytes == 0) continue;
        parcels.push_back({leave ? comm.rank() : p.rank, leave ? p.rank : comm.rank(), p.bytes, nullptr});
      }
      return parcels;
    };
    std::vector<detail::Parcel> leaving = parcels_of(outgoing, true), coming = parcels_of(incoming, false);
    consolidation = detail::Consolidation(comm, leaving, coming, consolidate_below, priority);
    const auto keep = [](Buffer& buffer, const std::vector<detail::Parcel>& parcels, int detail::Parcel::*peer) {
      for (const detail::Parcel& parcel : parcels)
        for (Peer& p : buffer.peers)
          if (p.rank == parcel.*peer) p.consolidated = parcel.data;
    };
    keep(outgoing, leaving, &detail::Parcel::to);
    keep(incoming, coming, &detail::Parcel::from);
  }

  /// Where the message of a peer is packed, or has arrived.
  template <class T>
  static T* message_of(const Buffer& buffer, const Peer& peer) {
    if (!staged && peer.consolidated) return reinterpret_cast<T*>(peer.consolidated);
    return reinterpret_cast<T*>(buffer.data.data() + peer.offset);
  }
  template <class T>
  static const T* values(const std::shared_ptr<std::byte>& opened) {
    return reinterpret_cast<const T*>(opened.get());
  }
  template <class T>
  static Index place_in(std::size_t bytes) {
    return static_cast<Index>(bytes / sizeof(T));
  }

  template <class T>
  void make_lists(const Exec& exec) {
    std::vector<Entry<T>> poison, packs, unpacks, copies, adjoint_packs, adjoint_unpacks, adjoint_copies;
    std::vector<Sum<T>> sums;
    const auto for_each = [&](std::vector<Message> TransferPlan::*direction, std::vector<Peer>& peers, auto&& f) {
      for_each_move(items, direction, peers,
                    [&](const item_type& any, const Move& m, std::size_t at, Index number, std::size_t i) {
                      if (const auto* item = std::get_if<Item<T>>(&any)) f(*item, m, at, number, i);
                    });
    };
    for_each(
        &TransferPlan::sends, outgoing.peers,
        [&](const Item<T>& item, const Move& m, std::size_t at, Index number, std::size_t i) {
          const Peer& peer = outgoing.peers[i];
          const Walk tensor = walk_source(item.source, m, false);
          const Walk message = walk_message(place_in<T>(at - peer.offset), m, false);
          T* const packed = message_of<T>(outgoing, peer);
          if (!peer.direct || outgoing.places[static_cast<std::size_t>(number)].is_packed)
            packs.push_back({item.source.data.data(), packed, copy(extents(m.source), tensor, message)});
          const T* const ghosts = peer.direct_adjoint ? values<T>(outgoing.opened[i]) : packed;
          sums.push_back({&item,
                          m.source,
                          {ghosts, item.source.data.data(), copy(extents(m.source), message, tensor), CopyMode::add}});
        });
    append_in_batches(sums, 0, adjoint_unpacks);

    constexpr T poisonous =
        std::is_floating_point_v<T> ? std::numeric_limits<T>::quiet_NaN() : std::numeric_limits<T>::lowest();
    const auto add_poison = [&](const Item<T>& item, const Box& box) {
      if (poisons) poison.push_back(fill(item.destination, box, 0, poisonous));
    };
    for_each(&TransferPlan::receives, incoming.peers,
             [&](const Item<T>& item, const Move& m, std::size_t at, Index number, std::size_t i) {
               const Peer& peer = incoming.peers[i];
               const Walk tensor = walk_box(item.destination, m.destination);
               const Walk message = walk_message(place_in<T>(at - peer.offset), m, true);
               T* const packed = message_of<T>(incoming, peer);
               const T* from = packed;
               Walk source = message;
               if (peer.direct && !m.source.empty()) {
                 from = values<T>(incoming.opened[static_cast<std::size_t>(number)]);
                 source = walk(incoming.places[static_cast<std::size_t>(number)].strides, {}, m, true);
               }
               unpacks.push_back({from, item.destination.data.data(), copy(extents(m.destination), source, tensor)});
               adjoint_packs.push_back(
                   {item.destination.data.data(), packed, copy(extents(m.destination), tensor, message)});
               add_poison(item, m.destination);
             });

    sums.clear();
    std::vector<const Item<T>*> mine;
    for (const item_type& any : items) {
      if (const auto* item = std::get_if<Item<T>>(&any)) mine.push_back(item);
    }
    for (const Item<T>* item : mine) {
      if (!item->same_tensor) adjoint_copies.push_back(fill(item->source, item->source.box, 0));
      for (const Move& m : item->plan.local) {
        const Walk from = walk_source(item->source, m, true), to = walk_box(item->destination, m.destination);
        copies.push_back(
            {item->source.data.data(), item->destination.data.data(), copy(extents(m.destination), from, to)});
        sums.push_back({item,
                        m.source,
                        {item->destination.data.data(), item->source.data.data(),
                         copy(extents(m.destination), to, from), CopyMode::add}});
        add_poison(*item, m.destination);
      }
      for (const Box& box : item->plan.fills) {
        copies.push_back(fill(item->destination, box, 0));
        add_poison(*item, box);
      }
      for (const Box& box : item->filled_later) add_poison(*item, box);
    }
    append_in_batches(sums, 1, adjoint_copies);
    const int last = adjoint_copies.empty() ? 0 : adjoint_copies.back().batch + 1;
    for (const Item<T>* item : mine) {
      if (!item->same_tensor) continue;
      for (const Message& message : item->plan.receives)
        for (const Move& m : message.moves) adjoint_copies.push_back(fill(item->destination, m.destination, last));
      for (const Move& m : item->plan.local) adjoint_copies.push_back(fill(item->destination, m.destination, last));
      for (const Box& box : item->plan.fills) adjoint_copies.push_back(fill(item->destination, box, last));
    }

    auto& l = std::get<Lists<T>>(lists);
    l.poison = List<T>(exec, label + ": poison ghosts", poison);
    l.pack = List<T>(exec, label + ": pack", packs);
    l.unpack = List<T>(exec, label + ": unpack", unpacks);
    l.local = List<T>(exec, label + ": copy within the rank", copies);
    l.adjoint_pack = List<T>(exec, label + ": pack ghosts", adjoint_packs);
    l.adjoint_unpack = List<T>(exec, label + ": add to owners", adjoint_unpacks);
    l.adjoint_local = List<T>(exec, label + ": add to owners within the rank", adjoint_copies);
  }

  template <class F>
  void for_each_list(F&& f) const {
    std::apply([&](const auto&... of_type) { (f(of_type), ...); }, lists);
  }

  void make_lists(const Exec& exec) {
    make_lists<float>(exec);
    make_lists<double>(exec);
    make_lists<std::int32_t>(exec);
    make_lists<std::int64_t>(exec);
    for (const item_type& any : items) {
      const TransferCount c = count(plan_of(any));
      counts.sent_elements += c.sent_elements;
      counts.received_elements += c.received_elements;
      counts.local_elements += c.local_elements;
      counts.filled_elements += c.filled_elements;
    }
    counts.sent_messages = static_cast<Index>(outgoing.peers.size());
    counts.received_messages = static_cast<Index>(incoming.peers.size());
  }

  static std::span<std::byte> bytes(const Buffer& buffer, const Peer& peer) {
    return {reinterpret_cast<std::byte*>(buffer.host.data() + peer.offset), peer.bytes};
  }

  void start(const Exec& exec, bool backwards) {
    if (in_flight)
      throw InvalidArgument("aloni::halo::Transfer::start", "transfer", label,
                            "one that is not in flight: finish() the Pending of its last start first");
    const Buffer& out = backwards ? incoming : outgoing;
    const Buffer& in = backwards ? outgoing : incoming;
    space = exec;
    adjoint = backwards;
    if (!backwards) set_ghost_states(views::GhostState::stale);
    try {
      in_flight = true;
      requests.clear();
      readers.clear();
      for_each_list([&](const auto& l) { (backwards ? l.adjoint_pack : l.pack).run(exec); });
      if constexpr (staged) {
        if (uses_host(out)) Kokkos::deep_copy(exec, out.host, out.data);
      }
      if (has_messages()) {
        // One wait for two reasons: the messages are packed, and the last unpacking has left the buffer that receives
        // now.
        static const std::string reason = "aloni::halo: messages are packed and buffers free before communication";
        exec.fence(reason);
      }
      if constexpr (staged) {
        for (const Peer& p : out.peers)
          if (p.consolidated) std::ranges::copy(bytes(out, p), p.consolidated);
      }
      if (consolidation.active()) requests.push_back(consolidation.start(backwards));
      // Instead of what the receiver reads where it lies, an empty message says that it may, and another that it has.
      for (const Peer& p : in.peers) {
        if (p.consolidated) continue;
        requests.push_back(comm.receive(payload(in, p), p.rank, tag, message_options(p)));
      }
      for (const Peer& p : out.peers) {
        if (p.consolidated) continue;
        requests.push_back(comm.send(payload(out, p), p.rank, tag, message_options(p)));
        if (is_direct(p)) readers.push_back(comm.receive({}, p.rank, tag, {.priority = priority}));
      }
      if (poisons && !backwards) {
        for_each_list([&](const auto& l) { l.poison.run(exec); });
      } else {
        for_each_list([&](const auto& l) { (backwards ? l.adjoint_local : l.local).run(exec); });
      }
    } catch (...) {
      detail::keep_forever(this->shared_from_this());
      throw;
    }
  }

  bool is_direct(const Peer& peer) const { return adjoint ? peer.direct_adjoint : peer.direct; }
  /// Whether some messages go through host memory.
  bool uses_host(const Buffer& buffer) const {
    return std::ranges::any_of(buffer.peers, [&](const Peer& p) { return !is_direct(p) && !p.on_device; });
  }
  std::span<std::byte> payload(const Buffer& buffer, const Peer& peer) const {
    if (is_direct(peer)) return {};
    if (!peer.on_device) return bytes(buffer, peer);
    return {reinterpret_cast<std::byte*>(buffer.data.data() + peer.offset), peer.bytes};
  }
  comm::MessageOptions message_options(const Peer& peer) const {
    return {.priority = priority, .on_device = peer.on_device && !is_direct(peer)};
  }

  /// Tells those whose memory this rank has read, and waits for those that read its own.
  void end_reading(const Buffer& in) {
    requests.clear();
    const bool reads_consolidated = !staged && consolidation.active();
    if (reads_consolidated || std::ranges::any_of(in.peers, [&](const Peer& p) { return is_direct(p); })) {
      static const std::string reason = "aloni::halo: the memory of other ranks has been read";
      space.fence(reason);
    }
    if (consolidation.active()) requests.push_back(consolidation.release(adjoint));
    for (const Peer& p : in.peers) {
      if (!is_direct(p)) continue;
      requests.push_back(comm.send({}, p.rank, tag, {.priority = priority}));
      comm.count_direct(p.rank, 0, bytes(in, p).size());
    }
    if (!requests.empty()) comm.wait(requests);
    if (readers.empty()) return;
    comm.wait(readers);
    const Buffer& out = adjoint ? incoming : outgoing;
    for (const Peer& p : out.peers)
      if (is_direct(p)) comm.count_direct(p.rank, bytes(out, p).size(), 0);
  }

  bool has_messages() const { return !outgoing.peers.empty() || !incoming.peers.empty(); }

  void finish() override {
    const ScopedRegion region("aloni::halo::Transfer::finish");
    try {
      if (!requests.empty()) comm.wait(requests);
    } catch (...) {
      detail::keep_forever(this->shared_from_this());
      throw;
    }
    const Buffer& in = adjoint ? outgoing : incoming;
    if constexpr (staged) {
      for (const Peer& p : in.peers)
        if (p.consolidated) std::copy_n(p.consolidated, p.bytes, bytes(in, p).data());
      if (uses_host(in)) Kokkos::deep_copy(space, in.data, in.host);
    }
    for_each_list([&](const auto& l) { (adjoint ? l.adjoint_unpack : l.unpack).run(space); });
    if (poisons && !adjoint) for_each_list([&](const auto& l) { l.local.run(space); });
    try {
      end_reading(in);
    } catch (...) {
      detail::keep_forever(this->shared_from_this());
      throw;
    }
    in_flight = false;
    set_ghost_states(adjoint ? views::GhostState::stale : views::GhostState::fresh);
  }

  /// Of the tensors that the direction changes.
  void set_ghost_states(views::GhostState state) const {
    for (const item_type& any : items) {
      std::visit(
          [&](const auto& item) {
            const auto& changed = adjoint ? item.source : item.destination;
            if (changed.ghost_state) *changed.ghost_state = state;
          },
          any);
    }
  }

  std::vector<PeerTransfer> peers() const {
    std::vector<PeerTransfer> result;
    const auto traffic = comm.traffic_by_peer();
    for (const Buffer* b : {&outgoing, &incoming}) {
      for (const Peer& p : b->peers) {
        const auto packed =
            std::span(b->places).subspan(static_cast<std::size_t>(p.first_move), static_cast<std::size_t>(p.moves));
        const bool any_packed = std::ranges::any_of(packed, [](const Place& place) { return place.is_packed != 0; });
        const Path path = p.direct         ? any_packed ? Path::packed_shared : Path::view_to_view
                          : p.consolidated ? Path::consolidated
                          : p.on_device    ? Path::message_from_device
                                           : Path::message;
        result.push_back({p.rank, b == &incoming, p.bytes, path, traffic[static_cast<std::size_t>(p.rank)].transport});
      }
    }
    return result;
  }
};

template <class Exec>
Transfer<Exec>::Transfer(const comm::Communicator& comm, const Queue<Exec>& queue, std::vector<item_type> items,
                         TransferOptions options)
    : implementation_(std::make_shared<Implementation>(comm, std::move(items), options)) {
  comm::collectively(comm, "aloni::halo::Transfer", [&] {
    implementation_->check();
    implementation_->allocate_buffers(queue.space());
  });
  implementation_->tag = agree_on_tag(comm);
  implementation_->consolidate();
  implementation_->tell_places();
  comm::collectively(comm, "aloni::halo::Transfer", [&] { implementation_->make_lists(queue.space()); });
}

template <class Exec>
Pending Transfer<Exec>::start(const Queue<Exec>& queue) const {
  if (implementation_ == nullptr) return {};
  const ScopedRegion region("aloni::halo::Transfer::start");
  implementation_->start(queue.space(), false);
  return Pending(implementation_);
}

template <class Exec>
Pending Transfer<Exec>::start_adjoint(const Queue<Exec>& queue) const {
  if (implementation_ == nullptr) return {};
  const ScopedRegion region("aloni::halo::Transfer::start_adjoint");
  implementation_->start(queue.space(), true);
  return Pending(implementation_);
}

template <class Exec>
TransferCount Transfer<Exec>::counts() const {
  return implementation_ == nullptr ? TransferCount{} : implementation_->counts;
}

template <class Exec>
std::size_t Transfer<Exec>::buffer_bytes() const {
  if (implementation_ == nullptr) return 0;
  const auto& i = *implementation_;
  return (i.outgoing.data.size() + i.incoming.data.size()) * (Implementation::staged ? 2 : 1);
}

template <class Exec>
int Transfer<Exec>::messages_between_nodes() const {
  if (implementation_ == nullptr) return 0;
  int messages = implementation_->consolidation.messages_sent(false);
  for (const auto& p : implementation_->outgoing.peers) messages += p.other_node && !p.consolidated ? 1 : 0;
  return messages;
}

template <class Exec>
std::vector<PeerTransfer> Transfer<Exec>::peers() const {
  return implementation_ == nullptr ? std::vector<PeerTransfer>{} : implementation_->peers();
}

template <class Exec>
std::string Transfer<Exec>::explain() const {
  std::string text;
  for (const PeerTransfer& p : peers()) {
    text += std::string(p.receives ? "from" : "to") + " rank " + std::to_string(p.rank) + ": " +
            std::to_string(p.bytes) + " bytes, " + name(p.path);
    if (p.path != Path::view_to_view && p.path != Path::packed_shared) text += " over " + p.transport;
    text += "\n";
  }
  return text;
}

#define INSTANTIATE(Exec) template class Transfer<Exec>;
ALONI_INSTANTIATE_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::halo
