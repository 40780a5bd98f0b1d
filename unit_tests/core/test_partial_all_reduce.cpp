// All-reduces that do not wait for the slowest rank. No contribution is lost or counted twice. All ranks get the same
// results. A late rank does not delay the others as long as it is late by at most max_lag rounds.
#include "support/sanitizer.hpp"
#include "support/transport.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/comm/partial_all_reduce.hpp>
#include <aloni/core/error.hpp>

#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

namespace test_partial_all_reduce {

using namespace aloni::comm;
using aloni::InvalidArgument;

class Partial : public testing::Test {
 protected:
  Communicator comm = aloni::test::make_communicator();
  const int rank = comm.rank(), size = comm.size();

  /// Small integers: their sums are exact.
  static double value(int rank, int round, std::size_t i) {
    return static_cast<double>((static_cast<std::size_t>(rank) * 31 + static_cast<std::size_t>(round) * 17 + i) % 1000);
  }

  /// Whether all ranks have the same values. Collective.
  bool agree(const std::vector<double>& values) {
    std::vector<double> low(values), high(values);
    comm.all_reduce(std::span(low), Reduction::min);
    comm.all_reduce(std::span(high), Reduction::max);
    return low == values && high == values;
  }

  void check_sums(std::size_t count, int rounds, const PartialOptions& options, std::uint64_t seed) {
    PartialAllReduce<double> reduction(comm, count, options);
    std::vector<std::vector<double>> results;
    int contributions = 0;
    std::mt19937_64 chance(seed * 1000 + static_cast<std::uint64_t>(rank));
    for (int round = 0; round <= rounds; ++round) {
      if (chance() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(500));
      std::vector<double>& values = results.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i) values[i] = value(rank, round, i);
      contributions += round < rounds ? reduction.reduce(values) : reduction.flush(values);
    }
    EXPECT_EQ(contributions, size * rounds);
    std::vector<double> sums(count, 0.0);
    for (const auto& result : results) {
      ASSERT_TRUE(agree(result));
      for (std::size_t i = 0; i < count; ++i) sums[i] += result[i];
    }
    for (std::size_t i = 0; i < count; ++i) {
      double expected = 0;
      for (int r = 0; r < size; ++r) {
        for (int round = 0; round < rounds; ++round) expected += value(r, round, i);
      }
      ASSERT_EQ(sums[i], expected) << "element " << i << " of " << count;
    }
  }
};

TEST_F(Partial, EachContributionCountsExactlyOnce) {
  std::uint64_t seed = 1;
  for (const std::size_t count : {0u, 1u, 1000u, 50'000u}) {
    for (const int quorum : {0, 1, size}) {
      for (const int lag : {1, 4}) {
        if (!aloni::test::is_in_share(static_cast<int>(++seed))) continue;
        check_sums(count, 20, {.quorum = quorum, .max_lag = lag}, seed);
      }
    }
  }
}

TEST_F(Partial, AQuorumOfAllRanksGivesAnAllReduce) {
  PartialAllReduce<double> reduction(comm, 10, {.quorum = size});
  for (int round = 0; round < 10; ++round) {
    std::vector<double> values(10);
    for (std::size_t i = 0; i < 10; ++i) values[i] = value(rank, round, i);
    std::vector<double> expected(values);
    comm.all_reduce(std::span(expected), Reduction::sum);
    EXPECT_EQ(reduction.reduce(values), size);
    EXPECT_EQ(values, expected);
  }
}

/// The last rank contributes nothing until the others have finished max_lag rounds. If a round needed it, they would
/// wait forever. Then it takes the results of these rounds. flush() returns its contributions.
TEST_F(Partial, ALateRankDoesNotDelayTheOthers) {
  if (size < 3) GTEST_SKIP() << "needs a majority without one rank";
  constexpr int lag = 3;
  PartialAllReduce<double> reduction(comm, 4, {.max_lag = lag});
  const bool is_late = rank == size - 1;
  int token = 0;
  if (is_late) {
    for (int come = 0; !come;) {
      comm.progress();
      MPI_Iprobe(0, 99, MPI_COMM_WORLD, &come, MPI_STATUS_IGNORE);
    }
    MPI_Recv(&token, 1, MPI_INT, 0, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  int contributions = 0;
  for (int round = 0; round < lag; ++round) {
    std::vector<double> values(4, 1.0);
    const int given = reduction.reduce(values);
    EXPECT_EQ(values, std::vector<double>(4, given));
    contributions += given;
  }
  EXPECT_LE(contributions, lag * (size - 1));  // contributions of the late rank are not included
  if (rank == 0) {
    MPI_Send(&token, 1, MPI_INT, size - 1, 99, MPI_COMM_WORLD);
  }
  std::vector<double> rest(4, 1000.0);  // flush() does not contribute these values
  contributions += reduction.flush(rest);
  EXPECT_EQ(contributions, size * lag);
  EXPECT_GE(rest[0], lag);  // includes all contributions of the late rank
}

/// The same with a progress thread: the late rank calls no function of the library meanwhile.
TEST_F(Partial, AProgressThreadTakesPartWhileTheRankComputes) {
  if (size < 3) GTEST_SKIP() << "needs a majority without one rank";
  TransportOptions options = aloni::test::transport_options();
  int level = 0;
  MPI_Query_thread(&level);
  const bool uses_mpi = !options.shared_memory || options.ranks_per_node > 0;
  if (uses_mpi && (level < MPI_THREAD_MULTIPLE || options.messages == MessageTransport::ucx))
    GTEST_SKIP() << "no progress thread over this transport";
  options.progress_thread = true;
  const Communicator own = from_mpi(MPI_COMM_WORLD, options);
  PartialAllReduce<float> reduction(own, 100, {.max_lag = 2});
  int token = 0;
  if (rank == size - 1) MPI_Recv(&token, 1, MPI_INT, 0, 98, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  std::vector<float> values(100, 1.0f);
  int contributions = reduction.reduce(values);
  EXPECT_LT(contributions, size);
  EXPECT_EQ(values[99], static_cast<float>(contributions));
  if (rank == 0) MPI_Send(&token, 1, MPI_INT, size - 1, 98, MPI_COMM_WORLD);
  contributions += reduction.flush(values);
  EXPECT_EQ(contributions, size);
}

TEST_F(Partial, RefusesBadArguments) {
  EXPECT_THROW((PartialAllReduce<float>(comm, 1, {.quorum = size + 1})), InvalidArgument);
  EXPECT_THROW((PartialAllReduce<float>(comm, 1, {.quorum = -1})), InvalidArgument);
  EXPECT_THROW((PartialAllReduce<float>(comm, 1, {.max_lag = 0})), InvalidArgument);
  PartialAllReduce<float> reduction(comm, 3);
  std::vector<float> values(2);
  EXPECT_THROW(reduction.reduce(values), InvalidArgument);
}

/// A failure of one rank ends the wait of the other ranks for a round.
TEST_F(Partial, AFailureEndsTheWait) {
  if (size < 2) GTEST_SKIP() << "needs a second rank";
  const Communicator own = aloni::test::make_communicator();
  PartialAllReduce<float> reduction(own, 3, {.quorum = size});
  std::vector<float> values(3);
  comm.barrier();  // of another family: all ranks have constructed `reduction`
  if (rank == size - 1) {
    own.poison("the disk is full");
    EXPECT_THROW(reduction.reduce(values), aloni::PeerFailed);
  } else {
    try {
      reduction.reduce(values);
      ADD_FAILURE() << "the round ended without the failed rank";
    } catch (const aloni::PeerFailed& e) {
      EXPECT_EQ(e.rank(), size - 1);
    }
  }
}

}  // namespace test_partial_all_reduce
