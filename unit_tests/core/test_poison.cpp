// One rank fails while the others wait: all must soon throw an error that names the failed rank.
#include "support/sleeping_barrier.hpp"
#include "support/temporary_folder.hpp"
#include "support/transport.hpp"

#include <aloni/core/comm/liveness/poison.hpp>
#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

namespace test_poison {

using namespace aloni::comm;
using aloni::test::make_communicator;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class Poison : public testing::Test {
 protected:
  Communicator comm = make_communicator();
  const int rank = comm.rank(), size = comm.size();

  /// Rank `failing` poisons after a pause, in which the other ranks start to wait in `operation`.
  /// `named`: the accepted values of PeerFailed::rank(); empty: `failing`.
  void expect_all_to_throw(int failing, const std::function<void()>& operation, std::vector<int> named = {}) {
    if (named.empty()) named = {failing};
    if (size == 1) GTEST_SKIP() << "needs a second rank";
    MPI_Barrier(MPI_COMM_WORLD);
    const auto start = Clock::now();
    if (rank == failing) {
      std::this_thread::sleep_for(50ms);
      comm.poison("disk full");
      EXPECT_THROW(comm.barrier(), aloni::PeerFailed);  // the failing rank throws too
    } else {
      try {
        operation();
        ADD_FAILURE() << "rank " << rank << " returned";
      } catch (const aloni::PeerFailed& error) {
        EXPECT_TRUE(std::ranges::count(named, error.rank())) << error.what();
        EXPECT_EQ(error.root_rank(), failing);
        EXPECT_EQ(error.value(), "disk full");
      }
      EXPECT_THROW(comm.barrier(), aloni::PeerFailed);  // later operations throw too
      EXPECT_THROW(comm.check_poison(), aloni::PeerFailed);
      EXPECT_THROW((void)comm.all_gather(1), aloni::PeerFailed);
    }
    EXPECT_LT(Clock::now() - start, 5s);  // on a busy machine too
  }
};

TEST_F(Poison, ANewCommunicatorIsNotPoisoned) {
  comm.check_poison();
  comm.barrier();
  comm.check_poison();
}

TEST_F(Poison, WakesReceivesFromTheFailedRank) {
  int value = 0;
  expect_all_to_throw(size - 1, [&] {
    std::array requests{comm.receive(std::as_writable_bytes(std::span(&value, 1)), size - 1, 0)};
    comm.wait(requests);
  });
}

TEST_F(Poison, WakesReceivesFromRanksThatHaveNotFailed) {
  int value = 0;
  expect_all_to_throw(0, [&] {
    std::array requests{comm.receive(std::as_writable_bytes(std::span(&value, 1)), rank, 0)};  // from itself
    comm.wait(requests);
  });
}

TEST_F(Poison, WakesALoopOfTests) {
  int value = 0;
  expect_all_to_throw(0, [&] {
    Request request = comm.receive(std::as_writable_bytes(std::span(&value, 1)), 0, 0);
    while (!comm.test(request)) {
    }
  });
}

TEST_F(Poison, WakesSendsThatAreTooLargeToCompleteWithoutAReceiver) {
  const std::vector<std::byte> data(16 << 20);
  expect_all_to_throw(0, [&] {
    std::array requests{comm.send(data, 0, 0)};
    comm.wait(requests);
  });
}

TEST_F(Poison, WakesEachCollective) {
  for (const std::size_t count : {1u, 100'000u}) {
    comm = make_communicator();
    std::vector<double> values(count);
    expect_all_to_throw(size / 2, [&] { comm.all_reduce(std::span(values), Reduction::sum); });
  }
  comm = make_communicator();
  expect_all_to_throw(size - 1, [&] { comm.barrier(); });
  comm = make_communicator();
  expect_all_to_throw(0, [&] { (void)comm.all_gather(1); });
  comm = make_communicator();
  std::string text;
  expect_all_to_throw(0, [&] { comm.broadcast(text, 0); });
}

TEST_F(Poison, WakesTheConstructionOfCommunicators) {
  expect_all_to_throw(0, [&] { (void)comm.split(0, 0); });
  comm = make_communicator();
  expect_all_to_throw(size - 1, [&] { (void)comm.node(); });
  comm = make_communicator();
  std::vector<int> all;
  for (int r = 0; r < size; ++r) all.push_back(r);
  expect_all_to_throw(0, [&] { (void)comm.subgroup(all); });
}

TEST_F(Poison, WakesCollectivelyAndAgree) {
  expect_all_to_throw(0, [&] { collectively(comm, "aloni::test", [] {}); });
}

TEST_F(Poison, ARankWithItsOwnErrorThrowsIt) {
  if (size == 1) GTEST_SKIP() << "needs a second rank";
  if (rank == 0) {
    comm.poison("first");
  } else {
    EXPECT_THROW(comm.agree("aloni::test", std::make_exception_ptr(std::bad_alloc())), std::bad_alloc);
  }
}

// The failed rank does not belong to the group of the waiting ranks.
TEST_F(Poison, WakesRanksThatWaitInGroupsWithoutTheFailedRank) {
  if (size < 3) GTEST_SKIP() << "needs a third rank";
  const Communicator half = comm.split(rank == 0 ? 0 : 1, rank);
  expect_all_to_throw(0,
                      [&] {
                        if (rank == 1)
                          std::this_thread::sleep_for(200ms);  // the others wait for rank 1 when poison arrives
                        half.barrier();
                        comm.barrier();
                      },
                      {-1, 0});
}

TEST_F(Poison, ErrorsInAGroupSayThatTheFailedRankDoesNotBelongToIt) {
  if (size < 3) GTEST_SKIP() << "needs a third rank";
  const Communicator half = comm.split(rank == 0 ? 0 : 1, rank);
  expect_all_to_throw(0,
                      [&] {
                        int value = 0;  // for a message that is never sent
                        std::array requests{half.receive(std::as_writable_bytes(std::span(&value, 1)),
                                                         half.size() - 1 - half.rank(), 0)};
                        half.wait(requests);
                      },
                      {-1});
}

TEST_F(Poison, OfAGroupReachesAllRanksOfTheFamily) {
  if (size < 2) GTEST_SKIP() << "needs a second rank";
  const Communicator half = comm.split(rank % 2, -rank);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == size - 1) {
    std::this_thread::sleep_for(20ms);
    half.poison("overheated");
  } else {
    try {
      comm.barrier();
      ADD_FAILURE();
    } catch (const aloni::PeerFailed& error) {
      EXPECT_EQ(error.rank(), size - 1);
      EXPECT_EQ(error.value(), "overheated");
    }
    const bool member = rank % 2 == (size - 1) % 2;
    try {
      half.barrier();
      ADD_FAILURE();
    } catch (const aloni::PeerFailed& error) {
      EXPECT_EQ(error.rank(), member ? 0 : -1);  // the highest rank is rank 0 of its half
      EXPECT_EQ(error.root_rank(), size - 1);
    }
  }
}

TEST_F(Poison, AMessageOfTheWrongSizeFailsEveryRank) {
  if (size == 1) GTEST_SKIP() << "needs a second rank";
  const auto start = Clock::now();
  std::array<int, 2> data{};
  try {
    if (rank == 0) {
      std::array requests{comm.send(std::as_bytes(std::span(data)), 1, 9)};
      comm.wait(requests);
    } else if (rank == 1) {
      std::array requests{comm.receive(std::as_writable_bytes(std::span(data).first(1)), 0, 9)};
      comm.wait(requests);
    }
    comm.barrier();
    ADD_FAILURE() << "no exception";
  } catch (const aloni::CommunicationError& error) {
    EXPECT_EQ(rank, 1);
  } catch (const aloni::PeerFailed& error) {
    EXPECT_NE(rank, 1);
    EXPECT_EQ(error.rank(), 1);
    EXPECT_NE(error.value().find("message from rank 0, tag 9"), std::string::npos) << error.what();
  }
  EXPECT_LT(Clock::now() - start, 5s);  // on a busy machine too
}

// The buffers of pending receives end with the exception. Nothing may be written to them afterwards.
TEST_F(Poison, GivesBackTheBuffersOfPendingReceives) {
  if (size == 1) GTEST_SKIP() << "needs a second rank";
  const Communicator other = make_communicator();
  const int left = (rank + size - 1) % size, right = (rank + 1) % size;
  std::vector<int> buffer(1000, -1), data(1000, 7);
  (void)comm.receive(std::as_writable_bytes(std::span(buffer)), left, 0);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    comm.poison("gone");
  } else {
    EXPECT_THROW(comm.barrier(), aloni::PeerFailed);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_THROW((void)comm.send(std::as_bytes(std::span(data)), right, 0), aloni::PeerFailed);
  other.barrier();  // another family is not poisoned
  EXPECT_EQ(std::ranges::count(buffer, -1), 1000);
}

TEST_F(Poison, SeveralRanksMayFailAtOnce) {
  if (size == 1) GTEST_SKIP() << "needs a second rank";
  if (rank % 2 == 0) {
    comm.poison("rank " + std::to_string(rank));
  }
  try {
    comm.barrier();
    ADD_FAILURE();
  } catch (const aloni::PeerFailed& error) {
    EXPECT_EQ(error.rank() % 2, 0);
    EXPECT_EQ(error.value(), "rank " + std::to_string(error.rank()));
  }
}

TEST_F(Poison, LongMessagesAreTruncated) {
  if (size == 1) GTEST_SKIP() << "needs a second rank";
  if (rank == 0) {
    comm.poison(std::string(5000, 'x'));
  } else {
    try {
      comm.barrier();
      ADD_FAILURE();
    } catch (const aloni::PeerFailed& error) {
      EXPECT_EQ(error.value(), std::string(1000, 'x'));
    }
  }
}

// A stopped rank takes no messages from MPI's queue. In shared memory Open MPI's is full after 142 of them. A send that
// waits for a place in it would never return.
TEST_F(Poison, AskingDoesNotWaitForARankThatReceivesNothing) {
  MPI_Comm own = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  detail::PoisonBoard board(own);
  // A file ends the stop, since a message could not.
  std::optional<aloni::test::TemporaryFolder> folder;
  std::array<char, 4096> file{};
  if (rank == 0) folder.emplace().path("asked").copy(file.data(), file.size() - 1);
  MPI_Bcast(file.data(), static_cast<int>(file.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  auto start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  const auto was_asked = [&] { return std::filesystem::exists(file.data()); };
  if (rank == size - 1 && size > 1) {
    while (!was_asked() && seconds() < 60) std::this_thread::sleep_for(1ms);  // outside of MPI
    EXPECT_TRUE(was_asked()) << "asking waits for this rank";
  } else if (rank == 0 && size > 1) {
    const int asked = size - 1;
    for (int i = 0; i < 2'000; ++i) board.ask({&asked, 1});
    EXPECT_FALSE(board.answered()[static_cast<std::size_t>(asked)]);
    std::ofstream(file.data()).put('\n');
    start = Clock::now();
    for (; !board.answered()[static_cast<std::size_t>(asked)] && seconds() < 20; std::this_thread::sleep_for(1ms))
      board.look();
    EXPECT_TRUE(board.answered()[static_cast<std::size_t>(asked)]);
  }
  aloni::test::sleeping_barrier(MPI_COMM_WORLD, [&] { board.look(); });
}

TEST_F(Poison, WorksOnASingleRank) {
  if (size != 1) GTEST_SKIP() << "for one rank";
  comm.poison("alone");
  EXPECT_THROW(comm.barrier(), aloni::PeerFailed);
}

}  // namespace test_poison
