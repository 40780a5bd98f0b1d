#pragma once
// The header of every fragment: which message it belongs to, and the sender's contract. Pure data.
#include <aloni/core/comm/reduction.hpp>
#include <aloni/core/index.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace aloni::comm {

enum class OperationKind : std::uint8_t {
  message,  ///< a send or receive of the user
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  barrier,
  user,      ///< a schedule of the user
  poison,    ///< the sender has failed; the payload is the reason
  transfer,  ///< a message of a halo transfer (transfer_messages.hpp)
  mail,      ///< a message that its receiver does not expect (mailbox.hpp)
};

/// The direction of a round of a transfer.
enum class TransferDirection : std::uint8_t { setup, forward, adjoint };

/// Describes a call. It must be equal on all ranks of one operation. Each message carries the sender's contract; the
/// receiver compares it with its own before it reads the payload.
struct Contract {
  OperationKind kind{};
  std::uint8_t reduction = 0;  ///< a Reduction
  std::uint8_t type = 0;       ///< an ElementType
  /// Of a broadcast: the root modulo 256 (`plan` contains the whole number). Of a reduction: its flags and
  /// `algorithm_unit` times its AllReduceAlgorithm. Of a transfer or schedule: its TransferDirection.
  std::uint8_t variant = 0;
  /// Hash of algorithm, parts, root, the user's schedule and fused members. Of a message: its tag. Of a mail: its kind.
  /// Of a transfer: hash of its element types.
  std::uint32_t plan = 0;
  std::uint64_t count = 0;  ///< number of elements; of a message: of bytes

  static constexpr std::uint8_t reproducible = 1, fused = 2, algorithm_unit = 4;

  friend bool operator==(const Contract&, const Contract&) = default;
};
static_assert(sizeof(Contract) == 16 && std::has_unique_object_representations_v<Contract>);

/// "all_reduce"
std::string_view name(OperationKind kind);
/// Text for error messages: "all_reduce(sum of 1000 float)".
std::string describe(const Contract& c);

/// Identifies a message between two ranks. Both ranks compute the key; the order of arrival does not matter.
struct MessageKey {
  std::uint32_t context = 0;  ///< number of the communicator
  /// Number of the operation within the communicator; of a user message: its tag; of a transfer: its number. Of a mail:
  /// its kind.
  std::uint32_t operation = 0;
  /// Number of the part; of a user message: its number within the tag; of a transfer: its number within the transfer.
  /// Of a mail: its number among those of its sender.
  std::uint32_t part = 0;
  std::uint16_t index = 0;  ///< number of the message from this sender to this receiver within the part

  friend bool operator==(const MessageKey&, const MessageKey&) = default;
};

struct Header {
  /// Value of `path` for Transport::send: the payload lies in device memory, which the host cannot read.
  static constexpr std::uint8_t device_path = 255;

  std::uint32_t context = 0, operation = 0, part = 0;
  std::uint16_t index = 0;
  std::uint8_t path = 0;  ///< how the payload travels; private to the transport
  std::uint8_t last = 1;  ///< 1 for the last fragment of the message
  Contract contract{};
  std::uint64_t offset = 0;    ///< first byte of the fragment within the message
  std::uint32_t bytes = 0;     ///< payload bytes of the fragment
  std::uint32_t checksum = 0;  ///< CRC32C of the payload; 0 without checksums

  MessageKey key() const { return {context, operation, part, index}; }
};
static_assert(sizeof(Header) == 48 && std::is_trivially_copyable_v<Header>);

/// Options of one message.
struct MessageOptions {
  /// A rank works on pending operations, messages and collectives alike, in descending order of priority.
  int priority = 0;
  /// The data lie in device memory, on both ranks. @pre Communicator::carries_device_memory()
  bool on_device = false;
  /// Element type of both sides. `bytes` and `user` fit any type. Spans of values set it.
  ElementType type = ElementType::bytes;
};

}  // namespace aloni::comm
