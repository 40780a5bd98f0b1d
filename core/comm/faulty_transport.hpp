#pragma once
// Any transport with faults, for tests: what happens to which fragment follows from the seed and the order of the calls alone, so that a
// failure over a transport that is as predictable can be replayed.
//
//   FaultyTransport faulty(shared, {.seed = 7, .delay = 0.3});
//   Engine engine(rank, {…, &faulty, …}, memory);
#include <aloni/core/comm/faults.hpp>
#include <aloni/core/comm/transport.hpp>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace aloni::comm {

class FaultyTransport final : public Transport, private Transport::Sink {
 public:
  using Sink = Transport::Sink;  // not the base class of that name

  /// `inner` outlives this and is polled by nobody else.
  FaultyTransport(Transport& inner, const Faults& faults) : inner_(inner), faults_(faults), random_(faults.seed) {}

  /// How many fragments were truncated, corrupted or lost.
  std::uint64_t harm() const { return harm_; }
  bool dead() const { return sent_ > faults_.dies_after; }
  /// Before the end, when nobody waits for pending operations any more: nothing goes wrong from here on, and what is delayed leaves at the
  /// next poll, unless it has a payload, which may be gone.
  void end_faults();

  std::string name() const override { return "faulty " + inner_.name(); }
  std::size_t largest_fragment(int peer, const void* data, std::size_t bytes) const override {
    return inner_.largest_fragment(peer, data, bytes);
  }
  Sent send(int peer, const Header& header, const void* data, std::uint32_t ticket) override;
  bool poll(Sink& sink) override;
  /// What is lost counts as gone.
  bool flushed() override { return dead() || (held_.empty() && inner_.flushed()); }
  void release(const Fragment& fragment) override { inner_.release(fragment); }
  void fetch(const Fragment& fragment, void* to, std::uint32_t ticket) override;
  /// Not if bits are to be flipped, which is done on the host.
  bool carries_device_memory() const override { return faults_.corrupt == 0 && inner_.carries_device_memory(); }
  SharedAddress expose(const void* data, std::size_t bytes) const override { return inner_.expose(data, bytes); }
  std::byte* exposed(int peer, const SharedAddress& address, std::size_t bytes) override {
    return inner_.exposed(peer, address, bytes);
  }
  void abandon() noexcept override;

 private:
  struct Held {
    int peer;
    Header header;
    const void* data;
    std::uint32_t ticket;
    int polls;
  };
  /// A payload that is being fetched and will be corrupted.
  struct Spoiled {
    std::uint32_t ticket;
    std::byte* to;
    std::size_t bytes;
  };

  void arrived(const Fragment& fragment) override;
  void sent(std::uint32_t ticket) override { sink_->sent(ticket); }
  void fetched(std::uint32_t ticket) override;
  void flip_a_bit(std::byte* data, std::size_t bytes);
  bool happens(double probability) {
    return probability > 0 && std::uniform_real_distribution<double>()(random_) < probability;
  }

  Transport& inner_;
  Faults faults_;
  std::mt19937_64 random_;
  Sink* sink_ = nullptr;
  std::vector<Held> held_;
  std::vector<Spoiled> spoiled_;
  std::vector<std::byte> corrupted_;
  std::uint64_t sent_ = 0, harm_ = 0;
};

}  // namespace aloni::comm
