#pragma once
// Transport from a rank to itself. The received fragment is the sender's memory: one copy moves the payload, without a
// buffer.
#include <aloni/core/comm/transport.hpp>

#include <string>
#include <vector>

namespace aloni::comm::detail {

class SelfTransport final : public Transport {
 public:
  std::string name() const override { return "self"; }
  std::size_t largest_fragment(int, const void*, std::size_t) const override { return std::size_t{1} << 30; }
  Sent send(int peer, const Header& header, const void* data, std::uint32_t ticket) override {
    sent_.push_back(
        {.peer = peer, .header = header, .data = static_cast<const std::byte*>(data), .stays = true, .token = ticket});
    return Sent::pending;
  }
  bool poll(Sink& sink) override {
    // Takes the releases first: the sink may release fragments that arrive in this call.
    const bool any = !sent_.empty() || !released_.empty();
    polled_.swap(sent_);
    finished_.swap(released_);
    for (const std::uint32_t ticket : finished_) sink.sent(ticket);
    for (const Fragment& fragment : polled_) sink.arrived(fragment);
    finished_.clear();
    polled_.clear();
    return any;
  }
  void release(const Fragment& fragment) override { released_.push_back(static_cast<std::uint32_t>(fragment.token)); }
  void fetch(const Fragment&, void*, std::uint32_t) override {}
  void abandon() noexcept override {}

 private:
  std::vector<Fragment> sent_, polled_;
  std::vector<std::uint32_t> released_, finished_;
};

}  // namespace aloni::comm::detail
