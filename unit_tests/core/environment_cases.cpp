// environment_cases owner|guest|guest_of_mpi|guest_of_kokkos --ours --kokkos-num-threads=1 --theirs
// Starts MPI, Kokkos, both or neither, then an aloni::Environment. Checks that Environment stops only the libraries
// that it has started. Exit code 0 on success.
//
// environment_cases peer_dies
// Rank 0 is killed. The other ranks end all the same, and soon.
#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/environment.hpp>
#include <aloni/core/error.hpp>

#include <mpi.h>
#include <Kokkos_Core.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

int failures = 0;

void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "environment_cases: expected: %s\n", what);
  ++failures;
}

bool mpi_is_up() {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized && !finalized;
}

void refuses_too_many_threads(int argc, char** argv) {
  const char* const before = std::getenv("OMP_NUM_THREADS");
  const std::string kept = before ? before : "";
  setenv("OMP_NUM_THREADS", "100000000", 1);
  std::string argument;
  try {
    aloni::Environment environment(argc, argv);
  } catch (const aloni::InvalidArgument& error) {
    argument = error.argument();
  }
  expect(argument == "OMP_NUM_THREADS" && !mpi_is_up(), "far too many threads are refused before MPI starts");
  before ? setenv("OMP_NUM_THREADS", kept.c_str(), 1) : unsetenv("OMP_NUM_THREADS");
}

bool ignores_file_limit_signal() {
  struct sigaction present {};
  return sigaction(SIGXFSZ, nullptr, &present) == 0 && present.sa_handler == SIG_IGN;
}

int without_rank_0(int argc, char** argv) {
  using namespace aloni::comm;
  bool failed = false;
  {
    aloni::Environment environment(argc, argv);
    const Communicator comm = from_mpi(MPI_COMM_WORLD);
    comm.barrier();
    if (comm.rank() == 0) std::raise(SIGKILL);
    try {
      for (;;) comm.barrier();
    } catch (const aloni::PeerFailed& error) {
      failed = error.rank() == 0;
    }
  }
  std::fprintf(stderr, "environment_cases: %s\n", failed ? "a rank has ended without rank 0" : "wrong rank");
  return failed ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string which = argc > 1 ? argv[1] : "";
  if (which == "peer_dies") return without_rank_0(argc, argv);
  const bool own_mpi = which == "guest" || which == "guest_of_mpi";
  const bool own_kokkos = which == "guest" || which == "guest_of_kokkos";
  if (!own_mpi && !own_kokkos && which != "owner") return 2;
  if (which == "owner") refuses_too_many_threads(argc, argv);
  if (own_mpi) MPI_Init(&argc, &argv);
  if (own_kokkos) Kokkos::initialize();
  {
    aloni::Environment environment(argc, argv);
    expect(ignores_file_limit_signal(), "a file beyond ulimit -f is an error of write()");
    expect(mpi_is_up(), "MPI runs inside the environment");
    expect(Kokkos::is_initialized(), "Kokkos runs inside the environment");
    int provided = MPI_THREAD_SINGLE;
    MPI_Query_thread(&provided);
    if (!own_mpi) expect(provided >= MPI_THREAD_FUNNELED, "the thread level is at least MPI_THREAD_FUNNELED");
    if (own_kokkos) {
      expect(argc == 5, "argv is unchanged if Kokkos is already running");
    } else {
      expect(argc == 4 && std::string(argv[2]) == "--ours" && std::string(argv[3]) == "--theirs" && argv[4] == nullptr,
             "the flags of Kokkos are removed from argv, and the other flags keep their order");
      expect(Kokkos::num_threads() == 1, "Kokkos has received its flag");
    }
    aloni::Environment nested(argc, argv);
  }
  expect(Kokkos::is_initialized() == own_kokkos, "Environment stops Kokkos only if it has started it");
  expect(mpi_is_up() == own_mpi, "Environment stops MPI only if it has started it");
  if (own_kokkos) Kokkos::finalize();
  if (own_mpi) MPI_Finalize();
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
