#include <aloni/core/environment.hpp>

#include <aloni/core/blas_library.hpp>
#include <aloni/core/comm/liveness/poison.hpp>
#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>

#include <mpi.h>
#include <Kokkos_Core.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace aloni {

namespace {

constexpr auto patience_after_failure = std::chrono::seconds(1);

bool user_chose_device(int argc, char** argv) {
  if (std::getenv("KOKKOS_DEVICE_ID") || std::getenv("KOKKOS_MAP_DEVICE_ID_BY")) return true;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--kokkos-device-id") || argument.starts_with("--kokkos-map-device-id-by")) return true;
  }
  return false;
}

int node_local_rank() {
  MPI_Comm node = MPI_COMM_NULL;
  int rank = 0;
  comm::check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node),
                  "MPI_Comm_split_type");
  comm::check_mpi(MPI_Comm_rank(node, &rank), "MPI_Comm_rank");
  comm::check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");
  return rank;
}

// Kokkos guesses the local rank from variables that some launchers set; MPI knows it. Kokkos takes either settings or a
// command line. So the device is one more flag, which Kokkos removes again together with its other flags.
void initialize_kokkos(int& argc, char**& argv) {
  std::vector<char*> arguments(argv, argv + argc);
  std::string device;
  if (Kokkos::num_devices() > 0 && !user_chose_device(argc, argv)) {
    device = "--kokkos-device-id=" + std::to_string(node_local_rank() % Kokkos::num_devices());
    arguments.push_back(device.data());
  }
  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  Kokkos::initialize(count, arguments.data());
  for (int i = 0; i < count && i < argc; ++i) argv[i] = arguments[i];
  if (count < argc) argv[count] = nullptr;
  argc = count;
}

void check_thread_count() {
  const char* const text = std::getenv("OMP_NUM_THREADS");
  if (!text) return;
  const std::string_view value = text;
  long long threads = 0;  // the first one of a list; OpenMP itself tells of other texts
  const std::errc error = std::from_chars(value.data(), value.data() + value.size(), threads).ec;
  if (error == std::errc::result_out_of_range || (error == std::errc() && threads > most_threads()))
    throw InvalidArgument("aloni::Environment", "OMP_NUM_THREADS", text,
                          "at most " + std::to_string(most_threads()) + " threads for " +
                              std::to_string(std::thread::hardware_concurrency()) + " cores");
}

void ignore_file_limit_signal() {
  struct sigaction present {};
  if (sigaction(SIGXFSZ, nullptr, &present) == 0 && present.sa_handler == SIG_DFL) std::signal(SIGXFSZ, SIG_IGN);
}

/// Whether all ranks call this within `patience_after_failure`.
bool all_ranks_come() {
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS) return false;
  const auto start = std::chrono::steady_clock::now();
  for (int done = 0; std::chrono::steady_clock::now() - start < patience_after_failure;) {
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (done) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace

int most_threads() {
  constexpr unsigned at_least = 64, per_core = 4;
  return static_cast<int>(std::max(at_least, per_core * std::thread::hardware_concurrency()));
}

Environment::Environment(int& argc, char**& argv) {
  check_thread_count();
  ignore_file_limit_signal();
  int mpi_is_up = 0;
  comm::check_mpi(MPI_Initialized(&mpi_is_up), "MPI_Initialized");
  if (!mpi_is_up) {
    int provided = MPI_THREAD_SINGLE;
    comm::check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    if (provided < MPI_THREAD_FUNNELED) {
      MPI_Finalize();
      throw CommunicationError("aloni::Environment", "MPI thread level", std::to_string(provided),
                               "MPI_THREAD_FUNNELED (" + std::to_string(MPI_THREAD_FUNNELED) + ") or more");
    }
    owns_mpi_ = true;
  }
  if (!Kokkos::is_initialized() && !Kokkos::is_finalized()) {
    try {
      match_blas_to_processor();
      initialize_kokkos(argc, argv);
    } catch (...) {
      if (owns_mpi_) MPI_Finalize();  // the destructor does not run after a constructor throws
      throw;
    }
    owns_kokkos_ = true;
  }
}

Environment::~Environment() {
  if (owns_kokkos_ && Kokkos::is_initialized()) Kokkos::finalize();
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (owns_mpi_ && !finalized && (!comm::detail::any_family_failed() || all_ranks_come())) MPI_Finalize();
}

}  // namespace aloni
