#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/random.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

namespace {

using namespace aloni::comm;

// Counts around every threshold: nothing, one, tails, both algorithms, several segments with a rest.
constexpr std::size_t counts[] = {0,    1,    2,    3,    7,    63,     64,     65,       1023,
                                  1024, 1025, 2047, 2048, 2049, 10'007, 61'706, 1'000'003};

class Collectives : public testing::Test {
 protected:
  Communicator comm = from_mpi(MPI_COMM_WORLD);
  const int rank = comm.rank(), size = comm.size();

  template <class T>
  static T value(int rank, std::size_t i) {
    return static_cast<T>(static_cast<int>((i * 7 + static_cast<std::size_t>(rank) * 13) % 101)) -
           (std::is_signed_v<T> ? T{50} : T{0});
  }

  template <class T>
  void check_all_reduce() {
    for (const std::size_t count : counts) {
      for (const Reduction op : {Reduction::sum, Reduction::min, Reduction::max}) {
        std::vector<T> values(count + 2, T{77});  // one more on either side must stay
        for (std::size_t i = 0; i < count; ++i) values[i + 1] = value<T>(rank, i);
        comm.all_reduce(std::span(values).subspan(1, count), op);
        for (std::size_t i = 0; i < count; ++i) {
          T expected = value<T>(0, i);
          for (int r = 1; r < size; ++r) {
            const T other = value<T>(r, i);
            expected = op == Reduction::sum   ? expected + other
                       : op == Reduction::min ? std::min(expected, other)
                                              : std::max(expected, other);
          }
          ASSERT_EQ(values[i + 1], expected) << "element " << i << " of " << count;
        }
        ASSERT_EQ(values.front(), T{77});
        ASSERT_EQ(values.back(), T{77});
      }
    }
  }

  /// True on every rank when all ranks hold the same bytes.
  template <class T>
  bool same_everywhere(const std::vector<T>& values) {
    std::vector<T> first = values;
    comm.broadcast(std::as_writable_bytes(std::span(first)), 0);
    return comm.all_reduce(std::memcmp(first.data(), values.data(), values.size() * sizeof(T)) == 0 ? 1 : 0,
                           Reduction::min) == 1;
  }
};

TEST_F(Collectives, AllReduceOfFloat) { check_all_reduce<float>(); }
TEST_F(Collectives, AllReduceOfDouble) { check_all_reduce<double>(); }
TEST_F(Collectives, AllReduceOfInt32) { check_all_reduce<std::int32_t>(); }
TEST_F(Collectives, AllReduceOfInt64) { check_all_reduce<std::int64_t>(); }
TEST_F(Collectives, AllReduceOfUint64) { check_all_reduce<std::uint64_t>(); }

// Sums that round: the order of the summands must be the same for every rank.
TEST_F(Collectives, AllReduceGivesEveryRankTheSameBits) {
  for (const std::size_t count : {1u, 5u, 1000u, 5000u, 61'706u}) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = aloni::random::normal<float>(1, static_cast<std::uint64_t>(rank), i);
    comm.all_reduce(std::span(values), Reduction::sum);
    EXPECT_TRUE(same_everywhere(values)) << count;
  }
}

TEST_F(Collectives, ExtremaOfZerosAndOfNoNumbersAreTheSameBitsEverywhere) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::size_t count : {4u, 3000u}) {
    for (const Reduction op : {Reduction::min, Reduction::max}) {
      std::vector<double> values(count);
      for (std::size_t i = 0; i < count; ++i)
        values[i] = i % 2 ? (rank % 2 ? 0.0 : -0.0) : (rank == size / 2 ? nan : rank);
      comm.all_reduce(std::span(values), op);
      EXPECT_TRUE(same_everywhere(values));
      EXPECT_TRUE(std::isnan(values[0]));
      EXPECT_EQ(values[1], 0.0);
    }
  }
}

TEST_F(Collectives, AllReduceTravelsInPartsToo) {
  comm.set_max_message_bytes(1000);
  for (const std::size_t count : {100u, 1000u, 10'001u}) {
    std::vector<double> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<double>(i) + rank;
    comm.all_reduce(std::span(values), Reduction::sum);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(values[i], static_cast<double>(size) * i + size * (size - 1) / 2);
  }
}

TEST_F(Collectives, BroadcastFromEveryRoot) {
  for (int root = 0; root < size; ++root) {
    for (const std::size_t count : {0u, 1u, 17u, 100'003u}) {
      std::vector<std::byte> data(count, std::byte(rank == root ? root + 1 : 99));
      comm.broadcast(data, root);
      EXPECT_EQ(std::ranges::count(data, std::byte(root + 1)), static_cast<std::ptrdiff_t>(count));
    }
    std::string text = rank == root ? "from " + std::to_string(root) : "something longer that must go away";
    comm.broadcast(text, root);
    EXPECT_EQ(text, "from " + std::to_string(root));
  }
}

TEST_F(Collectives, AllGatherIsOrderedByRank) {
  const auto values = comm.all_gather(1000 - rank);
  ASSERT_EQ(values.size(), static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) EXPECT_EQ(values[r], 1000 - r);
}

TEST_F(Collectives, NobodyLeavesABarrierBeforeAllHaveEntered) {
  using Clock = std::chrono::steady_clock;  // one clock for all processes of a machine
  for (int late = 0; late < size; ++late) {
    if (rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::int64_t entered = Clock::now().time_since_epoch().count();
    comm.barrier();
    const std::int64_t left = Clock::now().time_since_epoch().count();
    EXPECT_GE(left, comm.all_reduce(entered, Reduction::max));
  }
}

// Collectives of two communicators and messages of the user, interleaved.
TEST_F(Collectives, CommunicatorsDoNotDisturbEachOther) {
  const Communicator half = comm.split(rank % 2, rank);
  for (int i = 0; i < 50; ++i) {
    int sent = i, received = -1;
    std::vector<Request> requests{comm.receive(std::as_writable_bytes(std::span(&received, 1)), (rank + 1) % size, i),
                                  comm.send(std::as_bytes(std::span(&sent, 1)), (rank + size - 1) % size, i)};
    EXPECT_EQ(half.all_reduce(1, Reduction::sum), half.size());
    EXPECT_EQ(comm.all_reduce(i, Reduction::max), i);
    comm.wait(requests);
    EXPECT_EQ(received, i);
  }
}

// Trap: wrong data that goes on is worse than an error.
class Mismatch : public Collectives {
 protected:
  template <class F>
  void expect_failure_everywhere(F&& f) {
    if (size == 1) GTEST_SKIP() << "needs a second rank";
    bool threw = false, saw_it = false;
    try {
      f();
      comm.barrier();  // a rank whose part was done by then learns of it here
      comm.barrier();
    } catch (const aloni::CommunicationError&) {
      threw = saw_it = true;
    } catch (const aloni::PeerFailed& error) {
      threw = true;
      EXPECT_NE(error.value().find("expected"), std::string::npos) << error.what();
    }
    EXPECT_TRUE(threw);
    const int mine = saw_it;
    int any = 0;
    MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    EXPECT_EQ(any, 1);
  }
};

TEST_F(Mismatch, AnotherSmallCountOnOneRank) {
  expect_failure_everywhere([&] {
    std::vector<float> values(rank == size - 1 ? 11 : 10);
    comm.all_reduce(std::span(values), Reduction::sum);
  });
}

TEST_F(Mismatch, AnotherLargeCountOnOneRank) {
  expect_failure_everywhere([&] {
    std::vector<float> values(rank == 0 ? 50'000 : 50'001);
    comm.all_reduce(std::span(values), Reduction::sum);
  });
}

TEST_F(Mismatch, AnotherAlgorithmOnOneRank) {
  expect_failure_everywhere([&] {
    std::vector<float> values(rank == 0 ? 10 : 50'001);
    comm.all_reduce(std::span(values), Reduction::sum);
  });
}

TEST_F(Mismatch, AnotherTypeOfTheSameSizeOnOneRank) {
  expect_failure_everywhere([&] {
    if (rank == 0) {
      comm.all_reduce(1.0, Reduction::sum);
    } else {
      comm.all_reduce(std::int64_t{1}, Reduction::sum);
    }
  });
}

TEST_F(Mismatch, AnotherOperationOnOneRank) {
  expect_failure_everywhere([&] { comm.all_reduce(1.0, rank == size - 1 ? Reduction::max : Reduction::sum); });
}

TEST_F(Mismatch, AnotherCollectiveOnOneRank) {
  expect_failure_everywhere([&] {
    if (rank == 0) {
      (void)comm.all_gather(1);
    } else {
      comm.barrier();
    }
  });
}

TEST_F(Mismatch, ACollectiveThatOneRankLeavesOut) {
  expect_failure_everywhere([&] {
    if (rank != 0) comm.all_reduce(1.0, Reduction::sum);
    comm.all_reduce(1.0, Reduction::sum);
    comm.all_reduce(1.0, Reduction::sum);
  });
}

}  // namespace
