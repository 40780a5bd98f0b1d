// FaultyTransport on a simulated network: single messages between two ranks, then all-to-all of several ranks with each
// fault. Other collectives with faults: test_engine.cpp.
#include <aloni/core/comm/faulty_transport.hpp>
#include <aloni/core/comm/schedule/algorithms.hpp>
#include <aloni/core/error.hpp>

#include "support/fault_cases.hpp"
#include "support/simulated_network.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace test_faulty_transport {

using namespace aloni::comm;
using namespace std::chrono_literals;
using aloni::Index;
using aloni::test::NetworkOptions;
using aloni::test::SimulatedRanks;
using aloni::test::SimulatedTransport;

constexpr double certain = 1 - std::numeric_limits<double>::epsilon();

/// Stores all arrivals, and fetches the payloads that need it.
struct Receiver final : Transport::Sink {
  Transport* transport = nullptr;
  std::vector<std::vector<std::byte>> arrivals;
  std::vector<std::uint32_t> freed;

  void arrived(const Transport::Fragment& f) override {
    arrivals.emplace_back(f.header.bytes);
    if (f.header.bytes == 0) return;
    if (!f.data) return transport->fetch(f, arrivals.back().data(), 0);
    std::copy_n(f.data, f.header.bytes, arrivals.back().data());
    if (f.stays) transport->release(f);
  }
  void sent(std::uint32_t ticket) override { freed.push_back(ticket); }
  void fetched(std::uint32_t) override {}
};

class FaultyTransportTest : public testing::Test {
 protected:
  void connect(const NetworkOptions& options) {
    for (int r = 0; r < 2; ++r) networks_.push_back(std::make_unique<SimulatedTransport>(r, options));
    for (auto& n : networks_) n->connect({networks_[0].get(), networks_[1].get()});
  }
  Transport::Sent send(Transport& t, std::size_t bytes, std::uint32_t ticket = 0) {
    return t.send(1, Header{.bytes = static_cast<std::uint32_t>(bytes)}, data_.data(), ticket);
  }

  const std::vector<std::byte> data_ = std::vector<std::byte>(1000);
  std::vector<std::unique_ptr<SimulatedTransport>> networks_;
  Receiver sender_, receiver_;
};

TEST_F(FaultyTransportTest, IsFlushedOnceDelayedFragmentsHaveLeft) {
  connect({});
  FaultyTransport faulty(*networks_[0], {.delay = certain, .longest_delay = 1});
  EXPECT_TRUE(faulty.flushed());
  EXPECT_EQ(send(faulty, 8, 5), Transport::Sent::pending);
  EXPECT_FALSE(faulty.flushed());
  faulty.poll(sender_);
  EXPECT_TRUE(faulty.flushed());
  EXPECT_EQ(sender_.freed, std::vector<std::uint32_t>{5});
  networks_[1]->poll(receiver_);
  EXPECT_EQ(receiver_.arrivals.size(), 1u);
}

TEST_F(FaultyTransportTest, IsFlushedWhenItIsDead) {
  connect({});
  FaultyTransport faulty(*networks_[0], {.delay = certain, .dies_after = 1});
  EXPECT_EQ(send(faulty, 8), Transport::Sent::pending);
  EXPECT_EQ(send(faulty, 8), Transport::Sent::copied);
  EXPECT_TRUE(faulty.dead());
  EXPECT_TRUE(faulty.flushed());
  for (int i = 0; i < 100; ++i) faulty.poll(sender_);
  networks_[1]->poll(receiver_);
  EXPECT_TRUE(receiver_.arrivals.empty());
}

TEST_F(FaultyTransportTest, CorruptsFetchedPayloads) {
  connect({.copied_bytes = 64, .must_fetch = true});
  FaultyTransport faulty(*networks_[1], {.corrupt = certain});
  receiver_.transport = &faulty;
  send(*networks_[0], 1000);
  for (int i = 0; i < 3; ++i) faulty.poll(receiver_);
  ASSERT_EQ(receiver_.arrivals.size(), 1u);
  int bits = 0;
  for (const std::byte b : receiver_.arrivals[0]) bits += std::popcount(std::to_integer<unsigned>(b));
  EXPECT_EQ(bits, 1);
  EXPECT_EQ(faulty.harm(), 1u);
}

TEST_F(FaultyTransportTest, ReadsNoMemoryAfterAbandon) {
  connect({});
  FaultyTransport faulty(*networks_[0], {.delay = certain});
  send(faulty, 8);
  faulty.abandon();
  for (int i = 0; i < 100; ++i) faulty.poll(sender_);
  networks_[1]->poll(receiver_);
  EXPECT_TRUE(receiver_.arrivals.empty());
  EXPECT_TRUE(sender_.freed.empty());
}

TEST_F(FaultyTransportTest, SendsHeldFragmentsWithoutPayloadAtTheEnd) {
  connect({});
  FaultyTransport faulty(*networks_[0], {.delay = certain, .longest_delay = 1000});
  send(faulty, 8);
  send(faulty, 0);
  faulty.end_faults();
  faulty.poll(sender_);
  EXPECT_TRUE(faulty.flushed());
  EXPECT_EQ(send(faulty, 0), Transport::Sent::copied);
  networks_[1]->poll(receiver_);
  ASSERT_EQ(receiver_.arrivals.size(), 2u);
  for (const auto& payload : receiver_.arrivals) EXPECT_TRUE(payload.empty());
}

TEST_F(FaultyTransportTest, SendsAndReceivesOnlyAfterThePauseOfASlowRank) {
  connect({});
  std::chrono::nanoseconds now = 0ms;
  FaultyTransport slow(*networks_[0], {.slow_by = 10ms}, [&] { return now; });
  EXPECT_EQ(send(slow, 8, 5), Transport::Sent::pending);
  slow.poll(sender_);  // the first pause starts here
  EXPECT_EQ(sender_.freed, std::vector<std::uint32_t>{5});
  send(slow, 8, 6);
  networks_[1]->send(0, Header{.bytes = 8}, data_.data(), 0);
  now = 9999us;
  EXPECT_FALSE(slow.poll(sender_)) << "a pause is no progress";
  EXPECT_FALSE(slow.flushed());
  EXPECT_TRUE(sender_.arrivals.empty());
  now = 10ms;
  EXPECT_TRUE(slow.poll(sender_));
  EXPECT_TRUE(slow.flushed());
  EXPECT_EQ(sender_.arrivals.size(), 1u);
  networks_[1]->poll(receiver_);
  EXPECT_EQ(receiver_.arrivals.size(), 2u);
  EXPECT_EQ(slow.harm(), 0u);
}

TEST_F(FaultyTransportTest, SendsAtTheEndWithoutAPause) {
  connect({});
  std::chrono::nanoseconds now = 0ms;
  FaultyTransport slow(*networks_[0], {.slow_by = 10ms}, [&] { return now; });
  slow.poll(sender_);
  send(slow, 0);
  slow.end_faults();
  slow.poll(sender_);
  EXPECT_TRUE(slow.flushed());
  networks_[1]->poll(receiver_);
  EXPECT_EQ(receiver_.arrivals.size(), 1u);
}

TEST(Faults, SlowOnlyTheSlowRank) {
  const Faults faults{.slow_rank = 2, .slow_by = 1ms};
  EXPECT_TRUE(faults.any());
  EXPECT_TRUE(faults.of_rank(2).any());
  EXPECT_FALSE(faults.of_rank(0).any());
}

/// An all-to-all of 64-bit integers: rank r sends counts[r][s] of them to rank s.
struct AllToAll {
  const char* name;
  std::vector<std::vector<Index>> counts;
  bool planned;  ///< by Plans, from the count alone; all counts are equal
};

std::vector<AllToAll> all_to_alls() {
  using Counts = std::vector<std::vector<Index>>;
  Counts uneven(4, std::vector<Index>(4));
  for (Index i = 0; i < 4; ++i)
    for (Index j = 0; j < 4; ++j)
      uneven[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] = (3 * i + 5 * j) % 7 * 20;
  return {{"short blocks of 5 ranks (Bruck)", Counts(5, std::vector<Index>(5, 4)), true},
          {"long blocks of 3 ranks (pairwise)", Counts(3, std::vector<Index>(3, 100)), true},
          {"uneven blocks of 4 ranks", uneven, false}};
}

class EachFaultOnAllToAll : public testing::TestWithParam<aloni::test::FaultCase> {
 protected:
  static std::int64_t value(int from, int to, Index i) { return 1'000'000 * (from + 1) + 10'000 * to + i; }

  /// On all ranks; their data are filled here.
  void start(const AllToAll& operation, SimulatedRanks& ranks) {
    const int size = ranks.size();
    input_.assign(static_cast<std::size_t>(size), {});
    expected_ = output_ = input_;
    handles_.clear();
    for (int r = 0; r < size; ++r) {
      const auto me = static_cast<std::size_t>(r);
      for (int peer = 0; peer < size; ++peer) {
        const auto other = static_cast<std::size_t>(peer);
        for (Index i = 0; i < operation.counts[me][other]; ++i) input_[me].push_back(value(r, peer, i));
        for (Index i = 0; i < operation.counts[other][me]; ++i) expected_[me].push_back(value(peer, r, i));
      }
      output_[me].assign(expected_[me].size(), -1);
    }
    for (int r = 0; r < size; ++r) handles_.push_back(start(operation, ranks, r));
  }

  std::vector<std::vector<std::int64_t>> input_, output_, expected_;
  std::vector<detail::Engine::Handle> handles_;

 private:
  detail::Engine::Handle start(const AllToAll& operation, SimulatedRanks& ranks, int r) {
    const auto me = static_cast<std::size_t>(r);
    SimulatedRanks::Rank& rank = ranks[r];
    const auto count = static_cast<Index>(input_[me].size());
    std::shared_ptr<const detail::Plan> plan;
    if (operation.planned) {
      plan = rank.plans->get({.kind = OperationKind::all_to_all, .element_bytes = 8, .count = count});
    } else {
      Builder b(r);
      const Region in = b.input(count), out = b.output(static_cast<Index>(output_[me].size()));
      pairwise_all_to_all(b, Team::all(r, ranks.size()), in, out, operation.counts);
      plan = rank.plans->get(b.finish(), 1);
    }
    Contract contract{.kind = OperationKind::all_to_all};
    contract.plan = plan->hash;
    rank.engine->set_checksums(true);
    return rank.engine->start(*rank.context, {.name = "test",
                                              .contract = contract,
                                              .whole = &plan->whole,
                                              .last = &plan->last,
                                              .parts = plan->parts,
                                              .part_elements = plan->part_elements,
                                              .input = input_[me].data(),
                                              .output = output_[me].data(),
                                              .operation = {.element_bytes = 8},
                                              .owner = plan});
  }
};

TEST_P(EachFaultOnAllToAll, LeavesDataRightOrNamesARank) {
  int harmed = 0, ended = 0;
  for (const AllToAll& operation : all_to_alls()) {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      SCOPED_TRACE(std::string(operation.name) + ", seed " + std::to_string(seed));
      const auto size = operation.counts.size();
      std::vector<int> all(size);
      std::iota(all.begin(), all.end(), 0);
      Faults faults = GetParam().faults;
      faults.seed = seed;
      // An all-to-all has many messages: rarer faults hit one of them, or none.
      for (double* const probability : {&faults.truncate, &faults.corrupt, &faults.lose}) *probability *= 0.1;
      if (faults.dies_after != Faults::never) faults.dies_after = seed / 4;
      SimulatedRanks ranks({all}, {.copied_bytes = 64, .fragment_bytes = 400}, faults);
      std::vector<bool> done(size);
      bool error = false;
      try {
        start(operation, ranks);
        for (int step = 0; step < 20'000 && !std::ranges::all_of(done, std::identity{}); ++step) {
          ranks.step();
          for (std::size_t r = 0; r < size; ++r)
            done[r] = done[r] || ranks[static_cast<int>(r)].engine->test(handles_[r]);
        }
      } catch (const aloni::CommunicationError& e) {
        error = true;
        EXPECT_NE(std::string(e.what()).find("rank"), std::string::npos) << e.what();
      }
      std::uint64_t harm = 0;
      for (const int r : all) harm += ranks[r].faulty->harm() + (ranks[r].faulty->dead() ? 1u : 0u);
      harmed += harm > 0;
      if (harm == 0) {
        ASSERT_FALSE(error);
        ASSERT_TRUE(std::ranges::all_of(done, std::identity{}));
      }
      for (std::size_t r = 0; r < size && !error; ++r) {
        if (done[r]) {
          ++ended;
          ASSERT_EQ(output_[r], expected_[r]) << "rank " << r;
        } else {
          ASSERT_NE(ranks[static_cast<int>(r)].engine->waiting_for().find("rank"), std::string::npos);
        }
      }
    }
  }
  EXPECT_EQ(harmed > 20, !GetParam().harmless) << harmed << " of 120 runs were harmed";
  EXPECT_GT(ended, 20);
}

INSTANTIATE_TEST_SUITE_P(Kinds, EachFaultOnAllToAll, testing::ValuesIn(aloni::test::fault_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace test_faulty_transport
