#include "support/transport.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/comm/schedule/algorithms.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/random.hpp>

#include "support/sanitizer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory_resource>
#include <thread>
#include <vector>

namespace test_collectives {

using namespace aloni::comm;
using aloni::test::make_communicator;

// Counts around every threshold: zero, one, vector tails, both algorithms, several segments and a rest.
constexpr std::size_t counts[] = {0,    1,    2,    3,    7,    63,     64,     65,       1023,
                                  1024, 1025, 2047, 2048, 2049, 10'007, 61'706, 1'000'003};

/// All algorithms for an all-reduce of `bytes` bytes.
std::vector<AlgorithmReport> reports_of(const Communicator& comm, std::size_t bytes) {
  std::vector<float> values(bytes / sizeof(float));
  return comm.explain(AllReduce{std::span(values), Reduction::sum}).algorithms;
}

class Collectives : public testing::Test {
 protected:
  Communicator comm = make_communicator();
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
        std::vector<T> values(count + 2, T{77});  // the element on either side must stay
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
    comm.run(Broadcast{std::span(first), 0});
    return comm.all_reduce(std::memcmp(first.data(), values.data(), values.size() * sizeof(T)) == 0 ? 1 : 0,
                           Reduction::min) == 1;
  }
};

TEST_F(Collectives, AllReducesFloat) { check_all_reduce<float>(); }
TEST_F(Collectives, AllReducesDouble) { check_all_reduce<double>(); }
TEST_F(Collectives, AllReducesInt32) { check_all_reduce<std::int32_t>(); }
TEST_F(Collectives, AllReducesInt64) { check_all_reduce<std::int64_t>(); }
TEST_F(Collectives, AllReducesUint64) { check_all_reduce<std::uint64_t>(); }

// These sums round, so every rank must add in the same order.
TEST_F(Collectives, AllReduceGivesEveryRankTheSameBits) {
  for (const std::size_t count : {1u, 5u, 1000u, 5000u, 61'706u}) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = aloni::random::normal<float>(1, static_cast<std::uint64_t>(rank), i);
    comm.all_reduce(std::span(values), Reduction::sum);
    EXPECT_TRUE(same_everywhere(values)) << count;
  }
}

TEST_F(Collectives, MinimumAndMaximumOfSignedZerosAndNaNHaveEqualBitsOnAllRanks) {
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

TEST_F(Collectives, AllReduceWorksWithSmallFragments) {
  comm.set_max_message_bytes(1000);
  for (const std::size_t count : {100u, 1000u, 10'001u}) {
    std::vector<double> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<double>(i) + rank;
    comm.all_reduce(std::span(values), Reduction::sum);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(values[i], static_cast<double>(size) * i + size * (size - 1) / 2);
  }
}

/// Every algorithm, with data in private and in shared memory.
class Algorithms : public Collectives {
 protected:
  /// Some algorithms need shared memory or equal nodes.
  bool works(AllReduceAlgorithm algorithm) {
    const auto reports = reports_of(comm, 8);
    const auto found = std::ranges::find(reports, algorithm, &AlgorithmReport::algorithm);
    return found == reports.end() || found->unsupported.empty();
  }

  template <class F>
  void for_each_way(F&& f) {
    using A = AllReduceAlgorithm;
    for (const A algorithm :
         {A::automatic, A::direct, A::recursive_doubling, A::rabenseifner, A::ring, A::hierarchical}) {
      if (!works(algorithm)) continue;
      for (const aloni::Index part : {0, 1000}) {
        for (const bool in_shared : {false, true}) {
          SCOPED_TRACE(to_string(algorithm) + ", parts of " + std::to_string(part) + (in_shared ? ", shared" : ""));
          f(CollectiveOptions{.algorithm = algorithm, .part_elements = part},
            in_shared ? comm.shared_memory().get() : std::pmr::new_delete_resource());
        }
      }
    }
  }
};

TEST_F(Algorithms, GiveTheSum) {
  for_each_way([&](const CollectiveOptions& options, std::pmr::memory_resource* memory) {
    for (const std::size_t count : {0u, 1u, 5u, 1000u, 30'011u}) {
      std::pmr::vector<std::int64_t> values(count, memory);
      for (std::size_t i = 0; i < count; ++i) values[i] = value<std::int64_t>(rank, i);
      comm.all_reduce(std::span(values), Reduction::sum, options);
      for (std::size_t i = 0; i < count; ++i) {
        std::int64_t sum = 0;
        for (int r = 0; r < size; ++r) sum += value<std::int64_t>(r, i);
        ASSERT_EQ(values[i], sum);
      }
    }
  });
}

// These sums round, so a different order of additions would give different bits.
TEST_F(Algorithms, GiveEqualBitsWhenReproducible) {
  const Communicator over_mpi = from_mpi(MPI_COMM_WORLD, {.shared_memory = false});
  std::vector<float> start(20'011);
  for (std::size_t i = 0; i < start.size(); ++i)
    start[i] = aloni::random::normal<float>(3, static_cast<std::uint64_t>(rank), i);
  std::vector<float> first;
  const auto compare = [&](const Communicator& by, CollectiveOptions options, std::pmr::memory_resource* memory) {
    options.reproducible = true;
    std::pmr::vector<float> values(start.begin(), start.end(), memory);
    try {
      by.all_reduce(std::span(values), Reduction::sum, options);
    } catch (const aloni::Unsupported&) {
      return;  // on all ranks
    }
    if (first.empty()) first.assign(values.begin(), values.end());
    EXPECT_EQ(std::memcmp(first.data(), values.data(), sizeof(float) * first.size()), 0);
  };
  for_each_way([&](const CollectiveOptions& options, std::pmr::memory_resource* memory) {
    compare(comm, options, memory);
    if (options.algorithm != AllReduceAlgorithm::direct) compare(over_mpi, options, memory);
  });
  const CollectiveOptions refused{.algorithm = AllReduceAlgorithm::ring, .reproducible = true};
  EXPECT_THROW((void)comm.start(AllReduce{std::span(start), Reduction::sum, refused}), aloni::Unsupported);
  // Small pieces take another algorithm and must give the same bits.
  std::vector<float> pieces = start;
  for (std::size_t i = 0; i < pieces.size(); i += 100)
    comm.all_reduce(std::span(pieces).subspan(i, std::min<std::size_t>(100, pieces.size() - i)), Reduction::sum,
                    {.reproducible = true});
  EXPECT_EQ(std::memcmp(first.data(), pieces.data(), sizeof(float) * first.size()), 0);
}

TEST_F(Collectives, AllReduceComputesProductsAndAverages) {
  std::vector<double> values(3000, 1.0 + rank);
  comm.all_reduce(std::span(values), Reduction::product);
  EXPECT_EQ(values.back(), std::tgamma(size + 1.0));
  values.assign(3000, rank);
  comm.all_reduce(std::span(values), Reduction::average);
  EXPECT_DOUBLE_EQ(values.front(), (size - 1) / 2.0);
  std::vector<int> integers(3);
  EXPECT_THROW(comm.all_reduce(std::span(integers), Reduction::average), aloni::InvalidArgument);
}

TEST_F(Collectives, AllReduceRoundsSumsOfBfloat16Once) {
  // 256 + 1 + 1 …: bfloat16 has 8 bits of precision, so adding each 1 alone would change nothing.
  for (const std::size_t count : {1u, 10'000u}) {
    std::vector<bfloat16> values(count, bfloat16(rank == 0 ? 256.0f : 1.0f));
    comm.all_reduce(std::span(values), Reduction::sum);
    EXPECT_EQ(values.front().bits, bfloat16(256.0f + static_cast<float>(size - 1)).bits);
    EXPECT_EQ(values.back().bits, values.front().bits);
  }
}

TEST_F(Collectives, AllReduceRoundsSumsOfFloat16Once) {
  // 2048 + 1 + 1 …: float16 has 11 bits of precision.
  for (const std::size_t count : {1u, 10'000u}) {
    for (const Reduction op : {Reduction::sum, Reduction::average, Reduction::max}) {
      std::vector<float16> values(count, float16(rank == 0 ? 2048.0f : 1.0f));
      comm.all_reduce(std::span(values), op);
      const float sum = 2048.0f + static_cast<float>(size - 1);
      const float expected = op == Reduction::max   ? 2048.0f
                             : op == Reduction::sum ? sum
                                                    : sum / static_cast<float>(size);
      EXPECT_EQ(values.front().bits, float16(expected).bits);
      EXPECT_EQ(values.back().bits, values.front().bits);
    }
  }
}

// Products of matrices don't commute: ranks must be combined in their order.
TEST_F(Algorithms, ApplyAFunctionOfTheUserInTheOrderOfRanks) {
  struct Matrix {
    std::int64_t a, b, c, d;
    bool operator==(const Matrix&) const = default;
  };
  const auto times = [](const Matrix& x, const Matrix& y) {
    return Matrix{x.a * y.a + x.b * y.c, x.a * y.b + x.b * y.d, x.c * y.a + x.d * y.c, x.c * y.b + x.d * y.d};
  };
  const auto of = [](int r, std::size_t i) { return Matrix{r + 1, static_cast<std::int64_t>(i % 3), 1, 2}; };
  for (const auto algorithm : {AllReduceAlgorithm::automatic, AllReduceAlgorithm::direct,
                               AllReduceAlgorithm::recursive_doubling, AllReduceAlgorithm::rabenseifner}) {
    if (!works(algorithm)) continue;
    for (const std::size_t count : {1u, 7u, 5000u}) {
      std::vector<Matrix> values;
      for (std::size_t i = 0; i < count; ++i) values.push_back(of(rank, i));
      comm.all_reduce(std::span(values), user_operation<Matrix>(times), {.algorithm = algorithm});
      for (std::size_t i = 0; i < count; ++i) {
        Matrix product = of(0, i);
        for (int r = 1; r < size; ++r) product = times(product, of(r, i));
        ASSERT_EQ(values[i], product) << to_string(algorithm);
      }
    }
  }
}

TEST_F(Collectives, ReduceScatterGivesEachRankItsBlock) {
  for (const std::size_t count : {0u, 3u, 1000u, 200'003u}) {
    for (const bool reproducible : {false, true}) {
      std::vector<double> values(count);
      for (std::size_t i = 0; i < count; ++i) values[i] = value<double>(rank, i);
      comm.run(ReduceScatter{std::span(values), Reduction::average, {.reproducible = reproducible}});
      const Region block = block_of({Buffer::output, 0, static_cast<aloni::Index>(count)}, rank, size);
      for (auto i = static_cast<std::size_t>(block.offset); i < static_cast<std::size_t>(block.offset + block.count);
           ++i) {
        double sum = 0;
        for (int r = 0; r < size; ++r) sum += value<double>(r, i);
        ASSERT_NEAR(values[i], sum / size, 1e-12);
      }
    }
  }
}

TEST_F(Collectives, ReduceScatterRoundsSumsOfBfloat16Once) {
  for (const Reduction op : {Reduction::sum, Reduction::average}) {
    for (const std::size_t count : {3u, 20'001u}) {
      std::vector<bfloat16> values(count, bfloat16(rank == 0 ? 256.0f : 1.0f));
      comm.run(ReduceScatter{std::span(values), op});
      const float sum = 256.0f + static_cast<float>(size - 1);
      const bfloat16 expected(op == Reduction::sum ? sum : sum / static_cast<float>(size));
      const Region block = block_of({Buffer::output, 0, static_cast<aloni::Index>(count)}, rank, size);
      for (auto i = static_cast<std::size_t>(block.offset); i < static_cast<std::size_t>(block.offset + block.count);
           ++i)
        ASSERT_EQ(values[i].bits, expected.bits) << i;
    }
  }
}

TEST_F(Collectives, AllGatherCollectsUnequalBlocks) {
  for (const std::size_t count : {1u, 40u, 50'021u}) {
    std::vector<int> values(count, -1);
    const Region block = block_of({Buffer::output, 0, static_cast<aloni::Index>(count)}, rank, size);
    for (auto i = block.offset; i < block.offset + block.count; ++i)
      values[static_cast<std::size_t>(i)] = static_cast<int>(i);
    comm.run(AllGather{std::span(values)});
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(values[i], static_cast<int>(i));
  }
}

TEST_F(Collectives, AllToAllExchangesEqualAndUnequalBlocks) {
  const auto p = static_cast<std::size_t>(size);
  for (const std::size_t block : {1u, 3u, 10'000u}) {
    std::vector<int> input(p * block), output(p * block, -1);
    for (std::size_t to = 0; to < p; ++to)
      std::fill_n(input.begin() + static_cast<std::ptrdiff_t>(to * block), block, 100 * rank + static_cast<int>(to));
    comm.run(AllToAll{std::span(input), std::span(output)});
    for (std::size_t i = 0; i < output.size(); ++i) ASSERT_EQ(output[i], 100 * static_cast<int>(i / block) + rank);
  }
  // Rank r sends r + 2 i numbers to rank i; rank 0 sends none to itself.
  std::vector<aloni::Index> send, receive;
  std::vector<int> input, expected;
  for (int i = 0; i < size; ++i) {
    send.push_back(rank + 2 * i);
    receive.push_back(i + 2 * rank);
    input.insert(input.end(), static_cast<std::size_t>(send.back()), 100 * rank + i);
    expected.insert(expected.end(), static_cast<std::size_t>(receive.back()), 100 * i + rank);
  }
  std::vector<int> output(expected.size());
  comm.run(AllToAll{std::span(input), std::span(output), send, receive});
  EXPECT_EQ(output, expected);
  receive.pop_back();
  EXPECT_THROW(comm.run(AllToAll{std::span(input), std::span(output), send, receive}), aloni::InvalidArgument);
}

TEST_F(Collectives, ManyRunAtTheSameTimeAndEndInAnyOrder) {
  std::vector<std::vector<double>> values;
  std::vector<Request> requests;
  std::vector<int> text(1000, rank == size - 1 ? 5 : 0);
  for (int i = 0; i < 40; ++i) values.emplace_back(static_cast<std::size_t>(i * i * 37), rank + i);
  for (int i = 0; i < 40; ++i)
    requests.push_back(
        comm.start_all_reduce(std::span(values[static_cast<std::size_t>(i)]), Reduction::sum, {.priority = i % 3}));
  requests.push_back(comm.start(Broadcast{std::span(text), size - 1}));
  requests.push_back(comm.start(Barrier{}));
  std::ranges::rotate(requests, requests.begin() + 7 * rank % 42);
  comm.wait(requests);
  for (int i = 1; i < 40; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)].back(), size * (size - 1) / 2 + size * i);
  EXPECT_EQ(text.back(), 5);
}

// When one rank waits, the others are at different calls. Other collectives, types and sizes come between the fused
// ones.
TEST_F(Collectives, FusedAllReducesGiveTheResultsOfSingleOnes) {
  for (int round = 0; round < 20; ++round) {
    std::vector<std::vector<double>> doubles;
    std::vector<std::vector<float>> floats;
    std::vector<Request> requests;
    for (int i = 0; i < 60; ++i) {
      doubles.emplace_back(static_cast<std::size_t>((i * 37 + round) % 3000), rank + i);
      floats.emplace_back(static_cast<std::size_t>(i), 1.0f);
    }
    for (std::size_t i = 0; i < 60; ++i) {
      requests.push_back(comm.start_all_reduce(std::span(doubles[i]), Reduction::average, {.fuse = true}));
      if (i % 10 == 9) requests.push_back(comm.start_all_reduce(std::span(floats[i]), Reduction::sum, {.fuse = true}));
      if (i % 17 == 16) {
        EXPECT_EQ(comm.all_reduce(1, Reduction::sum), size);
      }
      if (static_cast<int>(i) == 3 * rank + round) (void)comm.test(requests[i / 2]);
      if (static_cast<int>(i) == 50 - rank) std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    comm.wait(requests);
    for (std::size_t i = 0; i < 60; ++i) {
      for (const double v : doubles[i]) ASSERT_DOUBLE_EQ(v, (size - 1) / 2.0 + static_cast<double>(i));
      if (i % 10 == 9) {
        for (const float v : floats[i]) ASSERT_EQ(v, static_cast<float>(size));
      }
    }
  }
}

TEST_F(Collectives, FusedAllReducesKeepTheirReductions) {
  std::vector<int> sums(20, rank + 1), maxima(20, rank + 1);
  std::vector<Request> requests;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    requests.push_back(comm.start_all_reduce(std::span(sums).subspan(i, 1), Reduction::sum, {.fuse = true}));
    requests.push_back(comm.start_all_reduce(std::span(maxima).subspan(i, 1), Reduction::max, {.fuse = true}));
  }
  comm.wait(requests);
  EXPECT_EQ(sums, std::vector<int>(20, size * (size + 1) / 2));
  EXPECT_EQ(maxima, std::vector<int>(20, size));
}

// Each rank decides alone whether it copies: the pieces are neighbours on rank 0, and have gaps on the other ranks.
TEST_F(Collectives, FusedPiecesOfOneArrayLeaveGapsUntouched) {
  const std::size_t gap = rank == 0 ? 0 : 3;
  std::vector<float> values(10 * (100 + gap), static_cast<float>(rank));
  std::vector<Request> requests;
  for (std::size_t i = 0; i < 10; ++i)
    requests.push_back(
        comm.start_all_reduce(std::span(values).subspan(i * (100 + gap), 100), Reduction::sum, {.fuse = true}));
  comm.wait(requests);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool in_gap = i % (100 + gap) >= 100;
    ASSERT_EQ(values[i], static_cast<float>(in_gap ? rank : size * (size - 1) / 2)) << i;
  }
}

TEST_F(Collectives, FusedAllReducesTakeFewMessages) {
  if (size == 1) GTEST_SKIP() << "needs a second rank";
  const auto messages = [&] {
    std::uint64_t sum = 0;
    for (const auto& [name, counters] : comm.traffic()) sum += counters.messages_sent;
    return sum;
  };
  std::vector<std::vector<float>> values(64, std::vector<float>(1000, 1.0f));
  comm.barrier();
  const auto before = messages();
  std::vector<Request> requests;
  for (auto& v : values) requests.push_back(comm.start_all_reduce(std::span(v), Reduction::sum, {.fuse = true}));
  comm.wait(requests);
  EXPECT_LT(messages() - before, 64u);
}

TEST_F(Collectives, BroadcastsFromEveryRoot) {
  for (int root = 0; root < size; ++root) {
    for (const std::size_t count : {0u, 1u, 17u, 100'003u}) {
      std::vector<std::byte> data(count, std::byte(rank == root ? root + 1 : 99));
      comm.run(Broadcast{std::span(data), root});
      EXPECT_EQ(std::ranges::count(data, std::byte(root + 1)), static_cast<std::ptrdiff_t>(count));
    }
    std::string text = rank == root ? "from " + std::to_string(root) : "a longer text that must be replaced";
    comm.broadcast(text, root);
    EXPECT_EQ(text, "from " + std::to_string(root));
  }
}

TEST_F(Collectives, AllGatherIsOrderedByRank) {
  const auto values = comm.all_gather(1000 - rank);
  ASSERT_EQ(values.size(), static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) EXPECT_EQ(values[r], 1000 - r);
}

TEST_F(Collectives, NoRankLeavesABarrierBeforeAllHaveEntered) {
  using Clock = std::chrono::steady_clock;  // one clock for all processes of a machine
  for (int late = 0; late < size; ++late) {
    if (rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::int64_t entered = Clock::now().time_since_epoch().count();
    comm.barrier();
    const std::int64_t left = Clock::now().time_since_epoch().count();
    EXPECT_GE(left, comm.all_reduce(entered, Reduction::max));
  }
}

// Collectives of two communicators run between messages of the user.
TEST_F(Collectives, CommunicatorsDoNotDisturbEachOther) {
  const Communicator half = comm.split(rank % 2, rank);
  for (int i = 0; i < 50; ++i) {
    int sent = i, received = -1;
    std::vector<Request> requests{comm.receive(std::span(&received, 1), (rank + 1) % size, i),
                                  comm.send(std::span(&sent, 1), (rank + size - 1) % size, i)};
    EXPECT_EQ(half.all_reduce(1, Reduction::sum), half.size());
    EXPECT_EQ(comm.all_reduce(i, Reduction::max), i);
    comm.wait(requests);
    EXPECT_EQ(received, i);
  }
}

// Ranks that share cores may pause for a while; that is no failure.
TEST_F(Collectives, ManyStepsRaiseNoFalseAlarm) {
  const Communicator own = from_mpi(MPI_COMM_WORLD, {.stuck_after = std::chrono::milliseconds(2000)});
  std::vector<float> values(40);
  for (int i = 0; i < aloni::test::share_of(8000); ++i) {
    values.assign(values.size(), static_cast<float>(i % 1000));
    own.all_reduce(std::span(values), Reduction::sum);
    ASSERT_EQ(values.back(), static_cast<float>(i % 1000 * size));
  }
}

TEST_F(Collectives, TuningChoosesTheAlgorithm) {
  const Communicator own = comm.split(0, rank);
  for (const AlgorithmReport& report : reports_of(own, 100)) EXPECT_LT(report.measured_seconds, 0);
  const auto chosen = [&](std::size_t bytes) {
    for (const AlgorithmReport& report : reports_of(own, bytes)) {
      if (report.chosen) return report.algorithm;
    }
    return AllReduceAlgorithm::automatic;
  };
  const int per_node = aloni::test::transport_options().ranks_per_node;
  Tuning tuning{.ranks = size,
                .nodes = per_node > 0 ? (size + per_node - 1) / per_node : 1,
                .latency = 1e-6,
                .seconds_per_byte = 1e-9,
                .combine_seconds_per_byte = 1e-10};
  tuning.measurements = {{AllReduceAlgorithm::ring, 1000, 1e-6},
                         {AllReduceAlgorithm::rabenseifner, 1000, 2e-6},
                         {AllReduceAlgorithm::ring, 9000, 9e-6},
                         {AllReduceAlgorithm::rabenseifner, 9000, 5e-6}};
  own.set_tuning(tuning);
  EXPECT_EQ(chosen(1000), AllReduceAlgorithm::ring);
  EXPECT_EQ(chosen(9000), AllReduceAlgorithm::rabenseifner);
  for (const AlgorithmReport& report : reports_of(own, 9000)) {
    EXPECT_EQ(report.predicted_seconds > 0, size > 1 && report.unsupported.empty());
  }
  EXPECT_EQ(own.all_reduce(1, Reduction::sum), size);
  Tuning different = tuning;
  if (rank == size - 1) different.latency *= 2;
  if (size > 1) {
    EXPECT_THROW(own.set_tuning(different), aloni::InvalidArgument);
  }
  tuning.ranks = size + 1;
  EXPECT_THROW(own.set_tuning(tuning), aloni::InvalidArgument);
}

TEST_F(Collectives, PersistentAllReducesRunManyTimes) {
  for (const std::size_t count : {3u, 20'000u}) {
    std::vector<double> values(count);
    const auto average = comm.persistent(AllReduce{std::span(values), Reduction::average});
    for (int i = 0; i < 10; ++i) {
      std::ranges::fill(values, rank + i);
      float fused = 1;  // runs first on all ranks, though only some wait for it
      const Request request = comm.start_all_reduce(std::span(&fused, 1), Reduction::sum, {.fuse = true});
      if (rank % 2 == 1) comm.wait(request);
      average.run();
      comm.wait(request);
      ASSERT_EQ(fused, static_cast<float>(size));
      ASSERT_DOUBLE_EQ(values.back(), (size - 1) / 2.0 + i);
    }
  }
}

TEST_F(Collectives, EveryOperationCanBePersistent) {
  const auto p = static_cast<std::size_t>(size), r = static_cast<std::size_t>(rank);
  std::vector<bfloat16> narrow(100);
  std::vector<float> scattered(p);
  std::vector<int> gathered(p), sent(p), received(p), sent_unevenly(p + 1), received_unevenly(p + 1), told(1000);
  std::vector<std::int64_t> largest(50);
  // Two elements to the next rank, one to each other rank.
  std::vector<aloni::Index> to(p, 1), from(p, 1);
  to[(r + 1) % p] = from[(r + p - 1) % p] = 2;
  Builder b(rank);
  recursive_doubling_all_reduce(b, Team::all(rank, size), b.output(50));
  const std::vector<PersistentCollective> collectives{
      comm.persistent(AllReduce{std::span(narrow), Reduction::average}),
      comm.persistent(ReduceScatter{std::span(scattered), Reduction::sum}),
      comm.persistent(AllGather{std::span(gathered)}),
      comm.persistent(AllToAll{std::span(sent), std::span(received)}),
      comm.persistent(AllToAll{std::span(sent_unevenly), std::span(received_unevenly), to, from}),
      comm.persistent(Broadcast{std::span(told), size - 1}),
      comm.persistent(Barrier{}),
      comm.persistent(
          UserSchedule{"largest", b.finish(), std::span(largest), element_operation<std::int64_t>(Reduction::max)})};
  for (int i = 0; i < 5; ++i) {
    std::ranges::fill(narrow, bfloat16(static_cast<float>(i + 2 * rank)));
    std::ranges::fill(scattered, static_cast<float>(i));
    gathered[r] = 10 * rank + i;
    for (std::size_t k = 0; k < p; ++k) sent[k] = 100 * rank + 10 * static_cast<int>(k) + i;
    std::ranges::fill(sent_unevenly, rank + i);
    std::ranges::fill(told, rank + i);
    std::ranges::fill(largest, rank + i);
    std::vector<Request> requests;
    for (const PersistentCollective& c : collectives) requests.push_back(c.start());
    comm.wait(requests);
    ASSERT_EQ(narrow.back().bits, bfloat16(static_cast<float>(i + size - 1)).bits);
    ASSERT_EQ(scattered[r], static_cast<float>(size * i));
    aloni::Index place = 0;
    for (std::size_t k = 0; k < p; ++k) {
      ASSERT_EQ(gathered[k], 10 * static_cast<int>(k) + i);
      ASSERT_EQ(received[k], 100 * static_cast<int>(k) + 10 * rank + i);
      for (const aloni::Index end = place + from[k]; place < end; ++place)
        ASSERT_EQ(received_unevenly[static_cast<std::size_t>(place)], static_cast<int>(k) + i);
    }
    ASSERT_EQ(told.back(), size - 1 + i);
    ASSERT_EQ(largest.back(), size - 1 + i);
  }
}

TEST_F(Collectives, APersistentOperationRefusesASecondStartWhileItRuns) {
  if (size == 1) return;  // it completes at once
  const PersistentCollective barrier = comm.persistent(Barrier{});
  const Request request = barrier.start();
  EXPECT_THROW((void)barrier.start(), aloni::InvalidArgument);
  comm.wait(request);
  barrier.run();
  PersistentCollective{}.run();
}

// Only its progress thread can take part while a rank sleeps.
TEST_F(Collectives, AProgressThreadTakesPartWhileTheRankSleeps) {
  if (size == 1) GTEST_SKIP() << "needs a second rank";
  const Communicator own = from_mpi(MPI_COMM_WORLD, {.progress_thread = true});
  std::vector<float> values(500'000, 1.0f), small(3, 2.0f);
  for (int i = 0; i < aloni::test::share_of(5); ++i) {
    Request requests[] = {own.start_all_reduce(std::span(values), Reduction::max),
                          own.start_all_reduce(std::span(small), Reduction::max, {.fuse = i % 2 == 1})};
    if (rank == 0) {
      // The others sleep, so only their threads can complete this.
      const auto start = std::chrono::steady_clock::now();
      own.wait(requests[0]);
      EXPECT_LT(std::chrono::steady_clock::now() - start,
                std::chrono::milliseconds(200 * (aloni::test::sanitized ? 5 : 1)));
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(300 * (aloni::test::sanitized ? 5 : 1)));
    }
    own.wait(requests);
    EXPECT_EQ(own.all_reduce(1, Reduction::sum), size);
  }
}

// Ranks that make different calls must get an error, never wrong data.
class Mismatch : public Collectives {
 protected:
  template <class F>
  void expect_failure_everywhere(F&& f) {
    if (size == 1) GTEST_SKIP() << "needs a second rank";
    bool threw = false, saw_it = false;
    try {
      f();
      comm.barrier();  // a rank that had already finished learns of the failure here
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

TEST_F(Mismatch, OneRankHasAnotherSmallCount) {
  expect_failure_everywhere([&] {
    std::vector<float> values(rank == size - 1 ? 11 : 10);
    comm.all_reduce(std::span(values), Reduction::sum);
  });
}

TEST_F(Mismatch, OneRankHasAnotherLargeCount) {
  expect_failure_everywhere([&] {
    std::vector<float> values(rank == 0 ? 50'000 : 50'001);
    comm.all_reduce(std::span(values), Reduction::sum);
  });
}

TEST_F(Mismatch, OneRankTakesAnotherAlgorithm) {
  expect_failure_everywhere([&] {
    std::vector<float> values(rank == 0 ? 10 : 50'001);
    comm.all_reduce(std::span(values), Reduction::sum);
  });
}

TEST_F(Mismatch, OneRankHasAnotherTypeOfTheSameSize) {
  expect_failure_everywhere([&] {
    if (rank == 0) {
      comm.all_reduce(1.0, Reduction::sum);
    } else {
      comm.all_reduce(std::int64_t{1}, Reduction::sum);
    }
  });
}

TEST_F(Mismatch, OneRankHasAnotherReduction) {
  expect_failure_everywhere([&] { comm.all_reduce(1.0, rank == size - 1 ? Reduction::max : Reduction::sum); });
}

TEST_F(Mismatch, OneRankCallsAnotherCollective) {
  expect_failure_everywhere([&] {
    if (rank == 0) {
      (void)comm.all_gather(1);
    } else {
      comm.barrier();
    }
  });
}

TEST_F(Mismatch, OneRankLeavesOutACollective) {
  expect_failure_everywhere([&] {
    if (rank != 0) comm.all_reduce(1.0, Reduction::sum);
    comm.all_reduce(1.0, Reduction::sum);
    comm.all_reduce(1.0, Reduction::sum);
  });
}

// A broadcasting or sending rank doesn't wait for its receivers. The memory for data that they haven't asked for is
// limited.
TEST_F(Collectives, SendersWaitForReceiversThatAreFarBehind) {
  constexpr auto pause = std::chrono::milliseconds(300);
  std::vector<std::byte> data(64 * 1024);
  const auto check = [&](int last, int times, auto&& f) {
    const auto start = std::chrono::steady_clock::now();  // before any rank pauses
    comm.barrier();
    if (rank == last) std::this_thread::sleep_for(pause);
    for (int i = 0; i < times; ++i) f(i);
    if (size > 1 && (rank == 0 || rank == last)) {
      EXPECT_GE(std::chrono::steady_clock::now() - start, pause);
    }
    comm.barrier();
  };
  check(size - 1, 200, [&](int) { comm.run(Broadcast{std::span(data), 0}); });
  if (size == 1) return;
  // Many small messages cost memory too.
  for (const std::size_t bytes : {data.size(), std::size_t{1}}) {
    const auto some = std::span(data).first(bytes);
    check(1, bytes == 1 ? 30'000 : 200, [&](int) {
      if (rank == 0) comm.wait(comm.send(some, 1, 7));
      if (rank == 1) comm.wait(comm.receive(some, 0, 7));
    });
  }
  // A rank that doesn't wait for its sends goes on, whatever the order in which the peer receives them.
  comm.barrier();
  constexpr int many = 200;
  std::vector<Request> requests;
  std::vector<std::byte> last(1);
  if (rank == 0) {
    for (int i = 0; i < many; ++i) requests.push_back(comm.send(data, 1, 1));
    requests.push_back(comm.send(last, 1, 2));
  } else if (rank == 1) {
    comm.wait(comm.receive(last, 0, 2));
    for (int i = 0; i < many; ++i) comm.wait(comm.receive(data, 0, 1));
  }
  comm.wait(requests);
}

}  // namespace test_collectives
