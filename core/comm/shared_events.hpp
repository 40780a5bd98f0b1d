#pragma once
// Events between the devices of a node's ranks: kernels of one rank wait for kernels of another rank, and no host waits
// for kernels. Halo exchanges and ViewAllReduce use them.
//
//   const SharedEvents events(comm);                        // false if this rank has no device
//   detail::DeviceEvent* mine = events.next();              // null if the device refuses
//   comm.send(bytes of events.expose(mine, peer), …);       // once, at set-up
//   detail::DeviceEvent* theirs = events.open(exposed);     // on the peer; null if it cannot
//
//   owner, each time                                        // reader, each time
//   kernels write x
//   mine->record(stream)
//   comm.send({}, reader, tag)              →               comm.wait(comm.receive({}, owner, tag))
//                                                           theirs->await(stream)
//                                                           kernels read x of the owner
//
// Why the order is right. An event is recorded again and again. await() stands for the last record() before the call of
// await(). These are calls of two hosts, so something must order them. A message does: its sender calls record(), then
// sends; its receiver receives, then calls await(). So await() stands for this record() or for a later one, never for
// an earlier one: the kernels that it waits for include those that it must wait for. A later record() only makes the
// stream wait longer. It cannot make streams wait for each other: each stream waits for work that was submitted before
// it was told to wait, so there is no circle. For this reason one event may serve many transfers at once, and a process
// needs few of them (DeviceSharing::max_events). The message is empty and needs no kernel to be complete. Hosts
// therefore run ahead of their devices, but no host runs ahead of the host of a neighbour by more than one transfer.
//
// Why not without a message: a stream could wait for a number in memory that both devices reach, which a kernel of the
// other rank writes. A rank that dies then leaves a stream that waits for ever and that no host can end.
//
// An event is never destroyed, because operations on an opened event after its owner has destroyed it are undefined.
#include <aloni/core/comm/communicator.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace aloni::comm {

namespace detail {
class DeviceEvent;
}  // namespace detail

/// Trivially copyable: it is sent as bytes.
struct ExposedEvent {
  std::uint32_t exists = 0;
  std::array<std::byte, 64> handle{};
};

/// The events of this rank, and the opened ones of others. Pointers to events are valid as long as the communicator.
class SharedEvents {
 public:
  /// There are none.
  SharedEvents() = default;
  /// Not collective.
  explicit SharedEvents(const Communicator& comm);

  /// Whether this process has a device. Equal on all ranks.
  explicit operator bool() const { return device_ != nullptr; }
  /// For people: this rank's device. @pre there is one
  std::string device_name() const;
  /// An event of this rank, from the pool of its process. Null if the device has none for other processes.
  detail::DeviceEvent* next() const;
  /// How `peer` opens an event of this rank. It does not exist for ranks of other nodes, and if `event` is null.
  ExposedEvent expose(const detail::DeviceEvent* event, int peer) const;
  /// An event of another rank. Null if it does not exist, or cannot be opened.
  detail::DeviceEvent* open(const ExposedEvent& event) const;

  /// Whether kernels must be handed to submit(); see DeviceSharing::defers().
  bool defers() const;
  void submit(void* stream, std::function<void()> kernels) const;
  /// Returns when the work of `stream` is complete. Makes progress meanwhile, and checks the other ranks: the stream
  /// may wait for the event of a rank that has failed. Throws PeerFailed, and CommunicationError with the error text of
  /// the device.
  void wait(void* stream) const;

 private:
  std::shared_ptr<Communicator::State> state_;
  std::shared_ptr<detail::DeviceSharing> device_;
};

}  // namespace aloni::comm
