#include <aloni/halo/placement/link_table.hpp>

#include "support/transport.hpp"

#include <aloni/core/error.hpp>
#include <aloni/halo/placement/detail/link_rounds.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace aloni::halo {
namespace test_link_table {

using detail::BetweenNodes;
using detail::link_rounds;

TEST(LinkRounds, AnyTwoRanksMeetOnceAndNodesWithAllTheirRanks) {
  std::mt19937 random(30);
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(random); };
  for (int i = 0; i < 100; ++i) {
    SCOPED_TRACE(i);
    std::vector<std::vector<int>> nodes(static_cast<std::size_t>(pick(1, 6)));
    const bool even = i % 2 == 0;  // every other time all nodes have four
    const int ranks = even ? 4 * static_cast<int>(nodes.size()) : static_cast<int>(nodes.size()) + pick(0, 20);
    std::vector<int> node_of;
    for (int r = 0; r < ranks; ++r) {
      const auto n = even || r < static_cast<int>(nodes.size())
                         ? static_cast<std::size_t>(r) % nodes.size()
                         : static_cast<std::size_t>(pick(0, static_cast<int>(nodes.size()) - 1));
      nodes[n].push_back(r);
      node_of.push_back(static_cast<int>(n));
    }
    std::map<std::pair<int, int>, int> met, met_once;
    const auto rounds = link_rounds(nodes, BetweenNodes::all_pairs);
    for (const auto& partner : rounds) {
      ASSERT_EQ(static_cast<int>(partner.size()), ranks);
      std::set<bool> kinds;
      std::map<int, std::set<int>> hosts;  // the nodes that a node meets
      int resting = 0;
      for (int r = 0; r < ranks; ++r) {
        const int p = partner[static_cast<std::size_t>(r)];
        ASSERT_EQ(partner[static_cast<std::size_t>(p)], r);
        resting += p == r;
        if (p == r) continue;
        ++met[{r, p}];
        kinds.insert(node_of[static_cast<std::size_t>(r)] == node_of[static_cast<std::size_t>(p)]);
        hosts[node_of[static_cast<std::size_t>(r)]].insert(node_of[static_cast<std::size_t>(p)]);
      }
      EXPECT_LE(kinds.size(), 1U);
      for (const auto& [_, others] : hosts) EXPECT_EQ(others.size(), 1U);
      if (even) {
        EXPECT_LE(resting, 4);  // of an odd number of nodes one
      }
    }
    EXPECT_EQ(static_cast<int>(met.size()), ranks * (ranks - 1));
    for (const auto& [pair, times] : met) EXPECT_EQ(times, 1) << pair.first << ' ' << pair.second;

    std::map<std::pair<int, int>, int> between;
    for (const auto& partner : link_rounds(nodes, BetweenNodes::one_per_node))
      for (int r = 0; r < ranks; ++r) {
        const int p = partner[static_cast<std::size_t>(r)];
        if (p == r) continue;
        EXPECT_EQ((++met_once[{r, p}]), 1);
        ++between[{node_of[static_cast<std::size_t>(r)], node_of[static_cast<std::size_t>(p)]}];
      }
    for (std::size_t a = 0; a < nodes.size(); ++a)
      for (std::size_t b = 0; b < nodes.size(); ++b) {
        const auto x = nodes[a].size(), y = nodes[b].size();
        EXPECT_EQ((between[{static_cast<int>(a), static_cast<int>(b)}]),
                  static_cast<int>(a == b ? x * (x - 1) : std::min(x, y)));
      }
  }
}

class Links : public testing::Test {
 protected:
  comm::Communicator comm = test::make_communicator();
};

TEST_F(Links, AreOneSymmetricTableOnAllRanks) {
  // Once any two ranks, once nodes as a whole.
  for (const int all_pairs_up_to : {64, 0}) {
    SCOPED_TRACE(all_pairs_up_to);
    LinkTable t = measure_links(comm, {.bytes = 1 << 16, .repetitions = 3, .all_pairs_up_to = all_pairs_up_to});
    for (SquareMatrix* m : {&t.seconds_per_byte, &t.seconds_per_message}) {
      ASSERT_EQ(m->size(), comm.size());
      for (int i = 0; i < comm.size(); ++i)
        for (int j = 0; j < comm.size(); ++j) {
          EXPECT_EQ((*m)(i, j), (*m)(j, i));
          if (i == j) {
            EXPECT_EQ((*m)(i, j), 0);
          } else {
            EXPECT_GT((*m)(i, j), 0) << i << ' ' << j;
            EXPECT_LT((*m)(i, j), 60) << i << ' ' << j;
          }
        }
      SquareMatrix of_first = *m;
      comm.broadcast(std::as_writable_bytes(of_first.values()), 0);
      EXPECT_EQ(of_first, *m);
    }
  }
}

TEST_F(Links, MeasureEachPairBothWays) {
  if (comm.size() == 1) GTEST_SKIP() << "one rank has no links";
  const auto sent_to = [&] {
    std::vector<std::uint64_t> bytes;
    for (const auto& peer : comm.traffic_by_peer()) bytes.push_back(peer.messages.bytes_sent);
    return bytes;
  };
  const auto before = sent_to();
  measure_links(comm, {.bytes = 5000, .repetitions = 2});
  const auto after = sent_to();
  for (int peer = 0; peer < comm.size(); ++peer) {
    const auto p = static_cast<std::size_t>(peer);
    EXPECT_EQ(after[p] - before[p], peer == comm.rank() ? 0U : 3U * (5000 + 8)) << peer;  // one to warm up
  }
}

TEST_F(Links, RefuseOptionsOnAllRanks) {
  EXPECT_THROW(measure_links(comm, {.bytes = 0}), InvalidArgument);
  EXPECT_THROW(measure_links(comm, {.repetitions = 0}), InvalidArgument);
  EXPECT_THROW(measure_links(comm, {.all_pairs_up_to = -1}), InvalidArgument);
  if (comm.size() > 1) {
    EXPECT_THROW(measure_links(comm, {.repetitions = comm.rank() == 0 ? 2 : 1}), InvalidArgument);
  }
  comm.barrier();  // and go on
}

}  // namespace test_link_table
}  // namespace aloni::halo
