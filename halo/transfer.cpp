#include <aloni/halo/transfer.hpp>

#include <aloni/core/comm/event_queue.hpp>
#include <aloni/core/comm/reduction.hpp>
#include <aloni/core/comm/transfer_messages.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/machine.hpp>
#include <aloni/core/profiling.hpp>
#include <aloni/halo/detail/consolidation.hpp>
#include <aloni/halo/detail/direct_reading.hpp>
#include <aloni/halo/detail/event_order.hpp>
#include <aloni/halo/detail/message_buffer.hpp>
#include <aloni/halo/detail/message_group.hpp>
#include <aloni/halo/detail/transfer_base.hpp>
#include <aloni/halo/detail/transfer_items.hpp>
#include <aloni/halo/detail/transfer_lists.hpp>
#include <aloni/views/detail/instantiate.hpp>

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::halo {

namespace {

using detail::Peer;

/// The element types of all items, in order.
template <class MemorySpace>
std::vector<comm::ElementType> types_of(const std::vector<AnyTransferItem<MemorySpace>>& items) {
  std::vector<comm::ElementType> types;
  for (const auto& any : items) {
    types.push_back(std::visit(
        [](const auto& item) { return comm::element_type<std::remove_cvref_t<decltype(*item.source.data.data())>>(); },
        any));
  }
  return types;
}

template <class MemorySpace>
TransferCount count_all(const std::vector<AnyTransferItem<MemorySpace>>& items) {
  TransferCount sum;
  for (const auto& any : items) {
    const TransferCount c = count(detail::plan_of(any));
    sum.sent_elements += c.sent_elements;
    sum.received_elements += c.received_elements;
    sum.local_elements += c.local_elements;
    sum.filled_elements += c.filled_elements;
  }
  return sum;
}

/// The sizes that decide between paths, as a line of text.
std::string limits_text(std::size_t direct_bytes, std::size_t consolidate_below) {
  constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();
  std::string text = "within a node: ";
  if (direct_bytes >= static_cast<std::size_t>(unlimited_bytes)) {
    text += "sent";
  } else {
    text += "copied from " + std::to_string(direct_bytes) + " bytes on";
  }
  text += "; between nodes: ";
  if (consolidate_below == unlimited) {
    text += "consolidated";
  } else if (consolidate_below == 0) {
    text += "not consolidated";
  } else {
    text += "consolidated below " + std::to_string(consolidate_below) + " bytes on average";
  }
  return text + "\n";
}

}  // namespace

const char* name(Path path) {
  switch (path) {
    case Path::view_to_view:
      return "copied from View to View";
    case Path::packed_shared:
      return "packed by the sender, copied from its buffer";
    case Path::message:
      return "a message";
    case Path::message_from_device:
      return "a message from device memory";
    case Path::grouped:
      return "in a group of messages from device memory";
    case Path::consolidated:
      break;
  }
  return "in one message for the whole node";
}

// One transfer: set up by the constructor, then started and finished many times.
template <class Exec>
struct Transfer<Exec>::Implementation : detail::TransferBase, std::enable_shared_from_this<Implementation> {
  using Buffer = detail::MessageBuffer<Exec>;
  static constexpr bool staged = Buffer::staged;
  static constexpr auto values = comm::TransferMessage::values, answer = comm::TransferMessage::answer;

  comm::Communicator comm;
  comm::TransferMessages messages;
  std::string label;
  std::vector<item_type> items;
  TransferCount counts;

  Buffer outgoing, incoming;  // in the forward direction; the adjoint exchanges their roles
  int priority;
  bool poisons;
  std::size_t direct_bytes, consolidate_below;  // of the options
  detail::TransferLists<Exec> lists;
  comm::EventQueue<Exec> event_queue;
  detail::EventOrder events;
  std::vector<comm::Request> requests, readers;
  detail::Consolidation consolidation;
  detail::MessageGroup group;

  bool in_flight = false, adjoint = false;
  Exec space{};

  Implementation(const comm::Communicator& c, const Exec& exec, std::vector<item_type> all,
                 const TransferOptions& options)
      : comm(c),
        label("aloni::halo::" + options.label),
        items(std::move(all)),
        priority(options.priority),
        poisons(options.poison),
        direct_bytes(options.direct_bytes),
        consolidate_below(options.consolidate_below),
        event_queue(c) {
    comm::collectively(comm, "aloni::halo::Transfer", [&] {
      for (const item_type& any : items) std::visit([&](const auto& item) { detail::check(item, comm.size()); }, any);
      outgoing = Buffer(comm, items, &TransferPlan::sends);
      incoming = Buffer(comm, items, &TransferPlan::receives);
      requests.reserve(outgoing.peers.size() + incoming.peers.size() + 1);
      readers.reserve(std::max(outgoing.peers.size(), incoming.peers.size()));
    });
    messages = comm::TransferMessages(comm, types_of<memory_space>(items), label);
    const bool on_device = staged || event_queue.events().defers();
    if (on_device && options.order == StartOrder::same)
      group = detail::MessageGroup(comm, outgoing.peers, incoming.peers);
    consolidation =
        detail::consolidate(comm, outgoing.peers, incoming.peers, options.consolidate_below, options.priority);
    comm::collectively(comm, "aloni::halo::Transfer", [&] {
      outgoing.allocate(comm, exec, label + ", outgoing");
      incoming.allocate(comm, exec, label + ", incoming");
    });
    detail::agree_on_direct_reading(comm, messages, options.direct_bytes, items, outgoing, incoming);
    if (event_queue) events = detail::EventOrder(comm, event_queue.events(), messages, outgoing.peers, incoming.peers);
    comm::collectively(comm, "aloni::halo::Transfer", [&] {
      lists = detail::TransferLists<Exec>(exec, label, items, outgoing, incoming, poisons);
      counts = count_all<memory_space>(items);
      counts.sent_messages = static_cast<Index>(outgoing.peers.size());
      counts.received_messages = static_cast<Index>(incoming.peers.size());
    });
    if (group) {
      group.connect(bytes_of(outgoing), bytes_of(incoming), outgoing.peers, incoming.peers, event_queue.stream(exec));
    }
  }
  static std::byte* bytes_of(const Buffer& buffer) { return reinterpret_cast<std::byte*>(buffer.data.data()); }

  const comm::Communicator& communicator() const override { return comm; }
  bool waits_for_messages() const override { return has_messages(); }
  bool has_messages() const { return !outgoing.peers.empty() || !incoming.peers.empty(); }

  void start(const Exec& exec, bool backwards) {
    if (in_flight)
      throw InvalidArgument("aloni::halo::Transfer::start", "transfer", label,
                            "a transfer that is not in flight; call finish() on its Pending first");
    const Buffer& out = backwards ? incoming : outgoing;
    const Buffer& in = backwards ? outgoing : incoming;
    space = exec;
    adjoint = backwards;
    if (!backwards) set_ghost_states(views::GhostState::stale);
    try {
      in_flight = true;
      requests.clear();
      readers.clear();
      if (has_messages())
        messages.begin(backwards ? comm::TransferDirection::adjoint : comm::TransferDirection::forward);
      event_queue.submit(exec, [this, exec, backwards] { lists.pack(exec, backwards); });
      if constexpr (staged) {
        if (uses_host(out)) Kokkos::deep_copy(exec, out.host, out.data);
      }
      if (group) group.start(out.peers, backwards, event_queue.stream(exec));
      if (any_by_events(out)) events.record_ready(event_queue.stream(exec));
      if (consolidation.active() || any_for_hosts(out) || any_for_hosts(in)) {
        // One fence for two reasons: the messages are packed, and the last unpacking no longer reads the buffer that
        // now receives.
        static const std::string reason = "aloni::halo: messages are packed and buffers free before communication";
        event_queue.fence(exec, reason);
      }
      if constexpr (staged) {
        for (const Peer& p : out.peers)
          if (p.consolidated) std::ranges::copy(out.in_host(p), p.consolidated);
      }
      if (consolidation.active()) requests.push_back(consolidation.start(backwards));
      // For direct reading, an empty message from the sender allows the receiver to read. The receiver answers with an
      // empty message after it has read. For a group, the message is the sender's turn.
      for (const Peer& p : in.peers) {
        if (p.consolidated) continue;
        requests.push_back(messages.receive(payload(in, p), p.rank, values, message_options(p)));
      }
      for (const Peer& p : out.peers) {
        if (p.consolidated) continue;
        requests.push_back(messages.send(payload(out, p), p.rank, values, message_options(p)));
        if (is_direct(p)) readers.push_back(messages.receive({}, p.rank, answer, {.priority = priority}));
      }
      event_queue.submit(exec, [this, exec, backwards] {
        if (poisons && !backwards) {
          lists.poison(exec);
        } else {
          lists.copy_local(exec, backwards);
        }
      });
    } catch (...) {
      detail::keep_forever(this->shared_from_this());
      throw;
    }
  }

  bool is_direct(const Peer& peer) const { return peer.is_direct(adjoint); }
  /// Whether the peer copies the values directly, or this rank from the peer, and kernels wait for kernels.
  bool is_by_events(const Peer& peer) const { return is_direct(peer) && peer.by_events(); }
  bool any_by_events(const Buffer& buffer) const {
    return std::ranges::any_of(buffer.peers, [&](const Peer& p) { return is_by_events(p); });
  }
  /// Whether a host sends or receives values, or waits until they can be read.
  bool any_for_hosts(const Buffer& buffer) const {
    return std::ranges::any_of(buffer.peers, [&](const Peer& p) { return !is_by_events(p) && !p.grouped(); });
  }
  /// Whether any message goes through host memory.
  bool uses_host(const Buffer& buffer) const {
    return std::ranges::any_of(buffer.peers,
                               [&](const Peer& p) { return !is_direct(p) && !p.on_device && !p.grouped(); });
  }
  std::span<std::byte> payload(const Buffer& buffer, const Peer& peer) const {
    if (is_direct(peer)) return {};
    if (peer.grouped()) return std::as_writable_bytes(std::span(peer.turn, 1));
    return peer.on_device ? buffer.in_data(peer) : buffer.in_host(peer);
  }
  comm::MessageOptions message_options(const Peer& peer) const {
    return {.priority = priority, .on_device = peer.on_device && !is_direct(peer)};
  }

  /// Tells the ranks whose memory this rank has read, and waits for the ranks that read this rank's memory. By events,
  /// the queue waits for the kernels of readers, and the host only for their hosts.
  void end_reading(const Buffer& in) {
    requests.clear();
    if (any_by_events(in)) events.record_read(event_queue.stream(space));
    const bool reads_consolidated = !staged && consolidation.active();
    if (reads_consolidated ||
        std::ranges::any_of(in.peers, [&](const Peer& p) { return is_direct(p) && !p.by_events(); })) {
      static const std::string reason = "aloni::halo: the memory of other ranks has been read";
      event_queue.fence(space, reason);
    }
    if (consolidation.active()) requests.push_back(consolidation.release(adjoint));
    for (const Peer& p : in.peers) {
      if (!is_direct(p)) continue;
      requests.push_back(messages.send({}, p.rank, answer, {.priority = priority}));
      comm.count_direct(p.rank, 0, p.bytes);
    }
    if (!requests.empty()) comm.wait(requests);
    if (readers.empty()) return;
    comm.wait(readers);
    const Buffer& out = adjoint ? incoming : outgoing;
    for (const Peer& p : out.peers) {
      if (is_by_events(p)) events.await_read(p, event_queue.stream(space));
      if (is_direct(p)) comm.count_direct(p.rank, p.bytes, 0);
    }
  }

  void end_group() const {
    group.finish(event_queue.stream(space));
    for (const Peer& p : outgoing.peers)
      if (p.grouped()) comm.count_direct(p.rank, adjoint ? 0 : p.bytes, adjoint ? p.bytes : 0);
    for (const Peer& p : incoming.peers)
      if (p.grouped()) comm.count_direct(p.rank, adjoint ? p.bytes : 0, adjoint ? 0 : p.bytes);
  }

  void finish() override {
    const ScopedRegion region("aloni::halo::Transfer::finish");
    try {
      if (!requests.empty()) comm.wait(requests);
      if (group) group.compare(comm, adjoint ? outgoing.peers : incoming.peers, label);
    } catch (...) {
      detail::keep_forever(this->shared_from_this());
      throw;
    }
    const Buffer& in = adjoint ? outgoing : incoming;
    if constexpr (staged) {
      for (const Peer& p : in.peers)
        if (p.consolidated) std::copy_n(p.consolidated, p.bytes, in.in_host(p).data());
      if (uses_host(in)) Kokkos::deep_copy(space, in.data, in.host);
    }
    try {
      for (const Peer& p : in.peers)
        if (is_by_events(p)) events.await_ready(p, event_queue.stream(space));
      if (group) end_group();
      event_queue.submit(space, [this, exec = space, backwards = adjoint] {
        lists.unpack(exec, backwards);
        if (poisons && !backwards) lists.copy_local(exec, false);
      });
      end_reading(in);
    } catch (...) {
      detail::keep_forever(this->shared_from_this());
      throw;
    }
    in_flight = false;
    set_ghost_states(adjoint ? views::GhostState::stale : views::GhostState::fresh);
  }

  /// Sets the ghost state of the tensors that this direction changes.
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
        const bool any_packed =
            std::ranges::any_of(packed, [](const detail::Place& place) { return place.is_packed != 0; });
        const Path path = p.direct         ? any_packed ? Path::packed_shared : Path::view_to_view
                          : p.grouped()    ? Path::grouped
                          : p.consolidated ? Path::consolidated
                          : p.on_device    ? Path::message_from_device
                                           : Path::message;
        const std::string transport =
            p.grouped() ? group.library() : traffic[static_cast<std::size_t>(p.rank)].transport;
        result.push_back({p.rank, b == &incoming, p.bytes, path, transport, p.direct && p.by_events()});
      }
    }
    return result;
  }
};

template <class Exec>
Transfer<Exec>::Transfer(const comm::Communicator& comm, const Queue<Exec>& queue, std::vector<item_type> items,
                         TransferOptions options)
    : implementation_(std::make_shared<Implementation>(comm, queue.space(), std::move(items), options)) {}

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
  return i.outgoing.bytes() + i.incoming.bytes() + i.consolidation.bytes();
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
  const bool orders_by_events = implementation_ != nullptr && implementation_->event_queue;
  for (const PeerTransfer& p : peers()) {
    text += std::string(p.receives ? "from" : "to") + " rank " + std::to_string(p.rank) + ": " +
            std::to_string(p.bytes) + " bytes, " + name(p.path);
    const bool copied = p.path == Path::view_to_view || p.path == Path::packed_shared;
    if (!copied) text += " over " + p.transport;
    if (copied && orders_by_events) text += p.by_events ? ", ordered by events" : ", ordered by the hosts";
    text += "\n";
  }
  return text.empty() ? text : text + limits_text(implementation_->direct_bytes, implementation_->consolidate_below);
}

#define INSTANTIATE(Exec) template class Transfer<Exec>;
ALONI_INSTANTIATE_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::halo
