// The size below which messages between nodes are joined, measured on two nodes.
#include <aloni/core/comm/mpi.hpp>
#include <aloni/tools/machine_measurement.hpp>

#include <gtest/gtest.h>

namespace aloni::tools {
namespace test_consolidation_limit {

TEST(ConsolidationLimit, LiesBetweenTwoMeasuredSizes) {
  const auto comm = comm::from_mpi(MPI_COMM_WORLD, {.ranks_per_node = 2});
  const Index below = longest_to_consolidate(comm, 7);
  EXPECT_EQ(comm.all_reduce(below, comm::Reduction::min), comm.all_reduce(below, comm::Reduction::max));
  Index possible = 128;
  while (possible < below) possible *= 4;
  EXPECT_TRUE(below == 0 || below == possible) << below;
  EXPECT_LE(below, Index{512} << 10);
}

}  // namespace test_consolidation_limit
}  // namespace aloni::tools
