#include <aloni/halo/detail/event_order.hpp>

#include <aloni/core/comm/device/device_sharing.hpp>

#include <span>
#include <type_traits>

namespace aloni::halo::detail {

namespace {

/// The events that a rank offers to a peer, and whether it can use those of the peer.
struct Offer {
  comm::ExposedEvent ready, read;
};
static_assert(std::is_trivially_copyable_v<Offer>, "ranks send it as bytes");

struct Talk {
  Peer* peer;
  comm::TransferMessage sent, received;
  Offer mine, theirs;
  bool usable = false, usable_there = false;
};

template <class T>
std::span<std::byte> bytes_in(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace

EventOrder::EventOrder(const comm::Communicator& comm, const comm::SharedEvents& events,
                       const comm::TransferMessages& messages, std::vector<Peer>& outgoing,
                       std::vector<Peer>& incoming) {
  using enum comm::TransferMessage;
  std::vector<Talk> talks;
  const auto add = [&](std::vector<Peer>& peers, comm::TransferMessage sent, comm::TransferMessage received) {
    for (Peer& p : peers) {
      if (!p.direct && !p.direct_adjoint) continue;  // equal on both ranks
      if (!ready_) {
        ready_ = events.next();
        read_ = events.next();
      }
      talks.push_back({&p, sent, received, {events.expose(ready_, p.rank), events.expose(read_, p.rank)}, {}});
    }
  };
  add(outgoing, values, answer);
  add(incoming, answer, values);
  const auto exchange = [&](const auto& theirs, const auto& mine) {
    std::vector<comm::Request> requests;
    messages.begin(comm::TransferDirection::setup);
    for (Talk& t : talks) requests.push_back(messages.receive(bytes_in(theirs(t)), t.peer->rank, t.received));
    for (Talk& t : talks) requests.push_back(messages.send(bytes_in(mine(t)), t.peer->rank, t.sent));
    comm.wait(requests);
  };
  exchange(
      [](Talk & t) -> auto& { return t.theirs; }, [](Talk & t) -> auto& { return t.mine; });
  for (Talk& t : talks) {
    t.peer->ready = events.open(t.theirs.ready);
    t.peer->read = events.open(t.theirs.read);
    t.usable = ready_ && read_ && t.peer->by_events();
  }
  exchange(
      [](Talk & t) -> auto& { return t.usable_there; }, [](Talk & t) -> auto& { return t.usable; });
  for (Talk& t : talks)
    if (!t.usable || !t.usable_there) t.peer->ready = t.peer->read = nullptr;
}

void EventOrder::record(comm::detail::DeviceEvent* event, void* stream) { event->record(stream); }

void EventOrder::await(comm::detail::DeviceEvent* event, void* stream) { event->await(stream); }

}  // namespace aloni::halo::detail
