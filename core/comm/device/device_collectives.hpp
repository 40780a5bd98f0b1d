#pragma once
// A vendor library for communication between devices (NCCL), for one communicator: all-reduces and grouped messages.
// grouped_messages.hpp says in which order ranks may start its operations.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/reduction.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace aloni::comm::detail {

/// A message of a group: bytes of device memory to send to a rank of the communicator, or to receive from it.
struct DeviceMessage {
  int peer = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

/// Orders streams of this process. Throws CommunicationError with the text of the device.
class StreamEvent {
 public:
  virtual ~StreamEvent() = default;
  /// The event now stands for the work submitted to `stream` so far.
  virtual void record(void* stream) = 0;
  /// Later work of `stream` waits for the work of the last record() before this call. The host does not wait.
  virtual void await(void* stream) = 0;
};

class DeviceCollectives {
 public:
  virtual ~DeviceCollectives() = default;
  /// For people: "NCCL".
  virtual std::string library() const = 0;

  /// Starts an all-reduce in place, in the order of `stream`. Collective. Throws PeerFailed if a rank has failed;
  /// CommunicationError with the error text of the library.
  virtual void start_all_reduce(const Communicator& comm, void* data, std::size_t count, ElementType type, Reduction op,
                                void* stream) = 0;

  /// The stream of all groups of this communicator: the communication stream.
  virtual void* group_stream() = 0;
  /// For the order between group_stream() and other streams.
  virtual std::unique_ptr<StreamEvent> make_event() = 0;
  /// Submits a group to group_stream(). Its messages progress together, and the stream goes on when all are complete.
  /// The k-th message to a rank meets the k-th message that this rank receives from here; both have the same length.
  /// The first group with a rank waits until that rank submits its group. Later groups wait for no rank, if earlier
  /// operations of the library complete. Collective among the ranks that exchange messages. Throws like
  /// start_all_reduce(). @pre bytes > 0
  virtual void submit_group(const Communicator& comm, std::span<const DeviceMessage> sends,
                            std::span<const DeviceMessage> receives) = 0;

  /// Ends start_all_reduce() or a group: later work of its stream sees the result. The host does not wait. A failure
  /// that shows only later is found by look(). Throws like start_all_reduce().
  virtual void finish(const Communicator& comm) = 0;
  /// Throws CommunicationError if an operation has failed. Not collective; returns at once. The runtime of the family
  /// calls it while it makes progress.
  virtual void look() = 0;
  /// Ends all pending operations, so that no stream waits for a failed rank. Later calls throw. Thread-safe. The
  /// runtime calls it when the family is poisoned.
  virtual void end_all() noexcept = 0;

  /// The number of the next operation, from 1 on. Every rank of the communicator takes one for each operation, also if
  /// it has no messages in it.
  std::uint64_t take_turn() { return ++turns_; }

 private:
  std::uint64_t turns_ = 0;
};

/// Returns null on all ranks if the build has no device library, or if two ranks share a device. Collective.
std::shared_ptr<DeviceCollectives> make_device_collectives(const Communicator& comm);

}  // namespace aloni::comm::detail
