#pragma once
// The messages of a transfer between devices of different nodes, as one group of the device library.
//
//   sender                                            receiver
//   kernels pack
//   group: takes a turn, sends on the device  →      group: takes a turn, receives on the device
//   message of the host: its turn             →      compares the turns; kernels unpack behind the group
//
// core/comm/grouped_messages.hpp has the order of groups, and the proof that no stream waits for ever. The hosts
// compare turns in finish(), before kernels use the values. They wait for the other host, and for no kernel.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/grouped_messages.hpp>
#include <aloni/halo/detail/peer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace aloni::halo::detail {

class MessageGroup {
 public:
  /// No message goes in a group, and this rank takes no turns.
  MessageGroup() = default;
  /// Chooses the peers on other nodes if the device library serves these ranks, and sets Peer::turn. The two ranks of a
  /// pair choose alike. Collective. Throws PeerFailed, CommunicationError.
  MessageGroup(const comm::Communicator& comm, std::vector<Peer>& outgoing, std::vector<Peer>& incoming);

  /// Whether the library serves these ranks. If so, every rank calls the functions below, also without such peers.
  explicit operator bool() const { return static_cast<bool>(groups_); }
  std::string library() const { return groups_.library(); }

  /// Where messages lie: peer p at p.offset. Runs a group in each direction, because the first one makes connections
  /// and waits for the other hosts. Collective. Throws like start().
  /// @pre the offsets of the peers are set
  void connect(std::byte* outgoing, std::byte* incoming, std::span<const Peer> outgoing_peers,
               std::span<const Peer> incoming_peers, void* stream);
  /// Takes a turn, and starts the group behind the work of `stream` so far. Sets the turns of `out`, for their messages
  /// to the other hosts. `out`: peers to which this rank sends; backwards: those of the incoming buffer.
  /// Throws PeerFailed, CommunicationError.
  void start(std::span<const Peer> out, bool backwards, void* stream);
  /// Compares the turns that the senders have told. An unequal one poisons the family and throws CommunicationError.
  void compare(const comm::Communicator& comm, std::span<const Peer> in, const std::string& transfer) const;
  /// Later work of `stream` may use the memory of all messages. Throws PeerFailed, CommunicationError.
  void finish(void* stream) const;

 private:
  using Messages = std::vector<comm::detail::DeviceMessage>;
  bool has_messages() const { return !outgoing_.empty() || !incoming_.empty(); }
  void submit(bool backwards, void* stream) const;

  comm::GroupedMessages groups_;
  std::vector<Turn> turns_;
  Messages outgoing_, incoming_;  // forward; the adjoint exchanges their roles
  std::uint64_t turn_ = 0;
};

}  // namespace aloni::halo::detail
