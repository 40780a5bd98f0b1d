#include <aloni/core/comm/faulty_transport.hpp>

#include <algorithm>
#include <utility>

namespace aloni::comm {

Transport::Sent FaultyTransport::send(int peer, const Header& header, const void* data, std::uint32_t ticket) {
  if (happens(faults_.no_room)) return Sent::no_room;
  if (dead() || ++sent_ > faults_.dies_after) return Sent::copied;
  if (happens(faults_.lose)) {
    ++harm_;
    return Sent::copied;
  }
  int polls = slow() ? 1 : 0;
  if (happens(faults_.delay)) polls = std::uniform_int_distribution<int>(1, faults_.longest_delay)(random_);
  if (polls == 0) return inner_.send(peer, header, data, ticket);
  held_.push_back({peer, header, data, ticket, polls});
  return Sent::pending;
}

bool FaultyTransport::poll(Sink& sink) {
  if (dead()) return false;
  if (slow()) {
    const auto now = clock_();
    if (now < next_poll_) return false;
    next_poll_ = now + faults_.slow_by;
  }
  sink_ = &sink;
  for (std::size_t i = 0; i < held_.size();) {
    Held& h = held_[i];
    if (--h.polls > 0) {
      ++i;
      continue;
    }
    const Sent result = inner_.send(h.peer, h.header, h.data, h.ticket);
    if (result == Sent::no_room) {
      h.polls = 1;
      ++i;
      continue;
    }
    const std::uint32_t ticket = h.ticket;
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
    if (result == Sent::copied) sink.sent(ticket);
  }
  return inner_.poll(*this) || !held_.empty();
}

void FaultyTransport::arrived(const Fragment& fragment) {
  Fragment f = fragment;
  if (f.header.bytes > 0 && happens(faults_.truncate)) {
    ++harm_;
    f.header.bytes = std::uniform_int_distribution<std::uint32_t>(0, f.header.bytes - 1)(random_);
  }
  if (f.data && f.header.bytes > 0 && happens(faults_.corrupt)) {
    corrupted_.assign(f.data, f.data + f.header.bytes);
    flip_a_bit(corrupted_.data(), corrupted_.size());
    if (f.stays) inner_.release(fragment);
    f.data = corrupted_.data();
    f.stays = false;
  }
  sink_->arrived(f);
}

void FaultyTransport::fetch(const Fragment& fragment, void* to, std::uint32_t ticket) {
  if (happens(faults_.corrupt)) spoiled_.push_back({ticket, static_cast<std::byte*>(to), fragment.header.bytes});
  inner_.fetch(fragment, to, ticket);
}

void FaultyTransport::fetched(std::uint32_t ticket) {
  const auto found = std::ranges::find(spoiled_, ticket, &Spoiled::ticket);
  if (found != spoiled_.end()) {
    flip_a_bit(found->to, found->bytes);
    spoiled_.erase(found);
  }
  sink_->fetched(ticket);
}

void FaultyTransport::flip_a_bit(std::byte* data, std::size_t bytes) {
  ++harm_;
  data[std::uniform_int_distribution<std::size_t>(0, bytes - 1)(random_)] ^= std::byte{4};
}

void FaultyTransport::end_faults() {
  std::erase_if(held_, [&](const Held& h) { return dead() || h.header.bytes > 0; });
  for (Held& h : held_) h.polls = 1;
  faults_ = {};
}

void FaultyTransport::abandon() noexcept {
  held_.clear();
  spoiled_.clear();
  inner_.abandon();
}

}  // namespace aloni::comm
