// Factorisations in random orders: random sizes, tiles, grids, workers, orders of tasks, and messages that are late and
// overtake each other. The factor has the bits of one rank. In some runs the matrix cannot be factorised: all ranks
// throw the same error, and the next run uses the same communicator.
// ALONI_FACTORISATIONS sets the number of runs; the default is 200. ALONI_SEED sets that of the first run.
#include "support/experiment.hpp"
#include "support/sanitizer.hpp"
#include "support/transport.hpp"
#include "tasks/mail_traffic.hpp"
#include "tasks/rank_matrices.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>
#include <aloni/tasks/cholesky.hpp>
#include <aloni/tasks/lu.hpp>

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <random>
#include <string>

namespace test_random_orders {

using namespace aloni::tasks;
using aloni::Index;
using aloni::comm::Communicator;
using aloni::views::Tile;
using aloni::views::TileDistribution;
using aloni::views::TileGrid;

/// Equal on all ranks.
class RandomRun {
 public:
  RandomRun(std::uint64_t seed, int ranks) : random_(seed) {
    const int tiles = 1 + at_most(9);
    tile_ = 1 + at_most(at_most(3) == 0 ? 40 : 12);
    n_ = (tiles - 1) * tile_ + 1 + at_most(static_cast<int>(tile_) - 1);
    int rows = 1 + at_most(ranks - 1);
    while (ranks % rows != 0) --rows;
    grid_ = {rows, ranks / rows};
    options_ = {.workers = 1 + at_most(2), .schedule_seed = at_most(4) == 0 ? 0 : random_()};
    if (at_most(4) == 0) bad_ = at_most(static_cast<int>(n_) - 1);
    kind_ = at_most(2);
  }

  /// Empty, or what is wrong on this rank. Collective.
  std::string run(const Communicator& comm) const {
    if (kind_ == 0) return run<float>(comm, TilePart::lower);
    return run<double>(comm, kind_ == 1 ? TilePart::lower : TilePart::whole);
  }

  std::string text() const {
    return std::string(kind_ == 2   ? "LU"
                       : kind_ == 1 ? "Cholesky"
                                    : "Cholesky in float") +
           " of " + std::to_string(n_) + " rows, tiles of " + std::to_string(tile_) + ", " +
           std::to_string(grid_.rows) + " x " + std::to_string(grid_.columns) + " ranks, " +
           std::to_string(options_.workers) + " workers" + (bad_ ? ", pivot " + std::to_string(*bad_) + " is bad" : "");
  }

 private:
  int at_most(int n) { return std::uniform_int_distribution<int>(0, n)(random_); }

  template <class T>
  std::string run(const Communicator& comm, TilePart part) const {
    const bool is_lu = part == TilePart::whole;
    const auto element = [&](Index i, Index j, Index n) {
      // The pivot stays NaN, or negative, whatever is subtracted from it.
      if (bad_ && i == *bad_ && i == j) return is_lu ? std::numeric_limits<double>::quiet_NaN() : -100.0 * n;
      return is_lu ? aloni::test::dominant_element(i, j, n) : aloni::test::symmetric_element(i, j, n);
    };
    const TileDistribution d(n_, n_, tile_, grid_);
    TileMatrix<T> a(d, part, comm.rank());
    a.fill([&](Index i, Index j) { return element(i, j, n_); });
    std::string error, expected;
    try {
      is_lu ? (void)lu(comm, a, options_) : (void)cholesky(comm, a, options_);
    } catch (const aloni::FactorisationError& e) {
      error = e.argument() + e.value().substr(e.value().find(" on rank "));
    }
    if (bad_) {
      const Tile t{*bad_ / tile_, *bad_ / tile_};
      expected =
          "tile " + to_string(t) + ", column " + std::to_string(*bad_) + " on rank " + std::to_string(d.owner(t));
    }
    if (error != expected) return "the error is \"" + error + "\" instead of \"" + expected + "\"";
    if (bad_) return {};
    TileMatrix<T> whole(TileDistribution(n_, n_, tile_), part);
    whole.fill([&](Index i, Index j) { return element(i, j, n_); });
    is_lu ? (void)lu(whole, {.workers = 1}) : (void)cholesky(whole, {.workers = 1});
    const std::string different = aloni::test::different_tile(a, whole);
    return different.empty() ? different : "other bits in " + different;
  }

  std::mt19937_64 random_;
  Index n_ = 0, tile_ = 1;
  TileGrid grid_;
  RuntimeOptions options_;
  std::optional<Index> bad_;
  int kind_ = 0;
};

/// Random faults that change no result, over shared memory, MPI, or nodes of two ranks.
Communicator make_late_communicator(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto at_most = [&](int n) { return std::uniform_int_distribution<int>(0, n)(random); };
  aloni::comm::TransportOptions options = aloni::test::transport_options();
  const int kind = options.progress_thread ? 1 : at_most(2);  // with such a thread, MPI would need MPI_THREAD_MULTIPLE
  options.shared_memory = kind > 0;
  if (kind == 2) options.ranks_per_node = 2;
  options.faults = {
      .seed = random(), .delay = 0.2 * at_most(4), .longest_delay = 1 << at_most(9), .no_room = 0.1 * at_most(3)};
  Communicator comm = aloni::comm::from_mpi(MPI_COMM_WORLD, options);
  if (at_most(3) == 0) comm.set_max_message_bytes(500);  // a tile travels in many fragments
  return comm;
}

TEST(RandomOrders, GiveTheBitsOfOneRankOrTheSameErrorOnAllRanks) {
  constexpr int runs_of_a_family = 10;
  const char* const wanted = std::getenv("ALONI_FACTORISATIONS");
  const int runs = wanted ? std::atoi(wanted) : aloni::test::share_of(200);
  const char* const first = std::getenv("ALONI_SEED");
  const std::uint64_t first_seed = first ? std::strtoull(first, nullptr, 10) : 1;
  std::optional<Communicator> comm;
  std::optional<aloni::test::Experiment> experiment;
  for (int i = 0; i < runs; ++i) {
    const std::uint64_t seed = first_seed + static_cast<std::uint64_t>(i);
    if (i % runs_of_a_family == 0) {
      comm.reset();
      comm = make_late_communicator(seed);
    }
    if (!experiment) experiment.emplace("random_orders", "np" + std::to_string(comm->size()), comm->rank() == 0);
    const RandomRun run(seed, comm->size());
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + run.text());
    const std::string wrong = run.run(*comm);
    EXPECT_EQ(wrong, "");
    EXPECT_EQ(aloni::test::messages_left(*comm), 0);
    const bool failed = comm->all_reduce(HasFailure() ? 1 : 0, aloni::comm::Reduction::max) != 0;
    experiment->count(!failed);
    ASSERT_FALSE(failed) << "on this rank or another";
  }
}

}  // namespace test_random_orders
