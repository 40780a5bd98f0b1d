#pragma once
// The one interface that every way of moving bytes between two ranks implements: non-blocking tagged send and receive
// of host memory, and progress. Users call Communicator; transports are for those who add a new one.
//
// Messages between one pair of ranks with one tag arrive in the order in which they were sent. A message is matched by
// (peer, tag) and must have exactly the size that the receiver expects; anything else is a CommunicationError there.
#include <cstddef>
#include <cstdint>
#include <string>

namespace aloni::comm {

class Transport;

/// A pending send or receive. Cheap to copy; valid until the transport's test() has returned true for it.
struct Request {
  Transport* transport = nullptr;  ///< null: nothing pending
  std::uint32_t slot = 0;
};

/// Messages and payload bytes handed to a transport since its creation.
struct TrafficCounters {
  std::uint64_t messages_sent = 0, bytes_sent = 0, messages_received = 0, bytes_received = 0;
};

class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  virtual std::string name() const = 0;

  /// Asynchronous: `data` must stay unchanged until test() returns true. @pre 0 ≤ tag ≤ Communicator::max_tag
  virtual Request send(const void* data, std::size_t bytes, int peer, int tag) = 0;
  /// Asynchronous: `data` belongs to the transport until test() returns true.
  virtual Request receive(void* data, std::size_t bytes, int peer, int tag) = 0;
  /// Makes progress; true once, when the operation is complete (the request is then spent).
  virtual bool test(Request& request) = 0;

  const TrafficCounters& counters() const { return counters_; }

 protected:
  TrafficCounters counters_;
};

}  // namespace aloni::comm
