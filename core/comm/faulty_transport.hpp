#pragma once
// A transport with faults, for tests. The seed, the clock and the order of calls decide which fragment has which fault.
// If the inner transport and the clock are deterministic too, a seed replays a failure.
//
//   FaultyTransport faulty(shared, {.seed = 7, .delay = 0.3});
//   Engine engine(rank, {…, &faulty, …}, memory);
#include <aloni/core/comm/faults.hpp>
#include <aloni/core/comm/transport.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace aloni::comm {

class FaultyTransport final : public Transport, private Transport::Sink {
 public:
  using Sink = Transport::Sink;  // not the private base class of this name
  /// Time since any fixed moment, never decreasing.
  using Clock = std::function<std::chrono::nanoseconds()>;

  static std::chrono::nanoseconds steady_time() { return std::chrono::steady_clock::now().time_since_epoch(); }

  /// `faults`: of this rank (Faults::of_rank); slow_by above 0 makes this transport slow, for every value of slow_rank.
  /// `clock`: times the pauses of a slow rank.
  /// @pre `inner` outlives this object, and nothing else polls it
  FaultyTransport(Transport& inner, const Faults& faults, Clock clock = steady_time)
      : inner_(inner), faults_(faults), random_(faults.seed), clock_(std::move(clock)), next_poll_(clock_()) {}

  /// Number of fragments truncated, corrupted or lost.
  std::uint64_t harm() const { return harm_; }
  bool dead() const { return sent_ > faults_.dies_after; }
  /// For the end, when no operation is waited for any more: later fragments have no faults. Held fragments leave at
  /// the next poll; those with a payload are dropped, because their memory may be freed.
  void end_faults();

  std::string name() const override { return "faulty " + inner_.name(); }
  std::size_t largest_fragment(int peer, const void* data, std::size_t bytes) const override {
    return inner_.largest_fragment(peer, data, bytes);
  }
  Sent send(int peer, const Header& header, const void* data, std::uint32_t ticket) override;
  bool poll(Sink& sink) override;
  /// Lost fragments count as flushed.
  bool flushed() override { return dead() || (held_.empty() && inner_.flushed()); }
  void release(const Fragment& fragment) override { inner_.release(fragment); }
  void fetch(const Fragment& fragment, void* to, std::uint32_t ticket) override;
  /// False with Faults::corrupt: the host flips the bits.
  bool carries_device_memory() const override { return faults_.corrupt == 0 && inner_.carries_device_memory(); }
  SharedAddress expose(const void* data, std::size_t bytes) const override { return inner_.expose(data, bytes); }
  std::byte* exposed(int peer, const SharedAddress& address, std::size_t bytes) override {
    return inner_.exposed(peer, address, bytes);
  }
  std::shared_ptr<std::byte> open_exposed(int peer, const SharedAddress& address, std::size_t bytes) override {
    return inner_.open_exposed(peer, address, bytes);
  }
  void abandon() noexcept override;

 private:
  /// A fragment that leaves after so many polls.
  struct Held {
    int peer;
    Header header;
    const void* data;
    std::uint32_t ticket;
    int polls;
  };
  /// A payload to be corrupted once it is fetched.
  struct Spoiled {
    std::uint32_t ticket;
    std::byte* to;
    std::size_t bytes;
  };

  void arrived(const Fragment& fragment) override;
  void sent(std::uint32_t ticket) override { sink_->sent(ticket); }
  void fetched(std::uint32_t ticket) override;
  void flip_a_bit(std::byte* data, std::size_t bytes);
  bool slow() const { return faults_.slow_by.count() > 0; }
  bool happens(double probability) {
    return probability > 0 && std::uniform_real_distribution<double>()(random_) < probability;
  }

  Transport& inner_;
  Faults faults_;
  std::mt19937_64 random_;
  Clock clock_;
  std::chrono::nanoseconds next_poll_;  ///< of a slow rank
  Sink* sink_ = nullptr;
  std::vector<Held> held_;
  std::vector<Spoiled> spoiled_;
  std::vector<std::byte> corrupted_;
  std::uint64_t sent_ = 0, harm_ = 0;
};

}  // namespace aloni::comm
