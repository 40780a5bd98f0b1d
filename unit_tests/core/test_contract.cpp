// Ranks make different calls. No wrong number is ever returned without an error: every rank throws, and the rank that
// finds the difference names both calls.
#include "support/transport.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/comm/transfer_messages.hpp>
#include <aloni/core/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace test_contract {

using namespace aloni::comm;
using namespace std::chrono_literals;

class Contracts : public testing::Test {
 protected:
  Communicator comm = aloni::test::make_communicator();
  const int rank = comm.rank(), size = comm.size();

  /// Rank 0 calls `first`, the other ranks call `others`. All must throw; one error contains all `parts`.
  void expect_error(const std::function<void()>& first, const std::function<void()>& others,
                    const std::vector<std::string>& parts) {
    if (size == 1) GTEST_SKIP() << "needs a second rank";
    comm.set_stuck_after(5s);
    bool threw = false, found = false;
    try {
      (rank == 0 ? first : others)();
      // A rank that finds the difference leaves no barrier, so no rank leaves the second one.
      comm.barrier();
      comm.barrier();
    } catch (const aloni::Error& error) {
      threw = true;
      found = dynamic_cast<const aloni::CommunicationError*>(&error) != nullptr;
      for (const std::string& part : parts) found &= std::string(error.what()).find(part) != std::string::npos;
      if (!found) text = error.what();
    }
    EXPECT_TRUE(threw) << "rank " << rank;
    MPI_Allreduce(MPI_IN_PLACE, &found, 1, MPI_CXX_BOOL, MPI_LOR, MPI_COMM_WORLD);
    EXPECT_TRUE(found) << text;
  }
  std::string text;

  /// Starts sums of these sizes, then waits for all.
  void sums(const std::vector<std::size_t>& counts, const CollectiveOptions& options) const {
    std::vector<std::vector<float>> data;
    std::vector<Request> requests;
    for (const std::size_t count : counts) data.emplace_back(count, 1.0f);
    for (auto& d : data) requests.push_back(comm.start_all_reduce(std::span(d), Reduction::sum, options));
    comm.wait(requests);
  }
};

TEST_F(Contracts, FusedAllReducesInAnotherOrderAreAnError) {
  const CollectiveOptions fuse{.fuse = true};
  expect_error(
      [&] {
        sums({100, 200, 50}, fuse);
      },
      [&] {
        sums({200, 100, 50}, fuse);
      },
      {"100 float", "200 float", "fused"});
}

TEST_F(Contracts, FusedAllReducesOfOtherSizesButOneTotalAreAnError) {
  const CollectiveOptions fuse{.fuse = true};
  expect_error([&] { sums({30, 30, 30, 30}, fuse); }, [&] { sums({30, 30, 20, 40}, fuse); }, {"30 float", "20 float"});
}

TEST_F(Contracts, ManyFusedAllReducesInAnotherOrderAreAnError) {
  std::vector<std::size_t> counts(100, 10), swapped(100, 10);
  counts[90] = swapped[91] = 20;
  const CollectiveOptions fuse{.fuse = true};
  expect_error([&] { sums(counts, fuse); }, [&] { sums(swapped, fuse); }, {"fused"});
}

TEST_F(Contracts, AFusedAllReduceAndASingleOneAreAnError) {
  expect_error([&] { sums({100}, {.fuse = true}); }, [&] { sums({100}, {}); }, {"100 float", "fused"});
  if (testing::Test::IsSkipped()) return;
  comm = aloni::test::make_communicator();
  // Only rank 0 starts groups of fused all-reduces: the other ranks wait for it.
  expect_error([&] { sums({100}, {}); }, [&] { sums({100}, {.fuse = true}); }, {"100 float", "fused"});
}

TEST_F(Contracts, FewerFusedAllReducesBeforeABarrierAreAnError) {
  std::vector<float> two[] = {std::vector<float>(100), std::vector<float>(200)};
  expect_error(
      [&] {
        sums({100, 200, 50}, {.fuse = true});
      },
      [&] {
        std::vector<Request> requests;
        for (auto& data : two)
          requests.push_back(comm.start_all_reduce(std::span(data), Reduction::sum, {.fuse = true}));
        comm.barrier();
      },
      {"fused members of rank 0 = 3, after those of this rank", "50 float", "expected 2, followed by"});
}

TEST_F(Contracts, FewerFusedAllReducesBeforeAWaitForOneAreAnError) {
  std::vector<float> one(100);
  expect_error(
      [&] {
        sums({100, 200}, {.fuse = true});
      },
      [&] {
        const Request request = comm.start_all_reduce(std::span(one), Reduction::sum, {.fuse = true});
        comm.wait(request);
      },
      {"fused members of rank 0 = 2, after those of this rank", "200 float", "followed by a wait for one of them"});
}

TEST_F(Contracts, AReproducibleAllReduceAndAnOrdinaryOneAreAnError) {
  for (const std::size_t count : {2u, 100'000u}) {
    expect_error([&] { sums({count}, {.reproducible = true}); }, [&] { sums({count}, {}); },
                 {"reproducible", std::to_string(count) + " float"});
    comm = aloni::test::make_communicator();
    if (testing::Test::IsSkipped()) return;
  }
}

TEST_F(Contracts, AnotherAlgorithmIsNamed) {
  expect_error([&] { sums({100}, {.algorithm = AllReduceAlgorithm::ring}); },
               [&] { sums({100}, {.algorithm = AllReduceAlgorithm::rabenseifner}); }, {"ring", "rabenseifner"});
}

TEST_F(Contracts, AReduceScatterAndAnAllReduceAreAnError) {
  const CollectiveOptions options{.reproducible = true};
  std::vector<float> values(100, 1.0f);
  expect_error([&] { comm.all_reduce(std::span(values), Reduction::sum, options); },
               [&] {
                 comm.run(ReduceScatter{std::span(values), Reduction::sum, {.reproducible = true}});
               },
               {"all_reduce", "reduce_scatter"});
}

TEST_F(Contracts, CollectivesOfOtherElementTypesAreAnError) {
  std::vector<float> floats(static_cast<std::size_t>(12 * size));
  std::vector<int> integers(floats.size());
  expect_error([&] { comm.run(AllGather{std::span(floats)}); }, [&] { comm.run(AllGather{std::span(integers)}); },
               {"float", "int32"});
  if (testing::Test::IsSkipped()) return;
  comm = aloni::test::make_communicator();
  expect_error(
      [&] {
        comm.run(Broadcast{std::span(floats), 0});
      },
      [&] {
        comm.run(Broadcast{std::span(integers), 0});
      },
      {"float", "int32"});
  comm = aloni::test::make_communicator();
  std::vector<float> other(floats.size());
  std::vector<int> others(floats.size());
  expect_error(
      [&] {
        comm.run(AllToAll{std::span(std::as_const(floats)), std::span(other)});
      },
      [&] {
        comm.run(AllToAll{std::span(std::as_const(integers)), std::span(others)});
      },
      {"float", "int32"});
}

TEST_F(Contracts, MessagesOfOtherElementTypesAreAnError) {
  std::vector<float> floats(10);
  std::vector<int> integers(10);
  expect_error([&] { comm.wait(comm.send(std::span(floats), 1, 5)); },
               [&] {
                 if (rank == 1) comm.wait(comm.receive(std::span(integers), 0, 5));
               },
               {"tag 5", "40 bytes of float", "40 bytes of int32"});
}

TEST_F(Contracts, BytesFitMessagesOfAnyElementType) {
  if (size == 1) GTEST_SKIP() << "needs a second rank";
  std::vector<float> floats(10, 3.0f);
  std::vector<unsigned> others(10);
  if (rank == 0) {
    comm.wait(comm.send(std::as_bytes(std::span(floats)), 1, 5));
    comm.wait(comm.send(std::span(floats), 1, 5));
  } else if (rank == 1) {
    floats.assign(10, 0.0f);
    comm.wait(comm.receive(std::span(floats), 0, 5));
    comm.wait(comm.receive(std::span(others), 0, 5));
    EXPECT_EQ(floats.back(), 3.0f);
  }
  comm.barrier();
}

// --- ranks that wait for each other ---

TEST_F(Contracts, CollectivesOnDifferentCommunicatorsAreAnErrorBeforeTheTimeLimit) {
  const Communicator same = comm.split(0, rank);
  std::vector<float> data(10);
  expect_error([&] { comm.all_reduce(std::span(data), Reduction::sum); },
               [&] { same.all_reduce(std::span(data), Reduction::max); },
               {"sum of 10 float", "max of 10 float", "waits for the other"});
}

TEST_F(Contracts, AReceiveAndACollectiveThatWaitForEachOtherAreAnErrorBeforeTheTimeLimit) {
  if (size > 2) GTEST_SKIP() << "a third rank may send the first message";
  std::vector<float> data(10);
  expect_error([&] { comm.wait(comm.receive(std::span(data), size - 1, 3)); }, [&] { comm.barrier(); },
               {"tag 3", "barrier", "waits for the other"});
}

// Both ranks start all operations before they wait, so the orders may differ.
TEST_F(Contracts, OrdersMayDifferBetweenCommunicatorsAndMessagesThatAreNotWaitedForYet) {
  if (size == 1) GTEST_SKIP() << "needs a second rank";
  const Communicator same = comm.split(0, rank);
  std::vector<int> a(10, 1), b(10, 1), c(10, rank), d(10);
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  for (const int late : {0, size - 1}) {
    std::vector<Request> requests{comm.receive(std::span(d), before, 3)};
    const auto first = [&] { requests.push_back(comm.start(AllReduce{std::span(a), Reduction::max})); };
    const auto second = [&] { requests.push_back(same.start(AllReduce{std::span(b), Reduction::max})); };
    if (rank == 0) {
      first();
      second();
    } else {
      second();
      first();
    }
    if (rank == late) {  // longer than the pause before ranks compare their notes
      for (const auto start = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() - start < 500ms;)
        (void)comm.test(requests.front());
    }
    requests.push_back(comm.send(std::span(c), next, 3));
    comm.wait(requests);
    EXPECT_EQ(d.front(), before);
  }
}

// Rank 0 has sent its message, but rank 1 does not have it for longer than the pause before ranks compare their notes.
TEST_F(Contracts, AMessageThatIsOnItsWayForLongHasBeenSent) {
  if (size == 1) GTEST_SKIP() << "needs a second rank";
  // A look of rank 0 every 60 ms, and up to 16 looks until a message leaves.
  const Faults slow{.seed = 5, .delay = 0.5, .longest_delay = 16, .slow_rank = 0, .slow_by = 60ms};
  const Communicator same = from_mpi(MPI_COMM_WORLD, {.shared_memory = false, .faults = slow}).split(0, rank);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 6; ++i) {
    int received = -1;
    if (rank == 0) {
      const Request sent = same.send(std::span<const int>(&i, 1), 1, 3);
      same.wait(same.receive(std::span(&received, 1), 1, 3));
      same.wait(sent);
    } else if (rank == 1) {
      same.wait(same.receive(std::span(&received, 1), 0, 3));
      same.wait(same.send(std::span<const int>(&received, 1), 0, 3));
    }
    if (rank < 2) {
      EXPECT_EQ(received, i);
    }
  }
  if (rank < 2) {
    EXPECT_GT(std::chrono::steady_clock::now() - start, 1s);
  }
}

// --- transfers ---

constexpr ElementType floats_only[] = {ElementType::float32};
constexpr TransferMessage values = TransferMessage::values, answer = TransferMessage::answer;

TEST_F(Contracts, TransfersMeetNeitherEachOtherNorMessagesWithTags) {
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  const TransferMessages a(comm, floats_only, "a"), b(comm, floats_only, "b");
  for (int round = 0; round < 100; ++round) {
    a.begin(TransferDirection::forward);
    b.begin(round % 2 == 0 ? TransferDirection::forward : TransferDirection::adjoint);
    int sent[] = {4 * round, 4 * round + 1, 4 * round + 2, 4 * round + 3}, received[4] = {};
    const auto out = [&](int i) { return std::as_bytes(std::span(&sent[i], 1)); };
    const auto in = [&](int i) { return std::as_writable_bytes(std::span(&received[i], 1)); };
    std::vector<Request> requests{comm.receive(in(0), before, round % 3)};
    requests.push_back(comm.send(out(0), next, round % 3));
    const auto start = [&](const TransferMessages& t, int i) {
      requests.push_back(t.send(out(i), next, values));
      requests.push_back(t.receive(in(i), before, values));
    };
    start(rank == 0 ? a : b, rank == 0 ? 1 : 2);
    start(rank == 0 ? b : a, rank == 0 ? 2 : 1);
    requests.push_back(b.receive(in(3), next, answer));
    requests.push_back(b.send(out(3), before, answer));
    comm.wait(requests);
    ASSERT_TRUE(std::ranges::equal(sent, received));
  }
}

// Rank 0 sends forward, rank 1 sends back, and neither expects a message. Both have begun before a message arrives.
TEST_F(Contracts, ATransferInTheOtherDirectionIsAnErrorThoughNoRankReceives) {
  std::vector<float> data(10);
  const auto bytes = std::as_bytes(std::span(std::as_const(data)));
  const TransferMessages transfer(comm, floats_only, "aloni::test: one way");
  expect_error(
      [&] {
        transfer.begin(TransferDirection::forward);
        comm.barrier();
        comm.wait(transfer.send(bytes, 1, values));
      },
      [&] {
        transfer.begin(TransferDirection::adjoint);
        comm.barrier();
        if (rank == 1) comm.wait(transfer.send(bytes, 0, values));
      },
      {"one way", "forward", "adjoint"});
}

TEST_F(Contracts, ATransferThatBeginsAfterItsMessageHasArrivedComparesDirections) {
  std::vector<float> data(10);
  const TransferMessages transfer(comm, floats_only, "aloni::test: late");
  expect_error(
      [&] {
        transfer.begin(TransferDirection::forward);
        comm.wait(transfer.send(std::as_bytes(std::span(std::as_const(data))), 1, values));
        comm.barrier();
      },
      [&] {
        comm.barrier();
        for (int i = 0; i < 100; ++i) (void)comm.progress();
        transfer.begin(TransferDirection::adjoint);
      },
      {"late", "forward", "adjoint"});
}

TEST_F(Contracts, TransfersOfOtherElementTypesAreAnError) {
  constexpr ElementType two[] = {ElementType::float32, ElementType::int32};
  std::vector<float> data(10);
  const TransferMessages transfer(
      comm, rank == 0 ? std::span<const ElementType>(floats_only) : std::span<const ElementType>(two), "aloni::test");
  expect_error(
      [&] {
        transfer.begin(TransferDirection::forward);
        comm.wait(transfer.send(std::as_bytes(std::span(std::as_const(data))), 1, values));
      },
      [&] {
        transfer.begin(TransferDirection::forward);
        if (rank == 1) comm.wait(transfer.receive(std::as_writable_bytes(std::span(data)), 0, values));
      },
      {"other element types"});
}

}  // namespace test_contract
