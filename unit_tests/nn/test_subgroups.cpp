#include "support/transport.hpp"

#include <aloni/nn/run/subgroups.hpp>

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace aloni::nn {
namespace test_subgroups {

TEST(Subgroups, MakeOneCommunicatorForEachListOfMembers) {
  const auto comm = aloni::test::make_communicator();
  Subgroups groups(comm);
  std::vector<int> all(static_cast<std::size_t>(comm.size())), mine;
  std::iota(all.begin(), all.end(), 0);
  for (int r = comm.rank() % 2; r < comm.size(); r += 2) mine.push_back(r);
  EXPECT_EQ(groups.of(all).size(), comm.size());
  const comm::Communicator& group = groups.of(mine);
  EXPECT_EQ(group.size(), static_cast<int>(mine.size()));
  EXPECT_EQ(group.rank(), comm.rank() / 2);
  EXPECT_EQ(&groups.of(mine), &group);
  EXPECT_EQ(groups.of(mine).all_reduce(comm.rank(), comm::Reduction::sum),
            std::accumulate(mine.begin(), mine.end(), 0));
}

TEST(Subgroups, TakeCommunicatorsThatExist) {
  const auto comm = aloni::test::make_communicator();
  if (comm.size() < 4) return;
  const auto half = comm.split(comm.rank() % 2, comm.rank());
  Subgroups groups(comm);
  const std::vector<int> mine{comm.rank() % 2, comm.rank() % 2 + 2};
  const auto before = comm.all_reduce(1, comm::Reduction::sum);
  groups.use(mine, half);
  EXPECT_EQ(groups.of(mine).size(), 2);  // of one rank alone: nothing is collective here
  EXPECT_EQ(before, comm.size());
}

}  // namespace test_subgroups
}  // namespace aloni::nn
