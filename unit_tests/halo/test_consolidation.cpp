// Consolidated messages: which ranks relay, and how many messages leave a node. test_random_exchanges and test_transfer
// check the values, with and without consolidation.
#include <aloni/halo/detail/consolidation.hpp>

#include <aloni/halo/detail/message_buffer.hpp>
#include <aloni/halo/exchange.hpp>
#include <aloni/halo/node_pairs.hpp>

#include "support/transport.hpp"

#include <gmock/gmock.h>
#include <halo/distributed.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace aloni::halo {
namespace test_consolidation {

using namespace testing_support;
using views::DistributedView;
using views::make_extents;
using views::ProcessGrid;

constexpr std::size_t always = ~std::size_t{0};

TEST(NodePairs, ContainAllParcelsFromOneNodeToAnother) {
  const std::array node_of{0, 0, 1, 1, 2};
  const std::vector<Parcel> parcels{{3, 1, 10}, {0, 2, 100}, {1, 3, 65}, {0, 1, 7}, {1, 4, 8}, {0, 3, 64}};
  const auto pairs = pair_nodes(parcels, node_of, always);
  ASSERT_EQ(pairs.size(), 1u) << "from node 1 to 0 and from node 0 to 2 there is only one parcel each";
  const NodePair& pair = pairs[0];
  ASSERT_EQ(pair.parcels.size(), 3u);
  EXPECT_EQ(pair.parcels[1].to, 3);
  EXPECT_EQ(pair.offsets, (std::vector<std::size_t>{0, 128, 192})) << "each on a cache line of its own";
  EXPECT_EQ(pair.bytes, 320u);
  EXPECT_TRUE(pair.relay_from == 0 || pair.relay_from == 1);
  EXPECT_TRUE(pair.relay_to == 2 || pair.relay_to == 3);
}

TEST(NodePairs, HaveShortParcels) {
  const std::array node_of{0, 0, 1};
  const std::vector<Parcel> parcels{{0, 2, 64}, {1, 2, 192}};
  EXPECT_EQ(pair_nodes(parcels, node_of, 129).size(), 1u);
  EXPECT_EQ(pair_nodes(parcels, node_of, 128).size(), 0u) << "the mean length is 128 bytes";
  EXPECT_EQ(pair_nodes(parcels, node_of, 0).size(), 0u);
}

TEST(NodePairs, TakeTheirSendersAsRelaysInTurn) {
  std::vector<int> node_of;
  std::vector<Parcel> parcels;
  constexpr int ranks = 4, nodes = 5;
  for (int r = 0; r < ranks * nodes; ++r) node_of.push_back(r / ranks);
  for (int from = 0; from < 2; ++from)  // two ranks of the first node
    for (int to = ranks; to < ranks * nodes; ++to) parcels.push_back({from, to, 8});
  const auto pairs = pair_nodes(parcels, node_of, always);
  ASSERT_EQ(pairs.size(), static_cast<std::size_t>(nodes - 1));
  std::array<int, 2> relayed{};
  for (const NodePair& pair : pairs) {
    ASSERT_LT(pair.relay_from, 2);
    ++relayed[static_cast<std::size_t>(pair.relay_from)];
  }
  EXPECT_EQ(relayed[0], relayed[1]);
}

class Consolidated : public testing::Test {
 protected:
  comm::Communicator comm_ = test::make_communicator();
  Queue<Exec> queue_;
  std::vector<std::int64_t> nodes_ =
      comm_.all_gather(comm_.node().all_reduce(std::int64_t{comm_.rank()}, comm::Reduction::min));

  /// Number of messages that this rank has sent to other nodes since the beginning.
  std::int64_t messages_between_nodes() const {
    std::int64_t sum = 0;
    for (const comm::PeerTraffic& p : comm_.traffic_by_peer()) {
      if (nodes_[static_cast<std::size_t>(p.rank)] == nodes_[static_cast<std::size_t>(comm_.rank())]) continue;
      sum += static_cast<std::int64_t>(p.messages.messages_sent + p.collectives.messages_sent);
    }
    return sum;
  }
  std::int64_t sum(std::int64_t mine) const { return comm_.all_reduce(mine, comm::Reduction::sum); }
};

TEST_F(Consolidated, OneMessageTravelsPerNodePairAndDirection) {
  // Every rank is a neighbour of every other rank.
  const int ranks = comm_.size();
  const auto d = Distribution::block(make_extents(1, {3 * ranks, 4}, 2), ProcessGrid{{1, 1, ranks, 1, 1}}, ranks);
  views::GhostWidths widths;
  widths(Dim::height, Side::low) = widths(Dim::height, Side::high) = 3 * ranks;
  const DistributedView<double, 2> x(queue_.space(), "x", d, comm_.rank(), widths);
  std::vector<std::int64_t> nodes = nodes_;
  nodes.erase(std::ranges::unique(nodes).begin(), nodes.end());
  const auto on_node = [&](std::int64_t node) { return std::ranges::count(nodes_, node); };
  std::int64_t pairs = 0, separate = 0;
  for (const auto a : nodes)
    for (const auto b : nodes) {
      if (a == b) continue;
      ++pairs;
      separate += on_node(a) * on_node(b);
    }
  for (const bool consolidates : {false, true}) {
    const Exchange<> exchange(comm_, queue_, {{x}}, {.consolidate_below = consolidates ? always : 0});
    EXPECT_EQ(sum(exchange.messages_between_nodes()), consolidates ? pairs : separate);
    comm_.barrier();
    for (int i = 0; i < 3; ++i) {
      const std::int64_t before = messages_between_nodes();
      exchange.run(queue_);
      const std::int64_t sent = messages_between_nodes() - before;
      EXPECT_EQ(sent, exchange.messages_between_nodes());
    }
    const bool explained = exchange.explain().find("one message for the whole node") != std::string::npos;
    EXPECT_EQ(explained, consolidates && pairs > 0);
    if (!exchange.peers().empty()) {
      EXPECT_THAT(exchange.explain(),
                  testing::EndsWith("within a node: copied from 16384 bytes on; between nodes: " +
                                    std::string(consolidates ? "consolidated" : "not consolidated") + "\n"));
    }
  }
}

TEST_F(Consolidated, MessagesNeedNoMemoryBesidesTheRelays) {
  if (detail::MessageBuffer<Exec>::staged) GTEST_SKIP() << "messages are packed on the device first";
  const int ranks = comm_.size(), rank = comm_.rank();
  const auto d = Distribution::block(make_extents(1, {3 * ranks, 4}, 2), ProcessGrid{{1, 1, ranks, 1, 1}}, ranks);
  const Box all = views::whole(d.extents());
  Random pick(0);
  const TestTensor<double> from(d.owned(rank), Layout::channels_last, pick), to(all, Layout::channels_last, pick);
  const auto plan = plan_redistribution(
      d, d, [&](int) { return all; }, {}, rank);
  std::array<std::int64_t, 2> bytes{};
  for (const bool consolidates : {false, true}) {
    const Transfer<> transfer(comm_, queue_, {TransferItem<double, Memory>::between(from.ref(), to.ref(), plan)},
                              {.consolidate_below = consolidates ? always : 0});
    bytes[consolidates] = sum(static_cast<std::int64_t>(transfer.buffer_bytes()));
  }
  EXPECT_EQ(bytes[0], ranks * (ranks - 1) * 2 * d.owned(rank).size() * static_cast<Index>(sizeof(double)));
  EXPECT_EQ(bytes[1], bytes[0]);
}

}  // namespace test_consolidation
}  // namespace aloni::halo
