#pragma once
// Several ranks in one process and one thread: real engines over a network of queues. Nothing depends on time, so a
// seed repeats a run exactly.
#include <aloni/core/comm/engine/engine.hpp>
#include <aloni/core/comm/engine/plans.hpp>
#include <aloni/core/comm/faulty_transport.hpp>

#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <memory_resource>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace aloni::test {

/// How payloads travel. All ways of the real transports exist.
struct NetworkOptions {
  std::size_t copied_bytes = 256;        ///< payloads up to this size are copied at once
  std::size_t fragment_bytes = 1 << 20;  ///< fragment size of larger payloads
  bool must_fetch = false;               ///< fetch larger payloads as MPI does; else read them in place
  std::size_t queue_length = 64;         ///< capacity in fragments towards one rank
};

/// The transport of one rank.
class SimulatedTransport final : public comm::Transport {
 public:
  SimulatedTransport(int rank, const NetworkOptions& options) : rank_(rank), options_(options) {}
  void connect(std::vector<SimulatedTransport*> all) { all_ = std::move(all); }

  std::string name() const override { return "simulated"; }
  std::size_t largest_fragment(int, const void*, std::size_t) const override { return options_.fragment_bytes; }
  Sent send(int peer, const comm::Header& header, const void* data, std::uint32_t ticket) override {
    auto& to = *all_[static_cast<std::size_t>(peer)];
    if (to.arriving_.size() >= options_.queue_length) return Sent::no_room;
    Packet& p = to.arriving_.emplace_back();
    p.fragment = {.peer = rank_, .header = header};
    const auto* const bytes = static_cast<const std::byte*>(data);
    if (header.bytes <= options_.copied_bytes) {
      p.copy.assign(bytes, bytes + header.bytes);
      return Sent::copied;
    }
    p.fragment.token = ticket;
    p.source = bytes;
    if (!options_.must_fetch) {
      p.fragment.data = bytes;
      p.fragment.stays = true;
    }
    return Sent::pending;
  }
  bool poll(Sink& sink) override {
    const bool any = !arriving_.empty() || !freed_.empty() || !fetched_.empty();
    const auto freed = std::exchange(freed_, {});
    for (const std::uint32_t ticket : freed) sink.sent(ticket);
    const auto fetched = std::exchange(fetched_, {});
    for (const Transfer& t : fetched) {
      if (t.bytes > 0) std::memcpy(t.to, t.from, t.bytes);
      all_[static_cast<std::size_t>(t.peer)]->freed_.push_back(t.sender_ticket);
      sink.fetched(t.ticket);
    }
    for (std::size_t n = arriving_.size(); n > 0; --n) {
      const Packet p = std::move(arriving_.front());
      arriving_.pop_front();
      comm::Transport::Fragment f = p.fragment;
      if (!p.source) f.data = p.copy.data();
      if (p.source && !f.stays) sources_.push_back({p.source, static_cast<std::uint32_t>(f.token), f.peer});
      if (p.source && !f.stays) f.token = sources_.size() - 1;
      sink.arrived(f);
    }
    return any;
  }
  void release(const Fragment& fragment) override {
    all_[static_cast<std::size_t>(fragment.peer)]->freed_.push_back(static_cast<std::uint32_t>(fragment.token));
  }
  void fetch(const Fragment& fragment, void* to, std::uint32_t ticket) override {
    const Source& s = sources_[fragment.token];
    fetched_.push_back({s.data, to, fragment.header.bytes, s.peer, s.ticket, ticket});
  }
  // All ranks share one address space.
  comm::SharedAddress expose(const void* data, std::size_t) const override {
    return {.descriptor = 0, .offset = reinterpret_cast<std::uintptr_t>(data)};
  }
  std::byte* exposed(int, const comm::SharedAddress& address, std::size_t) override {
    return reinterpret_cast<std::byte*>(address.offset);
  }
  void abandon() noexcept override {}

 private:
  struct Packet {
    Fragment fragment;
    std::vector<std::byte> copy;
    const std::byte* source = nullptr;
  };
  struct Source {
    const std::byte* data;
    std::uint32_t ticket;
    int peer;
  };
  struct Transfer {
    const void* from;
    void* to;
    std::size_t bytes;
    int peer;
    std::uint32_t sender_ticket, ticket;
  };

  int rank_;
  NetworkOptions options_;
  std::vector<SimulatedTransport*> all_;
  std::deque<Packet> arriving_;
  std::vector<std::uint32_t> freed_;
  std::vector<Transfer> fetched_;
  std::vector<Source> sources_;
};

/// Ranks with their engines and plans, and the random order of their progress.
class SimulatedRanks {
 public:
  struct Rank {
    std::unique_ptr<SimulatedTransport> network;
    std::unique_ptr<comm::FaultyTransport> faulty;
    std::unique_ptr<comm::detail::Engine> engine;
    comm::detail::Engine::Context* context = nullptr;
    std::unique_ptr<comm::detail::Plans> plans;
  };

  /// `nodes`: ranks of each node.
  SimulatedRanks(const std::vector<std::vector<int>>& nodes, const NetworkOptions& options, const comm::Faults& faults)
      : random_(faults.seed) {
    int size = 0;
    for (const auto& n : nodes) size += static_cast<int>(n.size());
    std::vector<int> all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    std::vector<SimulatedTransport*> networks;
    for (int r = 0; r < size; ++r) {
      Rank& rank = ranks_.emplace_back();
      rank.network = std::make_unique<SimulatedTransport>(r, options);
      networks.push_back(rank.network.get());
      comm::Faults own = faults.of_rank(r);
      own.seed = faults.seed * 1000 + static_cast<std::uint64_t>(r);
      // Each look at the clock takes a microsecond: a seed replays slow ranks too.
      rank.faulty = std::make_unique<comm::FaultyTransport>(
          *rank.network, own,
          [now = std::chrono::microseconds(0)]() mutable { return now += std::chrono::microseconds(1); });
      const std::vector<comm::Transport*> routes(static_cast<std::size_t>(size), rank.faulty.get());
      rank.engine = std::make_unique<comm::detail::Engine>(r, routes, *std::pmr::new_delete_resource());
      rank.context = &rank.engine->add_context(0, all);
      rank.plans = std::make_unique<comm::detail::Plans>(
          comm::detail::Topology{.rank = r, .root_ranks = all, .nodes = nodes, .one_island = nodes.size() == 1});
    }
    for (Rank& rank : ranks_) rank.network->connect(networks);
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  Rank& operator[](int r) { return ranks_[static_cast<std::size_t>(r)]; }
  std::mt19937_64& random() { return random_; }

  /// Starts a collective on one rank.
  comm::detail::Engine::Handle start(int r, const comm::detail::PlanKey& key, comm::Contract contract, void* data,
                                     const comm::ElementOperation& operation, int priority = 0) {
    Rank& rank = (*this)[r];
    const auto plan = rank.plans->get(key);
    contract.kind = key.kind;
    contract.count = static_cast<std::uint64_t>(key.count);
    contract.variant = static_cast<std::uint8_t>(key.root);
    contract.plan = plan->hash;
    return rank.engine->start(*rank.context, {.name = "test",
                                              .contract = contract,
                                              .whole = &plan->whole,
                                              .last = &plan->last,
                                              .parts = plan->parts,
                                              .part_elements = plan->part_elements,
                                              .input = data,
                                              .output = data,
                                              .operation = operation,
                                              .priority = priority,
                                              .owner = plan});
  }

  /// One rank, chosen by the seed, makes progress.
  void step() { ranks_[std::uniform_int_distribution<std::size_t>(0, ranks_.size() - 1)(random_)].engine->progress(); }

 private:
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
};

}  // namespace aloni::test
