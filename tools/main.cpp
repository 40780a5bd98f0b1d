// The aloni command: starts MPI and Kokkos, then runs the command line on all ranks together.
#include <aloni/core/environment.hpp>
#include <aloni/tools/command_line.hpp>
#include <aloni/tools/kokkos_flags.hpp>
#include <aloni/tools/together.hpp>

#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

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

  try {
    if (arguments.help) return print_kokkos_help(kokkos_argc, kokkos_arguments);
    aloni::Environment environment(kokkos_argc, kokkos_arguments);
    return run_together(
        [&](const aloni::comm::Communicator& comm) { run_command_line(comm, arguments.others, arguments.error); });
  } catch (const std::exception& e) {
    std::fprintf(stderr, "aloni: %s\n", e.what());
    return failure;
  }
}
