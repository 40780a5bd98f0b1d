// A rank whose exception ends the block that holds its communicator: the others learn it at once. A rank that computes
// for longer than the limit is not taken for a failed one; a rank that sleeps is.
#include "support/sleeping_barrier.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/comm/partial_all_reduce.hpp>
#include <aloni/core/error.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace test_unwinding {

using namespace aloni::comm;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// Runs f on all ranks. Rank 1 must throw std::runtime_error, the others soon PeerFailed with rank 1.
template <class F>
void expect_rank_1_named(F&& f) {
  if (world_size() < 2) GTEST_SKIP() << "needs a second rank";
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = Clock::now();
  if (world_rank() == 1) {
    EXPECT_THROW(f(), std::runtime_error);
  } else {
    try {
      f();
      ADD_FAILURE() << "returned";
    } catch (const aloni::PeerFailed& error) {
      EXPECT_EQ(error.root_rank(), 1) << error.what();
      EXPECT_NE(error.value().find("exception"), std::string::npos) << error.what();
    }
  }
  EXPECT_LT(Clock::now() - start, 3s);
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(Unwinding, PastACommunicatorIsAFailure) {
  expect_rank_1_named([] {
    const Communicator comm = from_mpi(MPI_COMM_WORLD);
    comm.barrier();
    if (comm.rank() == 1) throw std::runtime_error("a user's error");
    comm.barrier();
  });
}

TEST(Unwinding, PastAPartialAllReduceIsAFailure) {
  std::optional<Communicator> outlives;
  expect_rank_1_named([&] {
    outlives.emplace(from_mpi(MPI_COMM_WORLD));
    PartialAllReduce<float> reduction(*outlives, 100, {.quorum = outlives->size()});
    std::vector<float> values(100);
    reduction.reduce(values);
    if (outlives->rank() == 1) throw std::runtime_error("a user's error");
    reduction.reduce(values);
  });
}

TEST(Unwinding, InsideADestructorIsNone) {
  struct UsesACommunicator {
    ~UsesACommunicator() { from_mpi(MPI_COMM_WORLD).barrier(); }
  };
  try {
    const UsesACommunicator u;
    throw std::runtime_error("on all ranks");
  } catch (const std::runtime_error&) {
  }
  from_mpi(MPI_COMM_WORLD).barrier();
}

/// Whether the other ranks wait for rank 1 until it comes, long after the limit of 1 s.
void expect_patience(const std::function<void()>& work, bool patient, bool shared) {
  if (world_size() < 2) GTEST_SKIP() << "needs a second rank";
  {
    const Communicator comm = from_mpi(MPI_COMM_WORLD, {.shared_memory = shared, .stuck_after = 1s});
    comm.barrier();
    if (comm.rank() == 1) work();
    const auto twice = [&] {  // rank 1 finds the messages of the first barrier
      comm.barrier();
      comm.barrier();
    };
    if (patient) {
      EXPECT_NO_THROW(twice());
    } else {
      EXPECT_THROW(twice(), aloni::PeerFailed);
    }
  }
  aloni::test::sleeping_barrier(MPI_COMM_WORLD);  // for a rank that still sleeps
}

void compute(std::chrono::milliseconds time) {
  volatile double x = 1;
  for (const auto start = Clock::now(); Clock::now() - start < time;) x = x * 1.0000001;
}

TEST(Patience, ForARankThatComputes) {
  for (const bool shared : {true, false}) expect_patience([] { compute(2500ms); }, true, shared);
}

TEST(Patience, ForARankOfAnotherNodeThatComputesAndThenWaits) {
  if (world_size() < 2) GTEST_SKIP() << "needs a second rank";
  const Communicator comm = from_mpi(MPI_COMM_WORLD, {.ranks_per_node = 1, .stuck_after = 1s});
  comm.barrier();
  for (int round = 0; round < 3; ++round) {
    if (comm.rank() == 1) compute(1500ms + 100ms * round);
    EXPECT_NO_THROW(comm.barrier());
  }
}

TEST(Patience, NotForARankThatSleeps) {
  expect_patience([] { std::this_thread::sleep_for(8s); }, false, true);
}

TEST(Patience, EndsAtTheLongLimit) {
  if (world_size() < 2) GTEST_SKIP() << "needs a second rank";
  const Communicator comm = from_mpi(MPI_COMM_WORLD, {.stuck_after = 500ms, .longest_wait = 2s});
  comm.barrier();
  if (comm.rank() == 1) compute(3500ms);
  EXPECT_THROW(
      {
        comm.barrier();
        comm.barrier();
      },
      aloni::PeerFailed);
}

}  // namespace test_unwinding
