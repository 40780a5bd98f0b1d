#include <aloni/halo/detail/message_group.hpp>

#include <aloni/core/error.hpp>

#include <string>

namespace aloni::halo::detail {

MessageGroup::MessageGroup(const comm::Communicator& comm, std::vector<Peer>& outgoing, std::vector<Peer>& incoming) {
  const auto& nodes = comm.ranks_by_node();
  if (nodes.size() < 2) return;
  groups_ = comm::GroupedMessages(comm);
  if (!groups_) return;
  std::vector<std::size_t> node_of(static_cast<std::size_t>(comm.size()));
  for (std::size_t n = 0; n < nodes.size(); ++n)
    for (const int rank : nodes[n]) node_of[static_cast<std::size_t>(rank)] = n;
  turns_.resize(outgoing.size() + incoming.size());
  std::size_t next = 0;
  for (std::vector<Peer>* const peers : {&outgoing, &incoming}) {
    for (Peer& p : *peers) {
      Turn& turn = turns_[next++];
      const bool far = node_of[static_cast<std::size_t>(p.rank)] != node_of[static_cast<std::size_t>(comm.rank())];
      if (!far || p.bytes == 0) continue;
      p.turn = &turn;
      p.on_device = false;  // the message that the host sends instead is its turn
    }
  }
}

void MessageGroup::connect(std::byte* outgoing, std::byte* incoming, std::span<const Peer> outgoing_peers,
                           std::span<const Peer> incoming_peers, void* stream) {
  const auto place = [](std::span<const Peer> peers, std::byte* buffer) {
    Messages messages;
    for (const Peer& p : peers)
      if (p.grouped()) messages.push_back({p.rank, buffer + p.offset, p.bytes});
    return messages;
  };
  outgoing_ = place(outgoing_peers, outgoing);
  incoming_ = place(incoming_peers, incoming);
  for (const bool backwards : {false, true}) {
    turn_ = groups_.take_turn();
    submit(backwards, stream);
    finish(stream);
  }
}

void MessageGroup::submit(bool backwards, void* stream) const {
  if (!has_messages()) return;
  groups_.start(backwards ? incoming_ : outgoing_, backwards ? outgoing_ : incoming_, stream);
}

void MessageGroup::start(std::span<const Peer> out, bool backwards, void* stream) {
  turn_ = groups_.take_turn();
  for (const Peer& p : out)
    if (p.grouped()) *p.turn = {turn_, p.bytes};
  submit(backwards, stream);
}

void MessageGroup::compare(const comm::Communicator& comm, std::span<const Peer> in,
                           const std::string& transfer) const {
  const auto text = [](const Turn& turn) {
    return std::to_string(turn.bytes) + " bytes in operation " + std::to_string(turn.number);
  };
  for (const Peer& p : in) {
    const Turn mine{turn_, p.bytes};
    if (!p.grouped() || (p.turn->number == mine.number && p.turn->bytes == mine.bytes)) continue;
    const CommunicationError error(
        transfer, "group of messages of " + library() + ", from rank " + std::to_string(p.rank), text(*p.turn),
        text(mine) +
            ": all ranks start transfers with StartOrder::same, and all-reduces of device memory, in one order");
    comm.poison(error.what());
    throw error;
  }
}

void MessageGroup::finish(void* stream) const {
  if (has_messages()) groups_.finish(stream);
}

}  // namespace aloni::halo::detail
