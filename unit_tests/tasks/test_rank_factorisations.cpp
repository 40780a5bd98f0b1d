// Factorisations on several ranks: the same bits as on one rank, compulsory copies only, errors on all ranks.
#include "support/transport.hpp"
#include "tasks/mail_traffic.hpp"
#include "tasks/rank_matrices.hpp"

#include <aloni/core/comm/mailbox.hpp>
#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>
#include <aloni/tasks/cholesky.hpp>
#include <aloni/tasks/detail/tile_mail.hpp>
#include <aloni/tasks/lu.hpp>
#include <aloni/tasks/tile_store.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace test_rank_factorisations {

using namespace aloni::tasks;
using aloni::Index;
using aloni::comm::Communicator;
using aloni::comm::Mailbox;
using aloni::comm::Reduction;
using aloni::tasks::detail::TileMail;
using aloni::test::different_tile;
using aloni::test::dominant_element;
using aloni::test::make_matrix;
using aloni::test::make_shared_matrix;
using aloni::test::shares_memory_with_all;
using aloni::test::symmetric_element;
using aloni::views::squarest_grid;
using aloni::views::Tile;
using aloni::views::TileDistribution;
using aloni::views::TileGrid;
using aloni::views::TileShape;
using testing::EndsWith;
using testing::StartsWith;

class RankFactorisations : public testing::Test {
 protected:
  Communicator comm = aloni::test::make_communicator();
  const int rank = comm.rank(), size = comm.size();

  /// Each tile goes once to each rank that reads it, and every copy is freed. No rank sends a tile more than log2 P
  /// times. The bytes between all ranks are those of the copies, of the heads of mails, and nothing else. `bytes_sent`:
  /// by this rank in the run.
  void expect_compulsory(const TaskRule& rule, const TileDistribution& d, std::size_t element_bytes,
                         const RankReport& report, std::uint64_t bytes_sent) const {
    std::set<std::pair<TileId, int>> copies;
    Index own_tasks = 0;
    for (const TileId& tile : rule.tiles()) {
      for (std::int32_t version = 1; version <= rule.writes(tile); ++version) {
        const int reader = d.owner(tile.tile());
        own_tasks += reader == rank;
        std::vector<TileAccess> accesses;
        rule.append_accesses(rule.writer_of({tile, version}), accesses);
        for (const TileAccess& a : accesses)
          if (d.owner(a.tile.tile()) != reader) copies.insert({a.tile, reader});
      }
    }
    EXPECT_EQ(report.run.tasks, own_tasks);
    const TileRequests::Counts& counts = report.tiles;
    const auto own = static_cast<std::uint64_t>(std::ranges::count(copies, rank, &std::pair<TileId, int>::second));
    EXPECT_EQ(counts.copies, own);
    EXPECT_EQ(counts.freed, own);
    EXPECT_EQ(counts.requests, own);
    EXPECT_LE(counts.most_sends, static_cast<std::uint64_t>(std::bit_width(static_cast<unsigned>(size)) - 1));
    EXPECT_EQ(sum(counts.payloads), copies.size());

    std::uint64_t bytes = 0;
    for (const auto& [tile, reader] : copies)
      bytes += static_cast<std::uint64_t>(d.height(tile.row) * d.width(tile.column)) * element_bytes;
    const std::uint64_t rounds = std::bit_width(static_cast<unsigned>(size - 1));  // of the barrier at the end
    bytes += sum((counts.requests + counts.forwarded) * (Mailbox::prefix_bytes + sizeof(TileRequest)) +
                 counts.payloads * (Mailbox::prefix_bytes + sizeof(TileKey)) + counts.handed_on * sizeof(TileClient) +
                 rounds * (Mailbox::prefix_bytes + sizeof(std::uint32_t)) +
                 // A tile that is read in place: its place, and a mail that gives it back.
                 report.tiles_in_place * (sizeof(TileMail::Place) + Mailbox::prefix_bytes + sizeof(TileKey)));
    EXPECT_EQ(sum(bytes_sent), bytes);
    EXPECT_EQ(aloni::test::messages_left(comm), 0);
  }

  /// Of all ranks. Collective.
  std::uint64_t sum(std::uint64_t value) const {
    return static_cast<std::uint64_t>(comm.all_reduce(static_cast<std::int64_t>(value), Reduction::sum));
  }
  std::uint64_t bytes_sent() const { return aloni::test::traffic_with_others(comm).bytes_sent; }

  template <class T>
  void check_cholesky(Index n, const TileShape& tile, std::uint64_t seed, const TileGrid& grid) {
    const TileDistribution d(n, n, tile, grid), alone(n, n, tile);
    SCOPED_TRACE(to_string(d));
    TileMatrix<T> a = make_matrix<T>(d, TilePart::lower, rank, symmetric_element);
    TileMatrix<T> whole = make_matrix<T>(alone, TilePart::lower, 0, symmetric_element);
    const std::uint64_t before = bytes_sent();
    const RankReport report = cholesky(comm, a, {.workers = 2, .schedule_seed = seed});
    const std::uint64_t bytes = bytes_sent() - before;
    cholesky(whole, {.workers = 1});
    EXPECT_EQ(different_tile(a, whole), "");
    expect_compulsory(CholeskyRule(d), d, sizeof(T), report, bytes);
  }

  template <class T>
  void check_lu(Index n, Index tile, std::uint64_t seed, const TileGrid& grid) {
    const TileDistribution d(n, n, tile, grid), alone(n, n, tile);
    SCOPED_TRACE(to_string(d));
    TileMatrix<T> b = make_shared_matrix<T>(comm, d, TilePart::whole, dominant_element);
    TileMatrix<T> whole_b = make_matrix<T>(alone, TilePart::whole, 0, dominant_element);
    const std::uint64_t before = bytes_sent();
    const RankReport report = lu(comm, b, {.workers = 2, .schedule_seed = seed});
    const std::uint64_t bytes = bytes_sent() - before;
    lu(whole_b, {.workers = 1});
    EXPECT_EQ(different_tile(b, whole_b), "");
    expect_compulsory(LuRule(d), d, sizeof(T), report, bytes);
  }

  template <class T>
  void check(Index n, Index tile, std::uint64_t seed, const TileGrid& grid) {
    check_cholesky<T>(n, tile, seed, grid);
    check_lu<T>(n, tile, seed, grid);
  }
};

TEST_F(RankFactorisations, HaveTheBitsOfOneRankForEachOrderOfTasks) {
  constexpr std::pair<Index, Index> sizes[] = {{0, 8}, {1, 1}, {5, 8}, {40, 8}, {65, 16}, {200, 24}};
  for (const auto& [n, tile] : sizes) {
    SCOPED_TRACE(std::to_string(n) + " in tiles of " + std::to_string(tile));
    check<double>(n, tile, 0, squarest_grid(size));
    check<float>(n, tile, 1 + static_cast<std::uint64_t>(n), squarest_grid(size));
  }
}

/// Tiles taller than wide exist for Cholesky only.
TEST_F(RankFactorisations, TallTilesHaveTheBitsOfOneRank) {
  check_cholesky<double>(5, {6, 2}, 0, squarest_grid(size));
  check_cholesky<float>(65, {32, 8}, 4, squarest_grid(size));
  check_cholesky<double>(203, {24, 12}, 5, squarest_grid(size));
}

TEST_F(RankFactorisations, SharesBySpeedHaveTheBitsOfOneRank) {
  std::vector<double> speeds;
  for (int r = 0; r < size; ++r) speeds.push_back(1 + r % 3);
  const TileGrid grid = aloni::views::grid_by_speed(speeds);
  ASSERT_EQ(grid.column_cycle.empty(), size == 1);
  check<double>(203, 12, 6, grid);
  check_cholesky<float>(203, {24, 12}, 7, grid);
}

/// In a row and in a column of ranks, a tile has up to size - 1 readers: the largest broadcast trees.
TEST_F(RankFactorisations, ATileMayHaveAllRanksAsReaders) {
  for (const TileGrid& grid : {TileGrid{1, size}, TileGrid{size, 1}}) check<double>(20 * size, 10, 2, grid);
}

/// Tiles of 180 KB: each travels in fragments.
TEST_F(RankFactorisations, LongTilesArriveComplete) { check<double>(400, 150, 3, squarest_grid(size)); }

TEST_F(RankFactorisations, RanksOfANodeReadTilesInPlace) {
  constexpr Index n = 200, tile = 25;  // 5000 bytes: longer than a mail
  for (const TileGrid& grid : {squarest_grid(size), TileGrid{1, size}}) {
    const TileDistribution d(n, n, tile, grid), alone(n, n, tile);
    TileMatrix<double> whole = make_matrix<double>(alone, TilePart::lower, 0, symmetric_element);
    cholesky(whole, {.workers = 1});
    for (const std::uint64_t seed : {0, 1, 2}) {
      TileMatrix<double> a = make_shared_matrix<double>(comm, d, TilePart::lower, symmetric_element);
      const std::uint64_t before = bytes_sent();
      const RankReport report = cholesky(comm, a, {.workers = 2, .schedule_seed = seed});
      const std::uint64_t bytes = bytes_sent() - before;
      // The memory of the matrix belongs to the caller again, although other ranks may not have returned.
      TileMatrix<double> factor(d, TilePart::lower, rank);
      for (const Tile& t : d.tiles_of(rank))
        if (a.has(t)) std::copy_n(a.tile(t), d.height(t.row) * d.width(t.column), factor.tile(t));
      a.fill([](Index, Index) { return std::numeric_limits<double>::quiet_NaN(); });
      EXPECT_EQ(different_tile(factor, whole), "");
      expect_compulsory(CholeskyRule(d), d, sizeof(double), report, bytes);
      if (!shares_memory_with_all(comm)) continue;
      EXPECT_EQ(report.tiles_in_place, report.tiles.copies);
      EXPECT_EQ(report.bytes_in_place, report.tiles.copies * tile * tile * sizeof(double));
    }
  }
}

/// Of 4 MiB per rank: on huge pages where the system has them.
TEST_F(RankFactorisations, LargeMatricesInSharedMemoryBeginWithZerosAndKeepTheirElements) {
  const TileDistribution d(1024, 512 * size, 512, {1, size});
  TileMatrix<double> a(comm, d);
  for (const Tile& t : d.tiles_of(rank)) EXPECT_EQ(std::count(a.tile(t), a.tile(t) + 512 * 512, 0.0), 512 * 512);
  a.fill([](Index i, Index j) { return 10'000 * i + j; });
  comm.barrier();
  for (const Tile& t : d.tiles_of(rank))
    for (Index j = 0; j < 512; ++j)
      for (Index i = 0; i < 512; ++i)
        ASSERT_EQ(a.tile(t)[j * 512 + i],
                  static_cast<double>(10'000 * (d.first_row(t.row) + i) + d.first_column(t.column) + j));
}

TEST_F(RankFactorisations, PrivateTilesOfTwoRanksAreCopied) {
  if (size != 2) GTEST_SKIP() << "third ranks may read the copy of another rank in place";
  TileMatrix<double> a =
      make_matrix<double>(TileDistribution(200, 200, 25, {1, 2}), TilePart::lower, rank, symmetric_element);
  const RankReport report = cholesky(comm, a, {.workers = 1});
  EXPECT_GT(report.tiles.copies, 0u);
  EXPECT_EQ(report.tiles_in_place, 0u);
}

/// A rank that has failed may change and free its tiles while tasks of other ranks read them.
TEST_F(RankFactorisations, ARunThatFailsLeavesTilesInSharedMemoryToTheirOwner) {
  constexpr Index n = 400, tile = 25;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const Index bad = 60 * repeat + 50;
    TileMatrix<double> a(comm, TileDistribution(n, n, tile, squarest_grid(size)), TilePart::lower);
    a.fill([bad](Index i, Index j) { return i == j && i == bad ? -1000.0 : symmetric_element(i, j, n); });
    EXPECT_THROW(cholesky(comm, a, {.workers = 2}), aloni::FactorisationError);
    a.fill([](Index, Index) { return std::numeric_limits<double>::quiet_NaN(); });
  }
  EXPECT_EQ(aloni::test::messages_left(comm), 0);
}

TEST_F(RankFactorisations, AMatrixThatIsNotPositiveDefiniteIsAnErrorOnAllRanks) {
  constexpr Index n = 100, tile = 10;
  for (const Index bad : {0, 73, 99}) {  // the communicator stays usable
    SCOPED_TRACE("column " + std::to_string(bad));
    TileMatrix<double> a(TileDistribution(n, n, tile, squarest_grid(size)), TilePart::lower, rank);
    a.fill([bad](Index i, Index j) { return i == j && i == bad ? -1000.0 : symmetric_element(i, j, n); });
    const Index t = bad / tile;
    const int owner = a.distribution().owner({t, t});
    try {
      cholesky(comm, a, {.workers = 1});
      ADD_FAILURE() << "rank " << rank << " returned";
    } catch (const aloni::FactorisationError& error) {
      EXPECT_EQ(error.operation(), "aloni::tasks::cholesky");
      EXPECT_EQ(error.argument(), "tile " + to_string(Tile{t, t}) + ", column " + std::to_string(bad));
      EXPECT_THAT(error.value(), StartsWith("pivot -"));
      EXPECT_THAT(error.value(), EndsWith(" on rank " + std::to_string(owner)));
    }
    EXPECT_EQ(aloni::test::messages_left(comm), 0);
  }
  check<double>(n, tile, 0, squarest_grid(size));
}

// All ranks name the argument, and the values of rank 0 and of the other ranks. The communicator stays usable.
TEST_F(RankFactorisations, ARankWithAnotherMatrixIsAnErrorOnAllRanks) {
  if (size == 1) GTEST_SKIP() << "needs two ranks";
  const TileGrid grid{1, size};
  TileGrid by_speed = grid;
  for (int c = size; c-- > 0;) by_speed.column_cycle.push_back(c);
  const auto expect = [&](const char* argument, const auto& call) {
    try {
      call();
      FAIL() << argument;
    } catch (const aloni::InvalidArgument& error) {
      EXPECT_EQ(error.argument(), argument);
      EXPECT_THAT(error.value(), testing::AllOf(testing::HasSubstr("rank 0"), testing::HasSubstr("; ")));
    }
  };
  const auto factorise = [&](const TileDistribution& d) {
    TileMatrix<double> a = make_matrix<double>(d, TilePart::whole, rank, symmetric_element);
    cholesky(comm, a);
  };
  expect("a", [&] { factorise(TileDistribution(rank == 0 ? 48 : 40, rank == 0 ? 48 : 40, 8, grid)); });
  expect("a", [&] { factorise(TileDistribution(48, 48, rank == 0 ? 8 : 12, grid)); });
  expect("a", [&] { factorise(TileDistribution(48, 48, 8, rank == 0 ? grid : by_speed)); });
  const TileDistribution d(48, 48, 8, grid);
  expect("elements of a", [&] {
    if (rank == 0) return factorise(d);
    TileMatrix<float> a = make_matrix<float>(d, TilePart::whole, rank, symmetric_element);
    cholesky(comm, a);
  });
  expect("elements of a", [&] {
    if (rank == 0) return factorise(d);
    MemoryTileStore store;
    StoredMatrix<double> a(d, TilePart::whole, store, rank);
    cholesky(comm, a, {.bytes = Index{1} << 20});
  });
  expect("call", [&] {
    if (rank == 0) return factorise(d);
    TileMatrix<double> a = make_matrix<double>(d, TilePart::whole, rank, dominant_element);
    lu(comm, a);
  });
  factorise(d);
}

TEST_F(RankFactorisations, RefuseMatricesOfOtherRanks) {
  TileMatrix<double> other(TileDistribution(10, 10, 5, {1, size + 1}), TilePart::whole, rank);
  EXPECT_THROW(cholesky(comm, other), aloni::InvalidArgument);
  TileMatrix<double> lower(TileDistribution(10, 10, 5, squarest_grid(size)), TilePart::lower, rank);
  EXPECT_THROW(lu(comm, lower), aloni::InvalidArgument);
  EXPECT_THROW(cholesky(comm, lower, {.owns = [](const TileId&) { return true; }}), aloni::InvalidArgument);
  TileMatrix<double> oblong(TileDistribution(10, 12, 5, squarest_grid(size)), TilePart::whole, rank);
  EXPECT_THROW(lu(comm, oblong), aloni::InvalidArgument);
  EXPECT_THROW(TileMatrix<double>(comm, other.distribution()), aloni::InvalidArgument);
  if (size > 1) {
    TileMatrix<double> wrong_rank(TileDistribution(10, 10, 5, squarest_grid(size)), TilePart::lower, 0);
    if (rank == 0) {
      EXPECT_THROW(cholesky(comm, wrong_rank), aloni::PeerFailed);
    } else {
      EXPECT_THROW(cholesky(comm, wrong_rank), aloni::InvalidArgument);
    }
  }
}

}  // namespace test_rank_factorisations
