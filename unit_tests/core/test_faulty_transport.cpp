// What FaultyTransport does beyond what the engine's tests see of it: with two ranks of a simulated network.
#include <aloni/core/comm/faulty_transport.hpp>

#include "support/simulated_network.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

namespace test_faulty_transport {

using namespace aloni::comm;
using aloni::test::NetworkOptions;
using aloni::test::SimulatedTransport;

constexpr double certain = 1 - std::numeric_limits<double>::epsilon();

/// Keeps what comes, and fetches what must be fetched.
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

TEST_F(FaultyTransportTest, HasFlushedWhatIsDelayedWhenItHasLeft) {
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

TEST_F(FaultyTransportTest, HasFlushedAllWhenItIsDead) {
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

TEST_F(FaultyTransportTest, CorruptsWhatIsFetchedToo) {
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

TEST_F(FaultyTransportTest, ReadsNoMemoryAfterItWasAbandoned) {
  connect({});
  FaultyTransport faulty(*networks_[0], {.delay = certain});
  send(faulty, 8);
  faulty.abandon();
  for (int i = 0; i < 100; ++i) faulty.poll(sender_);
  networks_[1]->poll(receiver_);
  EXPECT_TRUE(receiver_.arrivals.empty());
  EXPECT_TRUE(sender_.freed.empty());
}

TEST_F(FaultyTransportTest, SendsAtTheEndWhatHasNoPayload) {
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

}  // namespace test_faulty_transport
