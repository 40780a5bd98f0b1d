#include "support/transport.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/config.hpp>
#include <aloni/core/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace test_communicator {

using namespace aloni::comm;
using aloni::InvalidArgument;
using aloni::test::make_communicator;

std::span<const int> one(const int& value) { return {&value, 1}; }
std::span<int> one(int& value) { return {&value, 1}; }

class CommunicatorTest : public testing::Test {
 protected:
  Communicator comm = make_communicator();
  const int rank = comm.rank(), size = comm.size();
};

TEST_F(CommunicatorTest, HasTheRanksOfTheCommunicatorItWasMadeFrom) {
  int mpi_rank = 0, mpi_size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &mpi_size);
  EXPECT_EQ(rank, mpi_rank);
  EXPECT_EQ(size, mpi_size);
}

TEST_F(CommunicatorTest, LeavesTheCallersMpiCommunicatorAlone) {
  MPI_Errhandler handler;
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
  EXPECT_EQ(handler, MPI_ERRORS_ARE_FATAL);
  // A message of the library never meets a message of the caller with the same rank and tag.
  int ours = 1, theirs = 2, received = 0;
  MPI_Request request;
  MPI_Irecv(&received, 1, MPI_INT, rank, 0, MPI_COMM_WORLD, &request);
  const auto neighbour = (rank + 1) % size;
  int got = 0;
  std::array requests{comm.send(one(std::as_const(ours)), neighbour, 0),
                      comm.receive(one(got), (rank + size - 1) % size, 0)};
  comm.wait(requests);
  MPI_Send(&theirs, 1, MPI_INT, rank, 0, MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  EXPECT_EQ(got, 1);
  EXPECT_EQ(received, 2);
}

TEST_F(CommunicatorTest, EveryRankReachesEveryRankIncludingItself) {
  comm.set_max_message_bytes(3);
  EXPECT_EQ(comm.max_message_bytes(), 3u);
  std::vector<int> sent(size), received(size, -1);
  std::vector<Request> requests;
  for (int peer = 0; peer < size; ++peer) {
    sent[peer] = 100 * rank + peer;
    requests.push_back(comm.receive(one(received[peer]), peer, 17));
    requests.push_back(comm.send(one(std::as_const(sent[peer])), peer, 17));
  }
  comm.wait(requests);
  for (int peer = 0; peer < size; ++peer) EXPECT_EQ(received[peer], 100 * peer + rank);
  for (const Request& request : requests) EXPECT_FALSE(request.pending);
  comm.wait(requests);  // all are spent: returns at once
}

TEST_F(CommunicatorTest, TestMakesProgress) {
  int sent = rank, received = -1;
  Request receive = comm.receive(one(received), (rank + 1) % size, Communicator::max_tag);
  Request send = comm.send(one(std::as_const(sent)), (rank + size - 1) % size, Communicator::max_tag);
  while (!comm.test(receive)) {
  }
  while (!comm.test(send)) {
  }
  EXPECT_TRUE(comm.test(send));
  EXPECT_EQ(received, (rank + 1) % size);
}

TEST_F(CommunicatorTest, CountsTheTrafficOfEachTransportAndPeer) {
  std::map<std::string, TransportOptions> transports{{"shared", {}}, {"mpi", {.shared_memory = false}}};
  if (aloni::config::has_ucx) transports["ucx"] = {.shared_memory = false, .messages = MessageTransport::ucx};
  for (const auto& [transport_name, options] : transports) {
    const Communicator own = from_mpi(MPI_COMM_WORLD, options);
    const int to = (rank + 1) % size, from = (rank + size - 1) % size;
    int value = 0, received = 0;
    std::vector<Request> requests{own.send(one(std::as_const(value)), to, 0), own.receive(one(received), from, 0)};
    own.wait(requests);
    own.barrier();
    const std::string name = size == 1 ? "self" : transport_name;
    const auto traffic = own.traffic();
    std::uint64_t messages = 0, collectives = 0;
    for (const auto& [transport, counters] : traffic) {
      EXPECT_TRUE(transport == "self" || transport == name || transport == name + " collectives") << transport;
      if (transport == name) {
        messages += counters.messages_sent;
        EXPECT_EQ(counters.bytes_received, sizeof(int));
      }
      if (transport == name + " collectives") collectives += counters.messages_sent;
    }
    EXPECT_EQ(messages, 1u);
    EXPECT_EQ(collectives > 0, size > 1);
    const auto by_peer = own.traffic_by_peer();
    ASSERT_EQ(by_peer.size(), static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) {
      const PeerTraffic& peer = by_peer[static_cast<std::size_t>(r)];
      EXPECT_EQ(peer.rank, r);
      EXPECT_EQ(peer.transport, r == rank ? "self" : name);
      EXPECT_EQ(peer.messages.bytes_sent, r == to ? sizeof(int) : 0u);
      EXPECT_EQ(peer.messages.bytes_received, r == from ? sizeof(int) : 0u);
    }
  }
}

TEST_F(CommunicatorTest, SendsBetweenNodesInFragments) {
  const Communicator nodes = from_mpi(MPI_COMM_WORLD, {.mpi_fragment_bytes = 4999, .ranks_per_node = 1});
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  std::vector<int> mine(30'001), theirs(mine.size());
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = rank + 7 * static_cast<int>(i);
  const std::array requests{nodes.receive(std::span(theirs), previous, 1), nodes.send(std::span(mine), next, 1)};
  for (Request r : requests) nodes.wait(r);
  for (std::size_t i = 0; i < theirs.size(); ++i) ASSERT_EQ(theirs[i], previous + 7 * static_cast<int>(i));
}

TEST_F(CommunicatorTest, RefusesATransportThatTheBuildLacks) {
  if (aloni::config::has_ucx) GTEST_SKIP() << "this build has all transports";
  try {
    (void)from_mpi(MPI_COMM_WORLD, {.messages = MessageTransport::ucx});
    ADD_FAILURE() << "no exception";
  } catch (const aloni::Unsupported& error) {
    EXPECT_NE(error.expectation().find("aloni_ENABLE_UCX"), std::string::npos);
  }
  comm.barrier();
}

TEST_F(CommunicatorTest, RefusesFaultsOutsideTheirRange) {
  for (const Faults& faults :
       {Faults{.delay = 1}, Faults{.lose = -0.1}, Faults{.delay = 0.5, .longest_delay = 0}, Faults{.slow_rank = size},
        Faults{.slow_rank = -2}, Faults{.slow_rank = 0, .slow_by = std::chrono::microseconds(-1)}})
    EXPECT_THROW((void)from_mpi(MPI_COMM_WORLD, {.faults = faults}), InvalidArgument);
  comm.barrier();
}

TEST_F(CommunicatorTest, NamesFaultyTransports) {
  for (const bool shared : {true, false}) {
    const Communicator own = from_mpi(MPI_COMM_WORLD, {.shared_memory = shared, .faults = {.delay = 0.5}});
    own.barrier();
    for (const PeerTraffic& peer : own.traffic_by_peer())
      EXPECT_EQ(peer.transport, peer.rank == rank ? "self" : shared ? "faulty shared" : "faulty mpi");
  }
}

// Rank 0's last sends complete when rank 1 has acknowledged earlier ones. Rank 1 ends as soon as it has received all.
TEST_F(CommunicatorTest, DelayedAcknowledgementsLeaveBeforeTheEnd) {
  if (size < 2) GTEST_SKIP() << "needs a second rank";
  for (const bool shared : {true, false}) {
    const Faults late{.delay = 0.999, .longest_delay = 1'000'000'000};
    const Communicator own = from_mpi(
        MPI_COMM_WORLD,
        {.shared_memory = shared, .stuck_after = std::chrono::seconds(3), .faults = rank == 1 ? late : Faults{}});
    std::vector<std::vector<std::byte>> data(rank > 1 ? 0 : 60, std::vector<std::byte>(100'000));
    std::vector<Request> requests;
    for (auto& d : data) requests.push_back(rank == 0 ? own.send(d, 1, 0) : own.receive(d, 0, 0));
    if (rank == 0) {
      EXPECT_NO_THROW(own.wait(requests));
    } else {
      for (Request& r : requests) {
        while (!own.test(r)) {
        }
      }
    }
  }
}

TEST_F(CommunicatorTest, ASlowRankChangesNoBitsAndNobodyIsBlamed) {
  if (size != 3) GTEST_SKIP() << "three ranks: a rank that waits for the slow one, and a rank that waits for that rank";
  using namespace std::chrono_literals;
  constexpr auto stuck_after = 1000ms;
  const auto me = static_cast<std::size_t>(rank);
  std::vector<double> summands(1000);
  for (std::size_t i = 0; i < summands.size(); ++i) summands[i] = 0.1 * static_cast<double>(i + 7 * me);
  const std::vector<aloni::Index> counts[3] = {{1, 2000, 3}, {0, 10, 500}, {40, 0, 6}};
  const std::vector<aloni::Index> from_each{counts[0][me], counts[1][me], counts[2][me]};
  const auto run = [&](const Communicator& over) {
    std::vector<double> sums = summands;
    over.all_reduce(std::span(sums), Reduction::sum);
    std::vector<double> results = sums, equal(999), uneven;
    over.run(AllToAll{std::span<const double>(sums).first(999), std::span(equal)});
    sums.resize(5000, 1.0 + rank);
    uneven.resize(static_cast<std::size_t>(std::accumulate(from_each.begin(), from_each.end(), aloni::Index{0})));
    const auto sent = std::accumulate(counts[me].begin(), counts[me].end(), aloni::Index{0});
    over.run(AllToAll{std::span<const double>(sums).first(static_cast<std::size_t>(sent)), std::span(uneven),
                      counts[me], from_each});
    results.insert(results.end(), equal.begin(), equal.end());
    results.insert(results.end(), uneven.begin(), uneven.end());
    return results;
  };
  const auto expected = run(comm);
  for (const bool shared : {true, false}) {
    const Communicator slow =
        from_mpi(MPI_COMM_WORLD,
                 {.shared_memory = shared, .stuck_after = stuck_after, .faults = {.slow_rank = 1, .slow_by = 100ms}});
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(run(slow), expected) << "bit by bit";
    EXPECT_GT(std::chrono::steady_clock::now() - start, stuck_after) << "all waits together take longer than the limit";
    const Communicator too_slow = from_mpi(
        MPI_COMM_WORLD, {.shared_memory = shared, .stuck_after = 200ms, .faults = {.slow_rank = 1, .slow_by = 1h}});
    EXPECT_THROW((void)run(too_slow), aloni::PeerFailed);
  }
}

// Ranks that share memory don't need UCX and pay nothing for it.
TEST_F(CommunicatorTest, PrefersSharedMemoryToUcx) {
  if (!aloni::config::has_ucx) GTEST_SKIP() << "needs ucx";
  const Communicator own = from_mpi(MPI_COMM_WORLD, {.messages = MessageTransport::ucx});
  own.barrier();
  for (const PeerTraffic& peer : own.traffic_by_peer())
    EXPECT_EQ(peer.transport, peer.rank == rank ? "self" : "shared");
}

TEST_F(CommunicatorTest, RefusesArgumentsOutsideTheirRange) {
  int value = 0;
  EXPECT_THROW((void)comm.send(one(std::as_const(value)), size, 0), InvalidArgument);
  EXPECT_THROW((void)comm.receive(one(value), -1, 0), InvalidArgument);
  EXPECT_THROW((void)comm.send(one(std::as_const(value)), 0, Communicator::max_tag + 1), InvalidArgument);
  EXPECT_THROW((void)comm.receive(one(value), 0, -1), InvalidArgument);
  EXPECT_THROW(comm.set_max_message_bytes(0), InvalidArgument);
  EXPECT_THROW(comm.set_max_message_bytes(std::size_t{1} << 31), InvalidArgument);
  EXPECT_THROW((void)comm.split(-1, 0), InvalidArgument);
  EXPECT_THROW((void)comm.subgroup({}), InvalidArgument);
  EXPECT_THROW((void)comm.subgroup({rank, rank}), InvalidArgument);
  EXPECT_THROW((void)comm.subgroup({rank, size}), InvalidArgument);
  EXPECT_THROW((void)comm.subgroup({(rank + 1) % (size + 1)}), InvalidArgument);
  EXPECT_THROW(comm.run(Broadcast{one(value), size}), InvalidArgument);
  EXPECT_THROW((void)from_mpi(MPI_COMM_NULL), InvalidArgument);
  comm.barrier();  // still usable
}

TEST_F(CommunicatorTest, SplitMakesOneCommunicatorOfEachColorOrderedByKey) {
  comm.set_max_message_bytes(5);
  const Communicator half = comm.split(rank % 2, -rank);
  const int members = (size + 1 - rank % 2) / 2;
  EXPECT_EQ(half.size(), members);
  EXPECT_EQ(half.rank(), members - 1 - rank / 2);
  EXPECT_EQ(half.max_message_bytes(), 5u);
  const auto ranks = half.all_gather(rank);
  for (int i = 0; i < members; ++i) EXPECT_EQ(ranks[i], 2 * (members - 1 - i) + rank % 2);
}

// The ranks of this subgroup aren't contiguous, so their numbers differ inside and outside of it.
TEST_F(CommunicatorTest, SubgroupsOfScatteredRanksWorkWithoutTheOtherRanks) {
  std::vector<int> outer;
  for (int r = 0; r < size; r += 3) outer.push_back(r);
  if (size > 1 && outer.back() != size - 1) outer.push_back(size - 1);
  const auto position = std::ranges::find(outer, rank);
  if (position != outer.end()) {
    const Communicator group = comm.subgroup(outer);
    const int own = static_cast<int>(position - outer.begin()), members = static_cast<int>(outer.size());
    EXPECT_EQ(group.rank(), own);
    EXPECT_EQ(group.size(), members);
    EXPECT_EQ(group.all_reduce(rank, Reduction::sum), std::accumulate(outer.begin(), outer.end(), 0));
    // Once around the ring, by the numbers inside the group.
    int sent = rank, received = -1;
    std::vector<Request> requests{group.receive(one(received), (own + members - 1) % members, 1),
                                  group.send(one(std::as_const(sent)), (own + 1) % members, 1)};
    group.wait(requests);
    EXPECT_EQ(received, outer[(own + members - 1) % members]);
    // A subgroup of the group takes the numbers inside the group.
    if (own + 1 >= members - 1) {
      const Communicator pair = group.subgroup(members == 1 ? std::vector{0} : std::vector{members - 2, members - 1});
      EXPECT_EQ(pair.all_reduce(rank, Reduction::max), outer.back());
    }
  }
  EXPECT_EQ(comm.all_reduce(1, Reduction::sum), size);
}

TEST_F(CommunicatorTest, NodeHoldsTheRanksOfThisMachineInTheirOrder) {
  const Communicator node = comm.node();
  // The test runs on one machine; ranks_per_node may split it into several nodes.
  const int per_node = aloni::test::transport_options().ranks_per_node;
  const int first = per_node > 0 ? rank / per_node * per_node : 0;
  EXPECT_EQ(node.size(), per_node > 0 ? std::min(per_node, size - first) : size);
  EXPECT_EQ(node.rank(), rank - first);
}

// Each communicator has an identifier of its own, made from the way and the order of its making.
TEST_F(CommunicatorTest, ManyCommunicatorsLiveAtTheSameTime) {
  std::vector<Communicator> all;
  for (int i = 0; i < 40; ++i) {
    all.push_back(comm.node());
    all.push_back(comm.split(0, comm.rank()));
    all.push_back(all.back().node());
    all.push_back(comm.subgroup({comm.rank()}));
  }
  for (const Communicator& c : all) EXPECT_EQ(c.all_reduce(1, Reduction::sum), c.size());
}

TEST_F(CommunicatorTest, OutlivesTheCommunicatorItWasSplitFrom) {
  auto parent = std::make_unique<Communicator>(make_communicator());
  const Communicator child = parent->split(0, 0);
  parent.reset();
  EXPECT_EQ(child.all_reduce(1, Reduction::sum), size);
}

// MPI keeps messages for a destroyed communicator and hands them to the next one with the same number.
TEST_F(CommunicatorTest, UnreceivedMessagesDoNotReachTheNextFamily) {
  if (size == 1) return;
  for (int i = 0; i < 20; ++i) {
    Communicator own = make_communicator();
    if (i % 2 == 1 && rank == size - 1) {
      int value = -1;
      own.wait(own.receive(one(value), 0, 7));
      ASSERT_EQ(value, i);
    }
    if (rank == 0) own.wait(own.send(one(i), size - 1, 7));
  }
}

TEST_F(CommunicatorTest, CollectivelyReturnsTheResultOfEachRank) {
  EXPECT_EQ(collectively(comm, "test", [&] { return std::to_string(rank); }), std::to_string(rank));
  bool called = false;
  collectively(comm, "test", [&] { called = true; });
  EXPECT_TRUE(called);
}

TEST_F(CommunicatorTest, CollectivelyThrowsOnAllRanksWhenOneRankThrows) {
  const int failing = size / 2;
  const auto f = [&] {
    if (rank == failing) throw std::out_of_range("label 12 of image 7");
    return 1;
  };
  try {
    collectively(comm, "aloni::test::read", f);
    ADD_FAILURE() << "no exception";
  } catch (const std::out_of_range& error) {
    EXPECT_EQ(rank, failing);
  } catch (const aloni::PeerFailed& error) {
    EXPECT_NE(rank, failing);
    EXPECT_EQ(error.rank(), failing);
    EXPECT_EQ(error.operation(), "aloni::test::read");
    EXPECT_EQ(error.value(), "label 12 of image 7");
  }
  EXPECT_EQ(comm.all_reduce(1, Reduction::sum), size);  // nothing is poisoned
}

TEST_F(CommunicatorTest, AgreeNamesTheLowestOfSeveralFailingRanks) {
  const bool fails = rank >= size / 2;
  const auto error = fails ? std::make_exception_ptr(rank) : nullptr;  // not even a std::exception
  try {
    comm.agree("aloni::test", error);
    ADD_FAILURE() << "no exception";
  } catch (int own) {
    EXPECT_TRUE(fails);
    EXPECT_EQ(own, rank);
  } catch (const aloni::PeerFailed& peer) {
    EXPECT_FALSE(fails);
    EXPECT_EQ(peer.rank(), size / 2);
  }
}

}  // namespace test_communicator
