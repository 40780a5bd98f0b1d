// Traces of several ranks: one clock, one file.
#include "support/transport.hpp"

#include <aloni/core/comm/trace.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace aloni::comm {
namespace test_rank_traces {

TEST(RankTraces, FindsNoOffsetBetweenRanksOfOneMachine) {
  const auto comm = aloni::test::make_communicator();
  EXPECT_EQ(clock_offset(comm), 0);
}

TEST(RankTraces, GathersTheEventsOfAllRanksOnRankZero) {
  const auto comm = aloni::test::make_communicator();
  const std::int64_t start = 1'000'000 + 1000 * comm.rank();
  Trace mine{.process = comm.rank(), .name = "rank " + std::to_string(comm.rank()), .rows = {"compute"}};
  // Texts of different lengths; no slice on the last rank of several.
  for (int i = 0; i < 100 * comm.rank() + 1; ++i)
    if (comm.rank() == 0 || comm.rank() < comm.size() - 1) mine.slices.push_back({0, "work", start, start + 500});
  const std::string file = gather_trace(comm, mine);
  if (comm.rank() > 0) {
    EXPECT_EQ(file, "");
    return;
  }
  std::string expected;
  for (int r = 0; r < comm.size(); ++r) {
    const std::string name = "\"rank " + std::to_string(r) + '"';
    EXPECT_NE(file.find(name), std::string::npos) << name;
    const std::string slice = "\"tid\":" + std::to_string(1000 * (r + 1)) + ",\"ts\":" + std::to_string(r) + ".000";
    std::size_t count = 0;
    for (std::size_t at = file.find(slice); at != std::string::npos; at = file.find(slice, at + 1)) ++count;
    EXPECT_EQ(count, r == 0 ? 1 : r < comm.size() - 1 ? 100 * r + 1 : 0) << slice;
  }
}

}  // namespace test_rank_traces
}  // namespace aloni::comm
