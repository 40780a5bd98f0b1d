// Probes of the machine: links, memory, the speed of a core.
#include "support/transport.hpp"

#include <aloni/core/comm/link_probe.hpp>
#include <aloni/core/core_speed.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/memory_probes.hpp>

#include <gtest/gtest.h>

namespace aloni {
namespace test_probes {

TEST(LinkProbe, BothRanksGetTheSameCosts) {
  const auto comm = aloni::test::make_communicator();
  if (comm.size() != 2) {
    EXPECT_THROW(comm::probe_link(comm), InvalidArgument);
    return;
  }
  const comm::LinkProbe link = comm::probe_link(comm, {.large_bytes = 1 << 16, .messages = 4, .repetitions = 10});
  EXPECT_GT(link.latency, 0);
  for (const double value : {link.latency, link.seconds_per_byte, link.seconds_per_message}) {
    EXPECT_GE(value, 0);
    EXPECT_LT(value, 1);
    EXPECT_EQ(comm.all_reduce(value, comm::Reduction::min), comm.all_reduce(value, comm::Reduction::max));
  }
  EXPECT_THROW(comm::probe_link(comm, {.messages = 0}), InvalidArgument);
}

TEST(MemoryProbes, CopiesHaveARate) {
  const double rate = copy_bandwidth(1 << 16, 2, 1e-3);
  EXPECT_GT(rate, 1e7);
  EXPECT_LT(rate, 1e14);
  EXPECT_GE(cache_bytes(3) + 1, cache_bytes(4) + 1);
}

// The fastest loop so far is at full speed by definition; a limit below it is never met.
TEST(CoreSpeed, ComparesWithTheFastestLoop) {
  CoreSpeed speed;
  EXPECT_TRUE(speed.is_full());
  for (int i = 0; i < 100; ++i) speed.is_full();
  EXPECT_FALSE(speed.is_full(0.01));
  EXPECT_GT(seconds_of_arithmetic(), 0);
  EXPECT_GE(preemptions(), 0);
}

}  // namespace test_probes
}  // namespace aloni
