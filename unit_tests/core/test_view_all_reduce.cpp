// All-reduces of Views: each way gives what a serial sum gives, with built-in reductions and with functions of the user's.
#include "support/transport.hpp"

#include <aloni/core/comm/shared_view.hpp>
#include <aloni/core/comm/view_all_reduce.hpp>
#include <aloni/core/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

using Exec = Kokkos::DefaultExecutionSpace;
using Memory = Exec::memory_space;

/// Not commutative: the value of the lowest rank that has one.
struct FirstNonZero {
  KOKKOS_FUNCTION double operator()(double a, double b) const { return a != 0 ? a : b; }
};

/// Elements that are no numbers.
struct Place {
  double value;
  int rank;
};
struct Largest {
  KOKKOS_FUNCTION Place operator()(const Place& a, const Place& b) const { return b.value > a.value ? b : a; }
};

namespace test_view_all_reduce {

using namespace aloni::comm;
using aloni::Queue;

class ViewAllReduces : public testing::Test {
 protected:
  Communicator comm = aloni::test::make_communicator();
  Queue<Exec> queue;
  const int rank = comm.rank(), size = comm.size();

  template <class T>
  struct Data {
    Kokkos::View<T*, Memory> view;
    std::shared_ptr<void> memory;
    typename Kokkos::View<T*, Memory>::HostMirror host;
  };
  template <class T, class F>
  Data<T> make(std::size_t count, bool shared, F&& value) {
    Data<T> d;
    if constexpr (std::is_arithmetic_v<T>) {
      if (shared) std::tie(d.view, d.memory) = aloni::comm::allocate_shared<T>(comm, Exec{}, "data", count);
    }
    if (!d.memory) d.view = Kokkos::View<T*, Memory>("data", count);
    d.host = Kokkos::create_mirror_view(d.view);
    fill(d, value);
    return d;
  }
  template <class T, class F>
  static void fill(Data<T>& d, F&& value) {
    for (std::size_t i = 0; i < d.host.extent(0); ++i) d.host(i) = value(i);
    Kokkos::deep_copy(d.view, d.host);
  }
  template <class T>
  void read(Data<T>& d) {
    queue.fence("aloni::test: before reading");
    Kokkos::deep_copy(d.host, d.view);
  }

  static double value(int r, std::size_t i, int turn) {
    return static_cast<double>((i * 7 + static_cast<std::size_t>(r) * 13 + static_cast<std::size_t>(turn)) % 101) - 50;
  }

  template <class T>
  void check(Reduction op) {
    for (const std::size_t count : {0u, 1u, 7u, 10'000u}) {
      for (const bool shared : {false, true}) {
        for (const bool direct : {false, true}) {
          int turn = 0;
          const auto mine = [&](std::size_t i) { return static_cast<T>(value(rank, i, turn)); };
          auto data = make<T>(count, shared, mine);
          const ViewAllReduce<T, Exec> reduce(comm, queue, data.view, {op}, direct);
          if (!direct) {
            EXPECT_NE(reduce.way(), ViewAllReduceWay::direct);
          }
          for (; turn < 3; ++turn) {
            fill(data, mine);
            reduce.run(queue);
            read(data);
            for (std::size_t i = 0; i < count; ++i) {
              double expected = value(0, i, turn);
              for (int r = 1; r < size; ++r) {
                const double v = value(r, i, turn);
                expected = op == Reduction::min   ? std::min(expected, v)
                           : op == Reduction::max ? std::max(expected, v)
                                                  : expected + v;
              }
              if (op == Reduction::average) expected = static_cast<T>(expected) * (T(1) / static_cast<T>(size));
              ASSERT_EQ(data.host(i), static_cast<T>(expected)) << i << " of " << count;
            }
          }
        }
      }
    }
  }
};

TEST_F(ViewAllReduces, GiveWhatASerialLoopGives) {
  for (const Reduction op : {Reduction::sum, Reduction::min, Reduction::max, Reduction::average}) {
    check<float>(op);
    check<double>(op);
  }
  for (const Reduction op : {Reduction::sum, Reduction::min, Reduction::max}) check<std::int64_t>(op);
}

TEST_F(ViewAllReduces, ReachIntoSharedMemory) {
  auto data = make<double>(10, true, [](std::size_t) { return 1.0; });
  const ViewAllReduce<double, Exec> reduce(comm, queue, data.view);
  const auto options = aloni::test::transport_options();
  if (size > 1 && options.shared_memory && options.ranks_per_node == 0 && std::is_same_v<Memory, Kokkos::HostSpace>) {
    EXPECT_EQ(reduce.way(), ViewAllReduceWay::direct);
  }
}

TEST_F(ViewAllReduces, KeepTheOrderOfRanksWithFunctionsOfTheUsers) {
  for (const bool shared : {false, true}) {
    for (const bool direct : {false, true}) {
      // Rank r has something from element r on.
      auto data = make<double>(20, shared, [&](std::size_t i) { return static_cast<int>(i) >= rank ? rank + 1.0 : 0; });
      // The first rank that has one for element i is 0, except where it was zeroed.
      if (rank == 0) {
        data.host(5) = 0;
        Kokkos::deep_copy(data.view, data.host);
      }
      const ViewAllReduce<double, Exec, FirstNonZero> first(comm, queue, data.view, {}, direct);
      first.run(queue);
      read(data);
      for (std::size_t i = 0; i < 20; ++i) ASSERT_EQ(data.host(i), i == 5 ? (size > 1 ? 2 : 0) : 1) << i;
    }
  }
}

TEST_F(ViewAllReduces, TakeAnyElements) {
  auto data = make<Place>(100, false, [&](std::size_t i) { return Place{value(rank, i, 0), rank}; });
  const ViewAllReduce<Place, Exec, Largest> largest(comm, queue, data.view);
  largest.run(queue);
  read(data);
  for (std::size_t i = 0; i < 100; ++i) {
    int best = 0;
    for (int r = 1; r < size; ++r) {
      if (value(r, i, 0) > value(best, i, 0)) best = r;
    }
    ASSERT_EQ(data.host(i).rank, best);
    ASSERT_EQ(data.host(i).value, value(best, i, 0));
  }
}

TEST_F(ViewAllReduces, RefuseViewsThatDiffer) {
  if (size < 2) GTEST_SKIP() << "nobody to differ from";
  const Kokkos::View<float*, Memory> view("data", rank == 0 ? 3 : 4);
  EXPECT_THROW((ViewAllReduce<float, Exec>(comm, queue, view)), aloni::InvalidArgument);
  const Kokkos::View<std::int64_t*, Memory> integers("data", 3);
  EXPECT_THROW((ViewAllReduce<std::int64_t, Exec>(comm, queue, integers, {Reduction::average})),
               aloni::InvalidArgument);
}

}  // namespace test_view_all_reduce
