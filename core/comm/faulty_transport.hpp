#pragma once
// Any transport with faults, for tests: what happens to which fragment follows from the seed alone, so that a failure can be replayed.
//
//   FaultyTransport faulty(shared, {.seed = 7, .delay = 0.3});
//   Engine engine(rank, {…, &faulty, …}, memory);
#include <aloni/core/comm/transport.hpp>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace aloni::comm {

/// Probabilities are of each fragment.
struct Faults {
  std::uint64_t seed = 0;
  double delay = 0;        ///< leaves only some polls later; others overtake it
  int longest_delay = 20;  ///< in polls
  double no_room = 0;      ///< is refused at first
  double truncate = 0;     ///< arrives with a part of its bytes
  double corrupt = 0;      ///< arrives with a bit flipped
  double lose = 0;         ///< never arrives
  std::uint64_t dies_after =
      std::numeric_limits<std::uint64_t>::max();  ///< fragments sent; then nothing leaves or arrives
};

class FaultyTransport final : public Transport, private Transport::Sink {
 public:
  using Sink = Transport::Sink;  // not the base class of that name

  /// `inner` outlives this and is polled by nobody else.
  FaultyTransport(Transport& inner, const Faults& faults) : inner_(inner), faults_(faults), random_(faults.seed) {}

  /// How many fragments were truncated, corrupted or lost.
  std::uint64_t harm() const { return harm_; }
  bool dead() const { return sent_ > faults_.dies_after; }

  std::string name() const override { return "faulty " + inner_.name(); }
  std::size_t largest_fragment(const void* data, std::size_t bytes) const override {
    return inner_.largest_fragment(data, bytes);
  }
  Sent send(int peer, const Header& header, const void* data, std::uint32_t ticket) override;
  bool poll(Sink& sink) override;
  void release(const Fragment& fragment) override;
  void fetch(const Fragment& fragment, void* to, std::uint32_t ticket) override { inner_.fetch(fragment, to, ticket); }
  SharedAddress expose(const void* data, std::size_t bytes) const override { return inner_.expose(data, bytes); }
  std::byte* exposed(int peer, const SharedAddress& address, std::size_t bytes) override {
    return inner_.exposed(peer, address, bytes);
  }
  void abandon() noexcept override { inner_.abandon(); }

 private:
  struct Held {
    int peer;
    Header header;
    const void* data;
    std::uint32_t ticket;
    int polls;
  };

  void arrived(const Fragment& fragment) override;
  void sent(std::uint32_t ticket) override { sink_->sent(ticket); }
  void fetched(std::uint32_t ticket) override { sink_->fetched(ticket); }
  bool happens(double probability) {
    return probability > 0 && std::uniform_real_distribution<double>()(random_) < probability;
  }

  Transport& inner_;
  Faults faults_;
  std::mt19937_64 random_;
  Sink* sink_ = nullptr;
  std::vector<Held> held_;
  std::vector<std::byte> corrupted_;
  std::uint64_t sent_ = 0, harm_ = 0;
};

}  // namespace aloni::comm
