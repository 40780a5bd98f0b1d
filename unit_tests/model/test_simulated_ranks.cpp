// Counts of real ranks against those of simulated ones, which walk the same state machines.
#include "support/transport.hpp"

#include <aloni/model/task_simulation.hpp>
#include <aloni/tasks/cholesky.hpp>
#include <aloni/tasks/lu.hpp>

#include <gtest/gtest.h>

#include <string>

namespace test_simulated_ranks {

using namespace aloni::tasks;
using aloni::Index;
using aloni::model::simulate_tasks;
using aloni::model::SimulatedTasks;
using aloni::model::TasksOnRanks;
using aloni::views::squarest_grid;
using aloni::views::TileDistribution;

/// Larger on the diagonal than all others of its row together.
double element(Index i, Index j, Index n) {
  return i == j ? static_cast<double>(2 * n) : 1. / static_cast<double>(i + j + 1);
}

void expect_counts(const SimulatedTasks::Rank& simulated, const RankReport& real) {
  EXPECT_EQ(simulated.tasks, real.run.tasks);
  EXPECT_EQ(simulated.tiles.requests, real.tiles.requests);
  EXPECT_EQ(simulated.tiles.copies, real.tiles.copies);
}

/// Which rank serves which depends on the order of messages; the sums do not.
TEST(SimulatedRanks, RequestAndSendAsManyTilesAsRealOnes) {
  const auto comm = aloni::test::make_communicator();
  for (const auto& [n, tile] : {std::pair<Index, Index>{65, 16}, {100, 10}, {30, 40}}) {
    SCOPED_TRACE(std::to_string(n) + " rows in tiles of " + std::to_string(tile));
    const TileDistribution d(n, n, tile, squarest_grid(comm.size()));
    const TasksOnRanks run{
        .ranks = comm.size(),
        .workers = 2,
        .owner = [&](const TileId& t) { return d.owner(t.tile()); },
        .bytes = [&](const TileId& t) { return 8 * static_cast<double>(d.height(t.row) * d.width(t.column)); }};
    TileMatrix<double> a(d, TilePart::lower, comm.rank()), b(d, TilePart::whole, comm.rank());
    for (TileMatrix<double>* const matrix : {&a, &b}) matrix->fill([&](Index i, Index j) { return element(i, j, n); });
    const RankReport reports[] = {cholesky(comm, a, {.workers = 2}), lu(comm, b, {.workers = 2})};
    const SimulatedTasks simulated[] = {
        simulate_tasks(CholeskyRule(d.tile_rows(), tile), run, aloni::model::generic_machine()),
        simulate_tasks(LuRule(d.tile_rows(), tile), run, aloni::model::generic_machine())};
    for (int i = 0; i < 2; ++i) {
      expect_counts(simulated[i].ranks[static_cast<std::size_t>(comm.rank())], reports[i]);
      const double payloads =
          comm.all_reduce(static_cast<double>(reports[i].tiles.payloads), aloni::comm::Reduction::sum);
      EXPECT_EQ(static_cast<double>(simulated[i].tiles().payloads), payloads);
      if (comm.size() > 2) continue;
      // Two ranks: nobody can hand on clients, so each rank's own figures agree.
      EXPECT_EQ(simulated[i].ranks[static_cast<std::size_t>(comm.rank())].tiles.payloads, reports[i].tiles.payloads);
      EXPECT_EQ(simulated[i].tiles().forwarded, 0u);
    }
  }
}

}  // namespace test_simulated_ranks
