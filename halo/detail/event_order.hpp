#pragma once
// Orders direct reading by events that processes share, so that no host waits for kernels. core/comm/shared_events.hpp
// says why the order is right.
//
//   sender                                           receiver
//   kernels write cells, or pack them
//   ready: record, message                    →      message, ready: await
//                                                    kernels copy the cells
//   message, read: await                      ←      read: record, message
//   kernels may overwrite the cells
//
// Each rank has one event `ready` and one event `read` for a transfer, in both directions.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/shared_events.hpp>
#include <aloni/core/comm/transfer_messages.hpp>
#include <aloni/halo/detail/peer.hpp>

#include <vector>

namespace aloni::halo::detail {

class EventOrder {
 public:
  /// The hosts wait.
  EventOrder() = default;
  /// Sets Peer::ready and Peer::read of the peers that read directly, if both ranks can use each other's events. The
  /// two ranks agree on it. Collective among neighbours. @pre agree_on_direct_reading was called; `events` are there
  EventOrder(const comm::Communicator& comm, const comm::SharedEvents& events, const comm::TransferMessages& messages,
             std::vector<Peer>& outgoing, std::vector<Peer>& incoming);

  /// After the kernels that write what peers read.
  void record_ready(void* stream) const { record(ready_, stream); }
  /// After the kernels that read from peers.
  void record_read(void* stream) const { record(read_, stream); }
  /// Before kernels that read from `peer`. @pre peer.by_events(), and its message has arrived
  static void await_ready(const Peer& peer, void* stream) { await(peer.ready, stream); }
  /// Before kernels that overwrite what `peer` has read. @pre as await_ready()
  static void await_read(const Peer& peer, void* stream) { await(peer.read, stream); }

 private:
  static void record(comm::detail::DeviceEvent* event, void* stream);
  static void await(comm::detail::DeviceEvent* event, void* stream);

  comm::detail::DeviceEvent *ready_ = nullptr, *read_ = nullptr;
};

}  // namespace aloni::halo::detail
