// Random exchanges against a serial reference (random_exchange.hpp), as whole messages and in fragments.
// ALONI_EXCHANGES sets the number of cases; the default is 150, or 60 over a named transport.
#include <aloni/halo/exchange.hpp>

#include "support/sanitizer.hpp"
#include "support/transport.hpp"

#include <gtest/gtest.h>
#include <halo/random_exchange.hpp>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace aloni::halo {
namespace test_random_exchanges {

using namespace testing_support;

TEST(RandomExchanges, FillEveryGhostWithTheRightValue) {
  const comm::TransportOptions transports = test::transport_options();
  comm::Communicator comm = comm::from_mpi(MPI_COMM_WORLD, transports);
  const std::size_t whole = comm.max_message_bytes();
  const Queue<Exec> queue;
  const char* const wanted = std::getenv("ALONI_EXCHANGES");
  const int cases = wanted ? std::atoi(wanted) : test::share_of(std::getenv("ALONI_TEST_TRANSPORT") ? 60 : 150);
  for (int seed = 0; seed < cases; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed) + " on " + std::to_string(comm.size()) + " ranks");
    Random pick(static_cast<unsigned>(seed));  // equal on all ranks
    comm.set_max_message_bytes(seed % 4 == 0 ? 100 : whole);
    RandomExchange random(comm, queue, pick);
    for (int variant = 0; variant < 2; ++variant) random.run(variant);
    std::size_t sent = 0, received = 0;
    for (const PeerTransfer& p : random.exchange().peers()) (p.receives ? received : sent) += p.bytes;
    EXPECT_EQ(comm.all_reduce(static_cast<std::int64_t>(sent), comm::Reduction::sum),
              comm.all_reduce(static_cast<std::int64_t>(received), comm::Reduction::sum));
    const bool failed = comm.all_reduce(HasFailure() ? 1 : 0, comm::Reduction::max) != 0;
    ASSERT_FALSE(failed) << random.exchange().explain();
  }
}

}  // namespace test_random_exchanges
}  // namespace aloni::halo
