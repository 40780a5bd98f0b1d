// Factorisations on several ranks within limits of memory: the same bits as on one rank, errors on all ranks.
#include "support/sanitizer.hpp"
#include "support/transport.hpp"
#include "tasks/mail_traffic.hpp"
#include "tasks/rank_matrices.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>
#include <aloni/tasks/cholesky.hpp>
#include <aloni/tasks/lu.hpp>
#include <aloni/tasks/solve.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace test_rank_memory_limit {

using namespace aloni::tasks;
using aloni::Index;
using aloni::comm::Communicator;
using aloni::comm::Reduction;
using aloni::test::different_tile;
using aloni::test::dominant_element;
using aloni::test::make_matrix;
using aloni::test::symmetric_element;
using aloni::views::squarest_grid;
using aloni::views::TileDistribution;
using aloni::views::TileGrid;
using aloni::views::TileShape;
using testing::HasSubstr;

/// Memory, apart from one write that fails as on a full disk.
class FullStore final : public TileStore {
 public:
  explicit FullStore(int writes) : left_(writes) {}
  void write(const TileId& tile, std::span<const std::byte> bytes) override {
    if (left_-- == 0) throw aloni::FileError("FullStore", "tiles", "no space left", "space");
    memory_.write(tile, bytes);
  }
  void read(const TileId& tile, std::span<std::byte> bytes) override { memory_.read(tile, bytes); }

 private:
  std::atomic<int> left_;
  MemoryTileStore memory_;
};

class RankMemoryLimits : public testing::Test {
 protected:
  Communicator comm = aloni::test::make_communicator();
  const int rank = comm.rank(), size = comm.size();

  /// Slots of the limit: those of a part of the own tiles, or the least.
  template <class T>
  Index limit_of(const TileDistribution& d, Index percent) const {
    const Index slot = aloni::ceil_div(std::min(d.tile().rows, d.rows()) * std::min(d.tile().columns, d.columns()) *
                                           static_cast<Index>(sizeof(T)),
                                       64) *
                       64;
    return slot * std::max<Index>(4, static_cast<Index>(d.tiles_of(rank).size()) * percent / 100);
  }

  template <class T>
  void check(bool is_lu, Index n, const TileShape& tile, const TileGrid& grid, std::uint64_t seed) {
    const TileDistribution d(n, n, tile, grid), alone(n, n, tile);
    const TilePart part = is_lu ? TilePart::whole : TilePart::lower;
    const auto element = is_lu ? dominant_element : symmetric_element;
    TileMatrix<T> whole = make_matrix<T>(alone, part, 0, element);
    is_lu ? lu(whole, {.workers = 1}) : cholesky(whole, {.workers = 1});
    for (const Index percent : {100, 50, 0}) {
      SCOPED_TRACE((is_lu ? "LU of " : "Cholesky of ") + to_string(d) + ", " + std::to_string(percent) + " %");
      MemoryTileStore store;
      StoredMatrix<T> a(d, part, store, rank);
      a.fill([&](Index i, Index j) { return element(i, j, n); });
      const MemoryLimit limit{.bytes = limit_of<T>(d, percent),
                              .eviction = seed % 2 == 0 ? Eviction::furthest : Eviction::lru};
      const RuntimeOptions options{.workers = 2, .schedule_seed = seed};
      const LimitedReport report = is_lu ? lu(comm, a, limit, options) : cholesky(comm, a, limit, options);
      TileMatrix<T> found(d, part, rank);
      a.copy_to(found);
      EXPECT_EQ(different_tile(found, whole), "");
      EXPECT_EQ(report.compulsory_bytes, 2 * a.bytes());
      EXPECT_GE(report.swaps.bytes(), report.compulsory_bytes);
      EXPECT_EQ(report.requests.copies, static_cast<std::uint64_t>(report.swaps.tiles.fetches)) << "each copy once";
      EXPECT_EQ(report.requests.freed, report.requests.copies);
      EXPECT_EQ(report.requests.forwarded, 0U);
      EXPECT_EQ(aloni::test::messages_left(comm), 0);
    }
  }

  template <class T>
  void check_solution(Factors kind, Index n, Index columns, const TileShape& tile, const TileGrid& grid,
                      std::uint64_t seed) {
    const bool is_lu = kind == Factors::lu;
    const TileDistribution d(n, n, tile, squarest_grid(size)), db(n, columns, tile.columns, grid);
    const TilePart part = is_lu ? TilePart::whole : TilePart::lower;
    TileMatrix<T> whole_a =
        make_matrix<T>(TileDistribution(n, n, tile), part, 0, is_lu ? dominant_element : symmetric_element);
    is_lu ? lu(whole_a, {.workers = 1}) : cholesky(whole_a, {.workers = 1});
    const auto right_hand_side = [](Index i, Index j, Index) { return aloni::test::random_element(i + 1000, j); };
    TileMatrix<T> whole_b =
        make_matrix<T>(TileDistribution(n, columns, tile.columns), TilePart::whole, 0, right_hand_side);
    solve(kind, whole_a, whole_b, {.workers = 1});
    for (const Index percent : {100, 0}) {
      SCOPED_TRACE((is_lu ? "LU of " : "Cholesky of ") + to_string(d) + ", right-hand side " + to_string(db) + ", " +
                   std::to_string(percent) + " %");
      MemoryTileStore left, right;
      StoredMatrix<T> a(d, part, left, rank), b(db, TilePart::whole, right, rank);
      for (const aloni::views::Tile& t : d.tiles_of(rank))
        if (a.has(t)) a.write(t, std::span(whole_a.tile(t), static_cast<std::size_t>(d.elements(t))));
      b.fill([&](Index i, Index j) { return right_hand_side(i, j, n); });
      const MemoryLimit limit{.bytes = limit_of<T>(d, percent),
                              .eviction = seed % 2 == 0 ? Eviction::furthest : Eviction::lru};
      const LimitedReport report = solve(comm, kind, a, b, limit, {.workers = 2, .schedule_seed = seed / 2});
      TileMatrix<T> x(db, TilePart::whole, rank), factors(d, part, rank);
      b.copy_to(x);
      a.copy_to(factors);
      EXPECT_EQ(different_tile(x, whole_b), "");
      EXPECT_EQ(different_tile(factors, whole_a), "") << "the factors are only read";
      EXPECT_EQ(report.requests.copies, static_cast<std::uint64_t>(report.swaps.tiles.fetches)) << "each copy once";
      EXPECT_EQ(report.requests.freed, report.requests.copies);
      EXPECT_GE(report.swaps.bytes_out, 2 * b.bytes());
      EXPECT_EQ(aloni::test::messages_left(comm), 0);
    }
  }
};

TEST_F(RankMemoryLimits, GiveTheBitsOfOneRank) {
  check<double>(false, 200, 16, squarest_grid(size), 0);
  check<float>(true, 130, 16, squarest_grid(size), 1);
  check<double>(false, 203, {24, 12}, squarest_grid(size), 2);
  check<double>(false, 5, 8, squarest_grid(size), 0);
  check<double>(false, 0, 8, squarest_grid(size), 0);
}

TEST_F(RankMemoryLimits, ATileMayHaveAllRanksAsReaders) {
  for (const TileGrid& grid : {TileGrid{1, size}, TileGrid{size, 1}}) {
    check<double>(false, 20 * size + 30, 10, grid, 0);
    check<double>(true, 20 * size, 10, grid, 3);
  }
}

/// The right-hand side may have another grid than the factors.
TEST_F(RankMemoryLimits, GiveSolutionsTheBitsOfOneRank) {
  std::uint64_t seed = 0;
  for (const TileGrid& grid : {TileGrid{size, 1}, squarest_grid(size), TileGrid{1, size}})
    for (const Index columns : {1, 40}) {
      if (aloni::test::sanitized && (columns == 1 ? grid.columns : grid.rows) != size) continue;
      check_solution<double>(Factors::cholesky, 200, columns, 16, grid, seed++);
      check_solution<float>(Factors::lu, 130, columns, 16, grid, seed++);
      check_solution<double>(Factors::cholesky, 203, columns, {24, 12}, grid, seed++);
      check_solution<double>(Factors::cholesky, 5, columns, 8, grid, seed++);
    }
}

TEST_F(RankMemoryLimits, BelowTheLeastOnOneRankAreRefusedOnAll) {
  MemoryTileStore store;
  StoredMatrix<double> a(TileDistribution(100, 100, 16, squarest_grid(size)), TilePart::lower, store, rank);
  const int bad = size - 1;
  try {
    cholesky(comm, a, {.bytes = 4 * 2048 - (rank == bad)}, {.workers = 1});
    ADD_FAILURE() << "rank " << rank << " returned";
  } catch (const aloni::InvalidArgument& error) {
    EXPECT_EQ(rank, bad);
    EXPECT_THAT(error.what(), HasSubstr("at least 8192 bytes, the 3 tiles of one task and one of a message"));
  } catch (const aloni::PeerFailed& error) {
    EXPECT_EQ(error.rank(), bad);
  }
}

/// Errors of the store and of a task. The communicator stays usable.
TEST_F(RankMemoryLimits, ErrorsReachAllRanks) {
  const TileDistribution d(150, 150, 10, squarest_grid(size));
  for (const int writes : {3, 40}) {
    const int bad = size - 1;
    // Beyond the writes that fill the matrix.
    FullStore store(static_cast<int>(d.tiles_of(rank).size()) + (rank == bad ? writes : 1'000'000));
    StoredMatrix<double> a(d, TilePart::whole, store, rank);
    a.fill([](Index i, Index j) { return dominant_element(i, j, 150); });
    try {
      lu(comm, a, {.bytes = limit_of<double>(d, 30)}, {.workers = 2});
      EXPECT_GT(writes, static_cast<int>(d.tiles_of(bad).size())) << "rank " << rank << " returned";
    } catch (const aloni::FileError& error) {
      EXPECT_EQ(rank, bad) << error.what();
    } catch (const aloni::PeerFailed& error) {
      EXPECT_EQ(error.rank(), bad);
      EXPECT_THAT(error.what(), HasSubstr("no space left"));
    }
    EXPECT_EQ(aloni::test::messages_left(comm), 0);
  }
  MemoryTileStore store;
  StoredMatrix<double> a(d, TilePart::lower, store, rank);
  a.fill([](Index i, Index j) { return i == j && i == 70 ? -1000.0 : symmetric_element(i, j, 150); });
  EXPECT_THROW(cholesky(comm, a, {.bytes = limit_of<double>(d, 50)}, {.workers = 2}), aloni::FactorisationError);
  check<double>(false, 60, 10, squarest_grid(size), 0);
}

}  // namespace test_rank_memory_limit
