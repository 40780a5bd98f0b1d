#include <aloni/core/comm/self_transport.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <cstring>

namespace aloni::comm {

std::uint32_t SelfTransport::add(const Slot& slot) {
  if (free_.empty()) {
    slots_.push_back(slot);
    return static_cast<std::uint32_t>(slots_.size() - 1);
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  slots_[index] = slot;
  return index;
}

std::int64_t SelfTransport::take(std::vector<std::uint32_t>& waiting, int tag) {
  const auto found = std::ranges::find_if(waiting, [&](std::uint32_t index) { return slots_[index].tag == tag; });
  if (found == waiting.end()) return -1;
  const std::int64_t index = *found;
  waiting.erase(found);
  return index;
}

void SelfTransport::deliver(Slot& send, Slot& receive) {
  receive.sent_bytes = send.bytes;
  receive.stage = send.bytes == receive.bytes ? Stage::done : Stage::wrong_size;
  if (receive.stage == Stage::done && send.bytes > 0) std::memcpy(receive.target, send.source, send.bytes);
  send.stage = Stage::done;  // as with any transport, the error belongs to the receiver
}

Request SelfTransport::send(const void* data, std::size_t bytes, int /*peer*/, int tag) {
  ++counters_.messages_sent;
  counters_.bytes_sent += bytes;
  const std::uint32_t index = add({.source = data, .bytes = bytes, .tag = tag});
  if (const auto receive = take(receives_, tag); receive >= 0) {
    deliver(slots_[index], slots_[receive]);
  } else {
    sends_.push_back(index);
  }
  return {this, index};
}

Request SelfTransport::receive(void* data, std::size_t bytes, int /*peer*/, int tag) {
  ++counters_.messages_received;
  counters_.bytes_received += bytes;
  const std::uint32_t index = add({.target = data, .bytes = bytes, .tag = tag});
  if (const auto send = take(sends_, tag); send >= 0) {
    deliver(slots_[send], slots_[index]);
  } else {
    receives_.push_back(index);
  }
  return {this, index};
}

bool SelfTransport::test(Request& request) {
  const Slot& slot = slots_[request.slot];
  if (slot.stage == Stage::pending) return false;
  free_.push_back(request.slot);
  request.transport = nullptr;
  if (slot.stage == Stage::wrong_size) {
    throw CommunicationError("aloni::comm::receive",
                             "message from this rank to itself, tag " + std::to_string(slot.tag),
                             std::to_string(slot.sent_bytes) + " bytes", std::to_string(slot.bytes) + " bytes");
  }
  return true;
}

}  // namespace aloni::comm
