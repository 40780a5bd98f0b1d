#pragma once
// Transport: the interface that every way of moving bytes between two ranks implements. Users call Communicator;
// implement this interface to add a transport.
//
// A transport moves fragments: a header, and a payload of header.bytes. It does not match messages, knows no tags and
// guarantees no order. The engine (engine/engine.hpp) finds the receive of a fragment by its header. The transport
// guarantees that each fragment arrives exactly once and complete. Ranks are ranks of the root communicator.
//
//   sender                                      receiver
//   send(peer, header, data, ticket)
//     copied: data may be reused                poll: sink.arrived(fragment)
//     pending: data is in use until               fragment.data set: read it, then release(fragment)
//       poll calls sink.sent(ticket)              null: fetch(fragment, to, ticket), then poll: sink.fetched(ticket)
//     no_room: try again after the next poll
#include <aloni/core/comm/message.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace aloni::comm {

/// Messages and payload bytes that went through a transport since its creation.
struct TrafficCounters {
  std::uint64_t messages_sent = 0, bytes_sent = 0, messages_received = 0, bytes_received = 0;

  TrafficCounters& operator+=(const TrafficCounters& o) {
    messages_sent += o.messages_sent;
    bytes_sent += o.bytes_sent;
    messages_received += o.messages_received;
    bytes_received += o.bytes_received;
    return *this;
  }
};

/// Address of a rank's memory for the other ranks of its node (shared_heap.hpp).
struct SharedAddress {
  std::uint32_t segment = 0;          ///< number of the segment; after the segment has gone, a later one has it
  std::int32_t descriptor = -1;       ///< the owner's file; -1: not in shared memory
  std::uint64_t begin = 0, size = 0;  ///< range of the segment within the file, in bytes
  std::uint64_t offset = 0;           ///< of the memory within the segment, in bytes
};

class Transport {
 public:
  enum class Sent : std::uint8_t { no_room, copied, pending };

  struct Fragment {
    int peer = -1;
    Header header{};
    const std::byte* data = nullptr;  ///< payload; null if it must be fetched (never for header.bytes 0)
    bool stays = false;               ///< true: data is valid until release(); false: only during arrived()
    std::uint64_t token = 0;          ///< private to the transport
  };

  class Sink {
   public:
    virtual ~Sink() = default;
    virtual void arrived(const Fragment& fragment) = 0;
    virtual void sent(std::uint32_t ticket) = 0;
    virtual void fetched(std::uint32_t ticket) = 0;
  };

  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  virtual std::string name() const = 0;

  /// Largest fragment of `data`, in bytes, that the transport can carry to `peer`. Positive.
  virtual std::size_t largest_fragment(int peer, const void* data, std::size_t bytes) const = 0;
  /// Sends a fragment; `header` is copied. Asynchronous: see the table above.
  virtual Sent send(int peer, const Header& header, const void* data, std::uint32_t ticket) = 0;
  /// Makes progress and reports all events to the sink; no other function calls the sink. Returns whether there was any
  /// event.
  virtual bool poll(Sink& sink) = 0;
  /// Whether all fragments have left this rank: they arrive even if this rank never polls again.
  virtual bool flushed() { return true; }
  /// Ends the use of the fragment's data. Called exactly once for each fragment with `stays`.
  virtual void release(const Fragment& fragment) = 0;
  /// Receives the payload into `to`. Asynchronous: `to` belongs to the transport until sink.fetched(ticket).
  /// @pre fragment.data is null
  virtual void fetch(const Fragment& fragment, void* to, std::uint32_t ticket) = 0;
  /// Whether send() with Header::device_path and fetch() take device memory. Equal on all ranks.
  virtual bool carries_device_memory() const { return false; }
  /// Address of this rank's memory for peers; descriptor -1 if they cannot reach it directly.
  virtual SharedAddress expose(const void*, std::size_t) const { return {}; }
  /// Pointer in this process to memory that `peer` exposed. Throws CommunicationError; Unsupported without shared
  /// memory.
  virtual std::byte* exposed(int peer, const SharedAddress& address, std::size_t bytes);
  /// As exposed(), but the memory stays mapped until the last copy of the pointer is gone.
  virtual std::shared_ptr<std::byte> open_exposed(int peer, const SharedAddress& address, std::size_t bytes) {
    return {std::shared_ptr<void>(), exposed(peer, address, bytes)};
  }
  /// After a failure: when this returns, no rank reads or writes the caller's memory. The sink is not called again.
  virtual void abandon() noexcept = 0;
};

}  // namespace aloni::comm
