// Solutions on several ranks: the same bits as on one rank, for all grids of the right-hand side; wrong arguments.
#include "support/sanitizer.hpp"
#include "support/transport.hpp"
#include "tasks/mail_traffic.hpp"
#include "tasks/rank_matrices.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>
#include <aloni/tasks/cholesky.hpp>
#include <aloni/tasks/lu.hpp>
#include <aloni/tasks/solve.hpp>

#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

namespace test_rank_solve {

using namespace aloni::tasks;
using aloni::Index;
using aloni::comm::Communicator;
using aloni::comm::Reduction;
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

double right_hand_side(Index i, Index j, Index) { return aloni::test::random_element(i + 1000, j); }

class RankSolve : public testing::Test {
 protected:
  Communicator comm = aloni::test::make_communicator();
  const int rank = comm.rank(), size = comm.size();

  /// With matrices in shared memory, or private ones, by the seed.
  template <class T>
  void check(Factors kind, Index n, Index columns, const TileShape& tile, const TileGrid& grid, std::uint64_t seed) {
    const TileDistribution d(n, n, tile, squarest_grid(size)), db(n, columns, tile.columns, grid);
    SCOPED_TRACE((kind == Factors::lu ? "LU, " : "Cholesky, ") + to_string(d) + ", right-hand side " + to_string(db));
    const TilePart part = kind == Factors::lu ? TilePart::whole : TilePart::lower, all = TilePart::whole;
    const auto element = kind == Factors::lu ? dominant_element : symmetric_element;
    const bool is_shared = seed % 3 != 0;
    TileMatrix<T> a =
        is_shared ? make_shared_matrix<T>(comm, d, part, element) : make_matrix<T>(d, part, rank, element);
    TileMatrix<T> b = is_shared ? make_shared_matrix<T>(comm, db, all, right_hand_side)
                                : make_matrix<T>(db, all, rank, right_hand_side);
    TileMatrix<T> whole_a = make_matrix<T>(TileDistribution(n, n, tile), part, 0, element);
    TileMatrix<T> whole_b = make_matrix<T>(TileDistribution(n, columns, tile.columns), all, 0, right_hand_side);
    const RuntimeOptions options{.workers = 2, .schedule_seed = seed / 2, .record_times = true};
    if (kind == Factors::lu) {
      lu(comm, a, options);
      lu(whole_a, {.workers = 1});
    } else {
      cholesky(comm, a, options);
      cholesky(whole_a, {.workers = 1});
    }
    const RankReport report = solve(comm, kind, a, b, options);
    solve(kind, whole_a, whole_b, {.workers = 1});
    EXPECT_EQ(different_tile(b, whole_b), "");
    EXPECT_EQ(report.run.tasks, static_cast<Index>(report.run.times.size()));
    EXPECT_TRUE(std::ranges::is_sorted(report.run.times, [](const TaskTime& s, const TaskTime& t) {
      return std::pair(s.worker, s.start) < std::pair(t.worker, t.start);
    }));
    EXPECT_EQ(report.tiles.copies, report.tiles.requests);
    EXPECT_EQ(report.tiles.freed, report.tiles.copies);
    EXPECT_EQ(sum(report.tiles.payloads), sum(report.tiles.copies));
    EXPECT_EQ(aloni::test::messages_left(comm), 0);
  }

  /// Of all ranks. Collective.
  std::uint64_t sum(std::uint64_t value) const {
    return static_cast<std::uint64_t>(comm.all_reduce(static_cast<std::int64_t>(value), Reduction::sum));
  }
};

/// The right-hand side may have another grid than the matrix.
TEST_F(RankSolve, HasTheBitsOfOneRank) {
  constexpr std::pair<Index, TileShape> sizes[] = {{0, 8}, {1, 1}, {5, 8}, {65, 16}, {200, 24}, {210, {75, 25}}};
  std::uint64_t seed = 0;
  int number = 0;
  for (const auto& [n, tile] : sizes)
    for (const Index columns : {Index{1}, tile.columns + 3}) {
      for (int rows = 1; rows <= size; ++rows) {
        if (size % rows != 0 || !aloni::test::is_in_share(number++)) continue;
        const TileGrid grid{rows, size / rows};
        check<double>(Factors::cholesky, n, columns, tile, grid, seed++);
        check<float>(Factors::lu, n, columns, tile.columns, grid, seed++);
        if (rows > 1) continue;
        check<float>(Factors::cholesky, n, columns, tile, grid, seed++);
        check<double>(Factors::lu, n, columns, tile.columns, grid, seed++);
      }
    }
}

/// More tiles of the factors than a rank asks for at one time. All go to the rank that owns the right-hand side.
TEST_F(RankSolve, OneRankMayOwnTheRightHandSide) {
  constexpr Index n = 400, tile = 10;
  const TileDistribution d(n, n, tile, squarest_grid(size)), db(n, 1, tile, {1, size});
  TileMatrix<double> a = make_matrix<double>(d, TilePart::lower, rank, symmetric_element);
  TileMatrix<double> b = make_matrix<double>(db, TilePart::whole, rank, right_hand_side);
  cholesky(comm, a, {.workers = 1});
  const RankReport report = solve(comm, Factors::cholesky, a, b, {.workers = 1});
  Index own = 0;
  for (const Tile& t : d.tiles_of(rank)) own += d.is_lower(t);
  const Index tiles = d.tile_rows(), lower = tiles * (tiles + 1) / 2;
  EXPECT_EQ(static_cast<Index>(report.tiles.copies), rank == 0 ? 2 * (lower - own) : 0);
  EXPECT_EQ(report.run.tasks, 2 * own + (rank == 0 ? tiles * (tiles + 1) : 0));
}

TEST_F(RankSolve, ReadsTilesInPlace) {
  constexpr Index n = 400, tile = 50;
  const TileDistribution d(n, n, tile, squarest_grid(size)), db(n, tile, tile, {size, 1});
  TileMatrix<double> a = make_shared_matrix<double>(comm, d, TilePart::lower, symmetric_element);
  TileMatrix<double> b = make_shared_matrix<double>(comm, db, TilePart::whole, right_hand_side);
  cholesky(comm, a, {.workers = 1});
  const RankReport report = solve(comm, Factors::cholesky, a, b, {.workers = 1});
  EXPECT_EQ(report.tiles.copies > 0, size > 1);
  if (shares_memory_with_all(comm)) {
    EXPECT_EQ(report.tiles_in_place, report.tiles.copies);
  }
}

TEST_F(RankSolve, RefusesMatricesThatDoNotFit) {
  const TileGrid grid = squarest_grid(size);
  TileMatrix<double> a(comm, TileDistribution(10, 10, 5, grid), TilePart::lower);
  const auto refused = [&](const TileDistribution& db, Factors kind = Factors::cholesky) {
    TileMatrix<double> b(db, TilePart::whole, std::min(rank, db.ranks() - 1));
    EXPECT_THROW(solve(comm, kind, a, b), aloni::InvalidArgument) << to_string(db);
  };
  refused(TileDistribution(11, 1, 5, grid));
  refused(TileDistribution(10, 1, 4, grid));
  refused(TileDistribution(10, 1, 5, {size + 1, 1}));
  refused(TileDistribution(10, 1, 5, grid), Factors::lu);
  TileMatrix<double> b(comm, TileDistribution(10, 1, 5, grid));
  EXPECT_THROW(solve(comm, Factors::cholesky, a, b, {.owns = [](const TileId&) { return true; }}),
               aloni::InvalidArgument);
  if (size == 1) return;
  EXPECT_THROW(solve(Factors::cholesky, a, b), aloni::Unsupported) << "without the communicator";
  TileMatrix<double> wrong_rank(TileDistribution(10, 1, 5, grid), TilePart::whole, 0);
  if (rank == 0) {
    EXPECT_THROW(solve(comm, Factors::cholesky, a, wrong_rank), aloni::PeerFailed);
  } else {
    EXPECT_THROW(solve(comm, Factors::cholesky, a, wrong_rank), aloni::InvalidArgument);
  }
}

}  // namespace test_rank_solve
