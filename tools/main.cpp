// The aloni command: starts MPI and Kokkos, then runs the command line on all ranks together. Without a launcher
// `aloni plan` and `aloni simulate` start neither: they also work where MPI cannot start, on a login node.
#include <aloni/core/environment.hpp>
#include <aloni/core/notice.hpp>
#include <aloni/nn/local/kept_plans.hpp>
#include <aloni/tools/cache_folder.hpp>
#include <aloni/tools/command_line.hpp>
#include <aloni/tools/kokkos_flags.hpp>
#include <aloni/tools/launcher.hpp>
#include <aloni/tools/phase_watch.hpp>
#include <aloni/tools/together.hpp>

#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>

namespace {

using namespace aloni::tools;

void finalize_mpi() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Finalize();
}

// For --kokkos-help Kokkos prints its help and exits the program. Only rank 0 does so; an exit handler finalizes MPI.
int print_kokkos_help(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  std::atexit(finalize_mpi);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) aloni::Environment environment(argc, argv);
  return success;
}

// The launcher ends all ranks when one has died. It first sends SIGTERM: time to say which rank it was.
void end_soon(int) {
  PhaseWatch::hurry();
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGALRM, [](int) { std::raise(SIGTERM); });
  alarm(2);
}

}  // namespace

int main(int argc, char** argv) {
  const SplitArguments arguments = split_kokkos_flags({argv, argv + argc});
  // Without this flag every rank prints Kokkos' advice on thread binding. `--kokkos-disable-warnings=no` restores it.
  std::vector<std::string> for_kokkos{arguments.others.empty() ? "aloni" : arguments.others.front(),
                                      "--kokkos-disable-warnings"};
  for_kokkos.insert(for_kokkos.end(), arguments.kokkos.begin(), arguments.kokkos.end());
  std::vector<char*> kokkos_argv;
  for (auto& a : for_kokkos) kokkos_argv.push_back(a.data());
  int kokkos_argc = static_cast<int>(kokkos_argv.size());
  kokkos_argv.push_back(nullptr);
  char** kokkos_arguments = kokkos_argv.data();

  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond ulimit -f is then an error of write()
  // Flags of Kokkos ask for its output or its tools, so it starts.
  if (arguments.kokkos.empty() && !started_by_launcher(std::getenv)) {
    bool done = true;
    const int code = run_alone([&] { done = run_without_ranks(arguments.others, arguments.error); });
    if (done) return code;
  }
  std::signal(SIGTERM, end_soon);
  aloni::set_notice_handler([](const std::string& line) { std::fprintf(stderr, "aloni: %s\n", line.c_str()); });
  const aloni::comm::TransportOptions options = early_options(arguments.others);
  const auto stuck_after = std::chrono::duration_cast<std::chrono::seconds>(options.stuck_after);
  try {
    if (arguments.help) return print_kokkos_help(kokkos_argc, kokkos_arguments);
    std::optional<PhaseWatch> watch(std::in_place, Phase::start, failure, stuck_after);
    std::optional<aloni::Environment> environment(std::in_place, kokkos_argc, kokkos_arguments);
    watch.reset();
    aloni::nn::local::keep_plans_in(cache_folder("plans"));
    const int code = run_together(
        [&](const aloni::comm::Communicator& comm) { run_command_line(comm, arguments.others, arguments.error); },
        options,
        [&](int known) {
          // A failure has been told. A rank that the launcher ends because of it need not stay for a message.
          if (known != success) std::signal(SIGTERM, SIG_DFL);
          watch.emplace(Phase::end, known, stuck_after);
        });
    environment.reset();
    return code;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "aloni: %s\n", e.what());
    return failure;
  }
}
