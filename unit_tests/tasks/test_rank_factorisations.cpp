// Factorisations on several ranks: the same bits as on one rank, compulsory copies only, errors on all ranks.
#include "support/transport.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/host_random.hpp>
#include <aloni/tasks/cholesky.hpp>
#include <aloni/tasks/lu.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

namespace test_rank_factorisations {

using namespace aloni::tasks;
using aloni::Index;
using aloni::comm::Communicator;
using aloni::views::squarest_grid;
using aloni::views::Tile;
using aloni::views::TileDistribution;
using aloni::views::TileShape;
using testing::HasSubstr;

double random_value(Index i, Index j) {
  const auto number = static_cast<std::uint64_t>(i) << 32 | static_cast<std::uint64_t>(j);
  return 2 * aloni::random::host_uniform(7, 0, number) - 1;
}

/// Symmetric and positive definite.
double symmetric(Index i, Index j, Index n) {
  return random_value(std::max(i, j), std::min(i, j)) + (i == j ? static_cast<double>(n) : 0);
}

double dominant(Index i, Index j, Index n) {
  return random_value(i, j) + (i == j ? (i % 2 ? -1.0 : 1.0) * static_cast<double>(n) : 0);
}

class RankFactorisations : public testing::Test {
 protected:
  Communicator comm = aloni::test::make_communicator();
  const int rank = comm.rank(), size = comm.size();

  template <class T, class F>
  TileMatrix<T> matrix(const TileDistribution& d, TilePart part, int rank_of_matrix, const F& element) const {
    TileMatrix<T> a(d, part, rank_of_matrix);
    a.fill([&](Index i, Index j) { return element(i, j, d.rows()); });
    return a;
  }

  /// Each tile of `a` has the bits of `whole`, the factor that one rank computes.
  template <class T>
  void expect_equal(const TileMatrix<T>& a, const TileMatrix<T>& whole) const {
    const TileDistribution& d = a.distribution();
    for (const Tile& t : d.tiles_of(rank)) {
      if (!a.has(t)) continue;
      const auto bytes = static_cast<std::size_t>(d.height(t.row) * d.width(t.column)) * sizeof(T);
      ASSERT_EQ(std::memcmp(a.tile(t), whole.tile(t), bytes), 0) << "tile " << to_string(t) << " of " << to_string(d);
    }
  }

  /// Payloads of all ranks: each tile once for each rank that reads it. No owner sends a tile more than log2 P times.
  void expect_compulsory(const TaskRule& rule, const TileDistribution& d, const RankReport& report) const {
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
    const auto own = std::ranges::count(copies, rank, &std::pair<TileId, int>::second);
    EXPECT_EQ(report.tiles.copies, static_cast<std::uint64_t>(own));
    EXPECT_EQ(report.tiles.requests, static_cast<std::uint64_t>(own));
    const double sent = comm.all_reduce(static_cast<double>(report.tiles.payloads), aloni::comm::Reduction::sum);
    EXPECT_EQ(sent, static_cast<double>(copies.size()));
  }

  /// Tiles taller than wide exist for Cholesky only.
  template <class T>
  void check_tall(Index n, const TileShape& tile) {
    const TileDistribution d(n, n, tile, squarest_grid(size));
    TileMatrix<T> a = matrix<T>(d, TilePart::lower, rank, symmetric);
    TileMatrix<T> whole = matrix<T>(TileDistribution(n, n, tile), TilePart::lower, 0, symmetric);
    const RankReport report = cholesky(comm, a, {.workers = 2});
    cholesky(whole, {.workers = 1});
    expect_equal(a, whole);
    expect_compulsory(CholeskyRule(d), d, report);
  }

  template <class T>
  void check(Index n, Index tile, std::uint64_t seed) {
    const TileDistribution d(n, n, tile, squarest_grid(size)), alone(n, n, tile);
    const RuntimeOptions options{.workers = 2, .schedule_seed = seed};
    TileMatrix<T> a = matrix<T>(d, TilePart::lower, rank, symmetric);
    TileMatrix<T> whole = matrix<T>(alone, TilePart::lower, 0, symmetric);
    const RankReport report = cholesky(comm, a, options);
    cholesky(whole, {.workers = 1});
    expect_equal(a, whole);
    expect_compulsory(CholeskyRule(d), d, report);

    TileMatrix<T> b = matrix<T>(d, TilePart::whole, rank, dominant);
    TileMatrix<T> whole_b = matrix<T>(alone, TilePart::whole, 0, dominant);
    const RankReport lu_report = lu(comm, b, options);
    lu(whole_b, {.workers = 1});
    expect_equal(b, whole_b);
    expect_compulsory(LuRule(d), d, lu_report);
  }
};

TEST_F(RankFactorisations, HaveTheBitsOfOneRankForEachOrderOfTasks) {
  constexpr std::pair<Index, Index> sizes[] = {{0, 8}, {1, 1}, {5, 8}, {40, 8}, {65, 16}, {200, 24}};
  for (const auto& [n, tile] : sizes) {
    SCOPED_TRACE(std::to_string(n) + " in tiles of " + std::to_string(tile));
    check<double>(n, tile, 0);
    check<float>(n, tile, 1 + static_cast<std::uint64_t>(n));
  }
}

TEST_F(RankFactorisations, TallTilesHaveTheBitsOfOneRank) {
  check_tall<double>(5, {6, 2});
  check_tall<float>(65, {32, 8});
  check_tall<double>(203, {24, 12});
}

/// Tiles of 180 KB: each travels in fragments.
TEST_F(RankFactorisations, LongTilesArriveComplete) { check<double>(400, 150, 3); }

TEST_F(RankFactorisations, AMatrixThatIsNotPositiveDefiniteIsAnErrorOnAllRanks) {
  constexpr Index n = 100, tile = 10, bad = 73;
  TileMatrix<double> a(TileDistribution(n, n, tile, squarest_grid(size)), TilePart::lower, rank);
  a.fill([](Index i, Index j) { return i == j && i == bad ? -1000.0 : symmetric(i, j, n); });
  const int owner = a.distribution().owner({7, 7});
  std::string text;
  try {
    cholesky(comm, a, {.workers = 1});
    ADD_FAILURE() << "rank " << rank << " returned";
  } catch (const aloni::FactorisationError& error) {
    EXPECT_EQ(rank, owner);
    text = error.what();
  } catch (const aloni::PeerFailed& error) {
    EXPECT_NE(rank, owner);
    EXPECT_EQ(error.rank(), owner);
    text = error.what();
  }
  EXPECT_THAT(text, HasSubstr("(7, 7)"));
  EXPECT_THAT(text, HasSubstr("73"));
}

TEST_F(RankFactorisations, RefuseMatricesOfOtherRanks) {
  TileMatrix<double> other(TileDistribution(10, 10, 5, {1, size + 1}), TilePart::whole, rank);
  EXPECT_THROW(cholesky(comm, other), aloni::InvalidArgument);
  TileMatrix<double> lower(TileDistribution(10, 10, 5, squarest_grid(size)), TilePart::lower, rank);
  EXPECT_THROW(lu(comm, lower), aloni::InvalidArgument);
  EXPECT_THROW(cholesky(comm, lower, {.owns = [](const TileId&) { return true; }}), aloni::InvalidArgument);
  TileMatrix<double> oblong(TileDistribution(10, 12, 5, squarest_grid(size)), TilePart::whole, rank);
  EXPECT_THROW(lu(comm, oblong), aloni::InvalidArgument);
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
