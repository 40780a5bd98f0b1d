// The main function of every benchmark. It starts MPI and Kokkos, registers the cases on all ranks and runs them on all
// ranks. Rank 0 reports.
#include "support/benchmark.hpp"

#include <aloni/core/blas_library.hpp>
#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/environment.hpp>
#include <aloni/core/version.hpp>

#include <benchmark/benchmark.h>

#include <mpi.h>
#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

class Silence : public benchmark::BenchmarkReporter {
 public:
  Silence() {
    SetOutputStream(&nothing_);
    SetErrorStream(&nothing_);
  }
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}

 private:
  std::ostream nothing_{nullptr};
};

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

void add_context(const aloni::comm::Communicator& world) {
  char mpi[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(mpi, &length);
  const std::string mpi_text(mpi, static_cast<std::size_t>(length));
  const int kokkos = KOKKOS_VERSION;
  std::ostringstream kokkos_text;
  kokkos_text << kokkos / 10000 << '.' << kokkos / 100 % 100 << '.' << kokkos % 100;
  benchmark::AddCustomContext("aloni", std::string(aloni::version()) + " " + std::string(aloni::git_hash()));
  benchmark::AddCustomContext("kokkos", kokkos_text.str());
  benchmark::AddCustomContext("execution_space", Kokkos::DefaultExecutionSpace::name());
  benchmark::AddCustomContext("threads_per_rank", std::to_string(Kokkos::DefaultHostExecutionSpace().concurrency()));
  benchmark::AddCustomContext("mpi", mpi_text.substr(0, mpi_text.find_first_of(",\n")));
  benchmark::AddCustomContext("compiler", __VERSION__);
  benchmark::AddCustomContext("processor", processor());
  benchmark::AddCustomContext("blas_kernels", aloni::blas_library().kernels);
  benchmark::AddCustomContext("cores", std::to_string(std::thread::hardware_concurrency()));
  benchmark::AddCustomContext("ranks", std::to_string(world.size()));
  benchmark::AddCustomContext("progress_thread", world.has_progress_thread() ? "yes" : "no");
  benchmark::AddCustomContext("ranks_per_node", std::to_string(world.node().size()));
}

constexpr std::string_view progress_thread = "--progress_thread";

int run(int argc, char** argv, bool with_thread) {
  const auto world = aloni::comm::from_mpi(MPI_COMM_WORLD, {.progress_thread = with_thread});
  const bool speaks = world.rank() == 0;
  std::vector<char*> arguments;
  for (int i = 0; i < argc; ++i) {
    const std::string_view argument = argv[i];
    constexpr std::string_view min_time = "--benchmark_min_time=";
    if (argument.starts_with(min_time))
      aloni::bench::detail::set_min_seconds(std::strtod(argv[i] + min_time.size(), nullptr));
    if (argument == "--time_oversubscribed") {
      aloni::bench::detail::set_time_oversubscribed();
      continue;
    }
    if (argument == progress_thread) continue;
    // Only rank 0 writes the file.
    if (!speaks && argument.starts_with("--benchmark_out")) continue;
    arguments.push_back(argv[i]);
  }
  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&count, arguments.data());
  if (count > 1) {
    if (speaks) benchmark::ReportUnrecognizedArguments(count, arguments.data());
    return 2;
  }
  add_context(world);
  aloni::bench::register_benchmarks(world);
  if (speaks) {
    benchmark::RunSpecifiedBenchmarks();
  } else {
    Silence silence;
    benchmark::RunSpecifiedBenchmarks(&silence);
  }
  benchmark::ClearRegisteredBenchmarks();  // cases may hold communicators, which must end before MPI
  benchmark::Shutdown();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  // With --progress_thread two threads call MPI, so MPI must start with MPI_THREAD_MULTIPLE.
  const bool with_thread = std::find(argv, argv + argc, progress_thread) != argv + argc;
  int level = MPI_THREAD_MULTIPLE;
  if (with_thread) MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  int status = 1;
  {
    aloni::Environment environment(argc, argv);
    try {
      status = run(argc, argv, with_thread);
    } catch (const std::exception& error) {
      std::cerr << error.what() << std::endl;
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
  if (with_thread) MPI_Finalize();
  return status;
}
