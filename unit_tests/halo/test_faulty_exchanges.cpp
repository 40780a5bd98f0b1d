// Random exchanges (random_exchange.hpp) while messages are late, lost, truncated or corrupted, or a rank stops
// sending. On each rank all ghosts are right, or an exception names the error; no number is ever wrong, and no wait is
// endless. A seed determines the exchange and the rate of faults; which messages they hit also depends on time.
// ALONI_EXCHANGES sets the number of cases of each kind; the default is 10. Kinds whose errors come at the time limit
// have a quarter of it.
#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/config.hpp>
#include <aloni/core/error.hpp>

#include "support/experiment.hpp"
#include "support/fault_cases.hpp"
#include "support/sanitizer.hpp"

#include <gtest/gtest.h>
#include <halo/random_exchange.hpp>

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>

namespace aloni::halo {
namespace test_faulty_exchanges {

using namespace testing_support;
using namespace std::chrono_literals;

// With this many exchanges, most messages belong to exchanges and not to their set-up.
constexpr int exchanges = 30;

comm::TransportOptions transport_options(Random& pick) {
  switch (pick(0, 3)) {
    case 0:
      return {.progress_thread = pick.one_in(2)};
    case 1:
      return {.ranks_per_node = 2};
    case 2:
      if (config::has_ucx) return {.shared_memory = false, .messages = comm::MessageTransport::ucx};
      break;
    default:
      break;
  }
  return {.shared_memory = false};
}

/// Faults of one kind. They are rare: sometimes they hit the set-up of an exchange, sometimes an exchange, sometimes
/// nothing.
comm::Faults rare_faults(comm::Faults faults, unsigned seed, Random& pick) {
  faults.seed = seed;
  for (double* const probability : {&faults.truncate, &faults.corrupt, &faults.lose})
    *probability *= pick.one_in(2) ? 0.1 : 0.01;
  if (faults.dies_after != comm::Faults::never) faults.dies_after = static_cast<std::uint64_t>(pick(1, 150));
  if (pick.one_in(2)) faults.delay = 0.2;
  return faults;
}

class FaultyExchanges : public testing::TestWithParam<test::FaultCase> {
 protected:
  /// Runs exchanges in a family of communicators of its own, which ends with this function, also after errors.
  /// Collective.
  void exchange(unsigned seed) {
    Random pick(seed);  // equal on all ranks
    comm::TransportOptions options = transport_options(pick);
    options.faults = rare_faults(GetParam().faults, seed, pick);
    options.checksums = options.faults.corrupt > 0 || pick.one_in(2);
    if (!GetParam().harmless) options.stuck_after = 300ms;
    // A failed family keeps its UCX worker. Each worker has a segment of System V, of which a system has 4096.
    if (!GetParam().harmless && seed >= most_ucx_failures && options.messages == comm::MessageTransport::ucx)
      options.messages = comm::MessageTransport::mpi;
    try {
      comm::Communicator comm = comm::from_mpi(MPI_COMM_WORLD, options);
      if (pick.one_in(3)) comm.set_max_message_bytes(100);
      RandomExchange random(comm, queue_, pick);
      for (int variant = 0; variant < exchanges; ++variant) {
        random.run(variant);
        ++right_;
      }
      comm.barrier();
    } catch (const Error& error) {
      const bool expected = !GetParam().harmless && (dynamic_cast<const PeerFailed*>(&error) != nullptr ||
                                                     dynamic_cast<const CommunicationError*>(&error) != nullptr);
      EXPECT_TRUE(expected) << error.what();
      EXPECT_NE(std::string(error.what()).find("rank"), std::string::npos) << error.what();
      ++errors_;
    }
  }

  static constexpr unsigned most_ucx_failures = 40;
  Queue<Exec> queue_;
  int right_ = 0, errors_ = 0;
};

// Faults are rare: if these seeds gave no exception, or no right exchange, further seeds follow.
TEST_P(FaultyExchanges, EndWithRightGhostsOrAnException) {
  const char* const wanted = std::getenv("ALONI_EXCHANGES");
  const int cases = wanted ? std::atoi(wanted) / (GetParam().waits ? 4 : 1) : test::share_of(10);
  constexpr int enough = 100;
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  test::Experiment experiment("faulty_exchanges", GetParam().name + std::to_string(size), rank == 0);
  std::array<int, 2> counts{};
  const auto has_seen_all = [&] { return counts[0] > 0 && (GetParam().harmless || counts[1] > 0); };
  for (int seed = 0; seed < cases || (seed < enough && !has_seen_all()); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int failed_before = test::failed_expectations();
    exchange(static_cast<unsigned>(seed));
    int good = test::failed_expectations() == failed_before;
    MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    experiment.count(good != 0);
    counts = {right_, errors_};
    MPI_Allreduce(MPI_IN_PLACE, counts.data(), 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  }
  EXPECT_GT(counts[0], 0) << "no exchange has ended";
  EXPECT_EQ(counts[1] > 0, !GetParam().harmless) << counts[1] << " exceptions";
}

INSTANTIATE_TEST_SUITE_P(Kinds, FaultyExchanges, testing::ValuesIn(test::fault_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace test_faulty_exchanges
}  // namespace aloni::halo
