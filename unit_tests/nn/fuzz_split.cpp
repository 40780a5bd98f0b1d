// Compares random networks, each layer with a random split, with the same networks unsplit, bit by bit, until time is
// up:
//   ALONI_FUZZ_SECONDS=600 ALONI_FUZZ_SEED=17 scripts/mpirun -n 6 build/host/bin/fuzz_split
// A seed and the number of ranks determine a case. To repeat it, set ALONI_FUZZ_SEED to its seed: it is the first
// case then.
#include "random_network.hpp"
#include "split_harness.hpp"
#include "support/random_cases.hpp"
#include "support/transport.hpp"

#include <aloni/core/config.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <type_traits>
#include <vector>

namespace aloni::nn::test {
namespace fuzz_split {

using local::ConvolutionBackend;

/// False on all ranks if any rank saw a difference.
template <class T>
bool holds(const comm::Communicator& comm, std::uint64_t seed) {
  Dice dice(seed);
  const NetworkDescription net = random_network(dice, Kinds::exact);
  const Index samples = dice(1, 5);
  const Strategy strategy = random_strategy(dice, net, splits_for(comm.size(), net.spatial_rank));
  std::vector<ConvolutionBackend> backends{ConvolutionBackend::automatic, ConvolutionBackend::automatic,
                                           ConvolutionBackend::direct, ConvolutionBackend::reference};
  if (config::has_kokkos_kernels) backends.push_back(ConvolutionBackend::kokkos_kernels);
  if (config::has_onednn && std::is_same_v<T, float>) backends.push_back(ConvolutionBackend::onednn);
  const ConvolutionBackend backend = backends[dice(0, static_cast<Index>(backends.size()) - 1)];
  SCOPED_TRACE("backend " + std::string(name(backend)));
  return expect_split_equals_unsplit<T>(comm, net, strategy, samples, Values::integers, seed, 0.0, backend);
}

double number_from(const char* variable, double otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr && *text != '\0' ? std::atof(text) : otherwise;
}

TEST(FuzzSplit, GivesTheSameBitsOnIntegersUntilTimeIsUp) {
  const auto comm = aloni::test::make_communicator();
  const double seconds = number_from("ALONI_FUZZ_SECONDS", aloni::test::nightly() ? 180 : 2);
  const auto first = static_cast<std::uint64_t>(number_from("ALONI_FUZZ_SEED", 1));
  const auto start = std::chrono::steady_clock::now();
  const auto tell = [&](std::uint64_t seed) {  // so that the last good seed is known after a crash
    if (comm.rank() == 0)
      std::fprintf(stderr, "fuzz_split: seeds %llu to %llu agree\n", static_cast<unsigned long long>(first),
                   static_cast<unsigned long long>(seed));
  };
  std::uint64_t seed = first;
  for (;; ++seed) {
    // The clock of rank 0 counts, so that all ranks stop together.
    const bool over = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() >= seconds;
    if (comm.all_reduce(comm.rank() == 0 && over ? 1 : 0, comm::Reduction::max) == 1 && seed > first) break;
    SCOPED_TRACE("ALONI_FUZZ_SEED=" + std::to_string(seed) + " on " + std::to_string(comm.size()) +
                 " ranks repeats this");
    try {
      if (!(random::integer(seed, 78, 0) % 2 == 0 ? holds<float>(comm, seed) : holds<double>(comm, seed))) return;
    } catch (const std::exception& e) {
      FAIL() << e.what();
    }
    if ((seed - first) % 100 == 99) tell(seed);
  }
  tell(seed - 1);
}

}  // namespace fuzz_split
}  // namespace aloni::nn::test
