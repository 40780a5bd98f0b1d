#pragma once
// The one interface that every way of moving bytes between two ranks implements. Users call Communicator; transports are for
// those who add a new one.
//
// A transport moves fragments: a header, and a payload of header.bytes. It matches nothing, knows no tags and promises no
// order: the engine (detail/engine.hpp) knows from the header which receive a fragment belongs to. It does promise that
// a fragment arrives once and whole. Ranks are those of the root communicator.
//
//   sender                                      receiver
//   send(peer, header, data, ticket)
//     copied: data is free again                poll: sink.arrived(fragment)
//     pending: data is in use                     fragment.data: read it there, then release(fragment)
//       poll: sink.sent(ticket), it is free       none: fetch(fragment, to, ticket), then poll: sink.fetched(ticket)
//     no_room: try again after the next poll
#include <aloni/core/comm/message.hpp>

#include <cstddef>
#include <cstdint>
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

/// Where a rank's memory lies for the other ranks of its node (shared_heap.hpp).
struct SharedAddress {
  std::uint32_t segment = 0;
  std::int32_t descriptor = -1;  ///< -1: not in shared memory
  std::uint64_t offset = 0;
};

class Transport {
 public:
  enum class Sent : std::uint8_t { no_room, copied, pending };

  struct Fragment {
    int peer = -1;
    Header header{};
    const std::byte* data = nullptr;  ///< the payload, or null when it must be fetched (never when header.bytes is 0)
    bool stays = false;               ///< data is valid until release(); otherwise during arrived() only
    std::uint64_t token = 0;          ///< the transport's own
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

  /// The most bytes of `data` that one fragment to `peer` takes. Positive.
  virtual std::size_t largest_fragment(int peer, const void* data, std::size_t bytes) const = 0;
  /// Asynchronous, see above. `header` is copied.
  virtual Sent send(int peer, const Header& header, const void* data, std::uint32_t ticket) = 0;
  /// Makes progress; calls the sink for all that has happened, but never from within another call. Returns whether anything has.
  virtual bool poll(Sink& sink) = 0;
  /// Whether all that was sent has left this rank: it arrives even if this rank never polls again.
  virtual bool flushed() { return true; }
  /// The fragment's data are no longer needed. For each fragment that `stays` exactly once.
  virtual void release(const Fragment& fragment) = 0;
  /// @pre fragment.data is null. `to` belongs to the transport until sink.fetched(ticket).
  virtual void fetch(const Fragment& fragment, void* to, std::uint32_t ticket) = 0;
  /// Whether payloads may lie in device memory, on all ranks alike: send() with Header::device_path, fetch() into such memory.
  virtual bool carries_device_memory() const { return false; }
  /// Whether `peer` can reach this rank's memory directly, and how it is found there; descriptor -1 when it can't.
  virtual SharedAddress expose(const void*, std::size_t) const { return {}; }
  /// Where `address`, made by that peer's expose(), is in this process. Throws CommunicationError.
  virtual std::byte* exposed(int peer, const SharedAddress& address, std::size_t bytes);
  /// After a failure: no memory of the caller's is written or read by anybody when this returns, no sink is called again.
  virtual void abandon() noexcept = 0;
};

}  // namespace aloni::comm
