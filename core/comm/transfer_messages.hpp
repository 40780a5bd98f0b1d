#pragma once
// The messages of one transfer of cells between ranks (halo/transfer.hpp). Users send messages with tags
// (Communicator::send); these never meet messages of transfers, and transfers never meet each other.
//
//   TransferMessages messages(comm, types, "aloni::halo::exchange");      // collective
//   messages.begin(TransferDirection::forward);                           // on all ranks: the next round
//   Request r = messages.receive(ghosts, left, TransferMessage::values);
//   Request s = messages.send(cells, right, TransferMessage::values);
//
// In one round, a rank sends at most one message of each kind to another rank. Each message carries direction, bytes
// and element types. A difference throws CommunicationError on the rank that finds it, and PeerFailed on the others. A
// rank finds it also if it expects no message of the sender in its own direction.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/message.hpp>
#include <aloni/core/comm/reduction.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace aloni::comm {

enum class TransferMessage : std::uint8_t {
  values,
  answer  ///< back to the sender of values
};

class TransferMessages {
 public:
  /// Without messages.
  TransferMessages() = default;
  /// The ranks agree on a number that no other transfer uses. `types`: of the fields, in order; equal on all ranks.
  /// `name`: for error texts. Collective. Throws Unsupported on all ranks after 2^32 transfers.
  TransferMessages(const Communicator& comm, std::span<const ElementType> types, std::string name);

  /// Begins the next round. Collective among the ranks that exchange messages; returns at once.
  /// Throws CommunicationError if a message of this round has arrived with another direction, and PeerFailed.
  void begin(TransferDirection direction) const;
  /// Messages of the current round, as Communicator::send and receive.
  [[nodiscard]] Request send(std::span<const std::byte> data, int peer, TransferMessage kind,
                             const MessageOptions& options = {}) const;
  [[nodiscard]] Request receive(std::span<std::byte> data, int peer, TransferMessage kind,
                                const MessageOptions& options = {}) const;

 private:
  struct Implementation;
  std::shared_ptr<Implementation> implementation_;
};

}  // namespace aloni::comm
