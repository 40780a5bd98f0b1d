#pragma once
// What travels in front of every message: who it is for, and what the sender believes that both sides are doing. Pure data.
#include <aloni/core/index.hpp>

#include <cstdint>
#include <string>
#include <type_traits>

namespace aloni::comm {

enum class OperationKind : std::uint8_t {
  message,  ///< a send or receive of the user's
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  barrier,
  user,    ///< a schedule of the user's own
  poison,  ///< the sender has failed; the payload says why
};

/// What a call is about. Equal on all ranks of one operation, or the ranks mean different things: each message carries the
/// sender's, and the receiver compares all of it with its own before it looks at the payload.
struct Contract {
  OperationKind kind{};
  std::uint8_t reduction = 0;  ///< a Reduction
  std::uint8_t type = 0;       ///< an ElementType
  std::uint8_t root = 0;       ///< of a broadcast, modulo 256; all of it is in `plan`
  std::uint32_t plan = 0;      ///< hash of all that shapes the messages: algorithm, parts, root, the user's schedule
  std::uint64_t count = 0;     ///< elements; of a message: bytes

  friend bool operator==(const Contract&, const Contract&) = default;
};
static_assert(sizeof(Contract) == 16 && std::has_unique_object_representations_v<Contract>);

/// For people: "all_reduce(sum of 1000 float)".
std::string describe(const Contract& c);

/// Which message it is. Both sides compute it; nothing depends on the order in which messages arrive.
struct MessageKey {
  std::uint32_t context = 0;    ///< of the communicator
  std::uint32_t operation = 0;  ///< its number within the communicator; of a message: its tag
  std::uint32_t part = 0;       ///< large operations run in parts; of a message: its number within the tag
  std::uint16_t index = 0;      ///< the how manyth message from this sender to this receiver within the part

  friend bool operator==(const MessageKey&, const MessageKey&) = default;
};

struct Header {
  /// Given to Transport::send as `path`: the payload lies where the host can't read it.
  static constexpr std::uint8_t device_path = 255;

  std::uint32_t context = 0, operation = 0, part = 0;
  std::uint16_t index = 0;
  std::uint8_t path = 0;  ///< the transport's own: how the payload travels
  std::uint8_t last = 1;  ///< the last fragment of the message
  Contract contract{};
  std::uint64_t offset = 0;  ///< of the fragment, bytes
  std::uint32_t bytes = 0;   ///< of the fragment
  std::uint32_t checksum = 0;

  MessageKey key() const { return {context, operation, part, index}; }
};
static_assert(sizeof(Header) == 48 && std::is_trivially_copyable_v<Header>);

/// Of one message.
struct MessageOptions {
  /// Of all that is under way on a rank, collectives too, what has the greater priority comes first.
  int priority = 0;
  /// The data lie in memory that the host can't reach; on both ranks. @pre Communicator::carries_device_memory()
  bool on_device = false;
};

}  // namespace aloni::comm
