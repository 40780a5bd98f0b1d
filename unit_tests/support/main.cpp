// The main of every test that needs MPI or Kokkos.
//
// After each test the ranks exchange their results, so that all ranks have the same exit code. A failed rank may wait
// for peers that wait for one of its messages: then it ends the job, which would otherwise hang until the timeout.
// Rank 0 prints as GoogleTest does; other ranks print only failures.

#include <aloni/core/environment.hpp>

#include <support/test_files.hpp>

#include <gtest/gtest.h>
#include <mpi.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include <chrono>
#include <cstdio>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

namespace {

using namespace std::chrono_literals;

constexpr auto patience = 20s;

class TellAll : public testing::EmptyTestEventListener {
 public:
  TellAll(MPI_Comm comm, bool& failed_anywhere) : comm_(comm), failed_anywhere_(failed_anywhere) {
    MPI_Comm_rank(comm, &rank_);
  }

  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (rank_ == 0 || !result.failed()) return;
    std::ostringstream text;  // one write, so that the lines of two ranks don't mix
    text << "[rank " << rank_ << "] " << (result.file_name() ? result.file_name() : "unknown file") << ':'
         << result.line_number() << ": Failure\n"
         << result.message() << '\n';
    std::fputs(text.str().c_str(), stdout);
    std::fflush(stdout);
  }

  void OnTestEnd(const testing::TestInfo& info) override {
    const int failed = info.result()->Failed() ? rank_ + 1 : 0;
    int worst = 0;
    MPI_Request request;
    MPI_Iallreduce(&failed, &worst, 1, MPI_INT, MPI_MAX, comm_, &request);
    const auto deadline = std::chrono::steady_clock::now() + patience;
    for (int done = 0; MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done;) {
      if (failed && std::chrono::steady_clock::now() > deadline) {
        std::fprintf(stderr,
                     "[rank %d] %s.%s failed here and the other ranks never came back from it: ending the job\n", rank_,
                     info.test_suite_name(), info.name());
        MPI_Abort(comm_, 1);
      }
      std::this_thread::sleep_for(50us);
    }
    if (worst == 0) return;
    failed_anywhere_ = true;
    if (rank_ == 0 && !failed) {
      std::printf("[  FAILED  ] %s.%s on rank %d\n", info.test_suite_name(), info.name(), worst - 1);
      std::fflush(stdout);
    }
  }

 private:
  MPI_Comm comm_;
  bool& failed_anywhere_;
  int rank_ = 0;
};

/// MPI and its plug-ins keep memory that they allocate at start and stop. They are unloaded before leaks are reported,
/// so no suppression would match their names.
template <class F>
void without_leak_check(F&& f) {
#ifdef __SANITIZE_ADDRESS__
  __lsan::ScopedDisabler disabler;
#endif
  f();
}

}  // namespace

int main(int argc, char** argv) {
  std::optional<aloni::Environment> environment;
  without_leak_check([&] { environment.emplace(argc, argv); });
  testing::InitGoogleTest(&argc, argv);
  if (!aloni::test::choose_test_files(argc, argv)) {
    without_leak_check([&] { environment.reset(); });
    return 2;
  }
  MPI_Comm comm;  // of our own: a test's stray messages must not meet ours
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  int rank = 0;
  MPI_Comm_rank(comm, &rank);

  bool failed_anywhere = false;
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new TellAll(comm, failed_anywhere));  // GoogleTest deletes it
  const int result = RUN_ALL_TESTS();
  if (rank == 0 && result == 0 && failed_anywhere) std::puts("[  FAILED  ] on another rank, see above");
  MPI_Comm_free(&comm);
  without_leak_check([&] { environment.reset(); });
  return result != 0 || failed_anywhere ? 1 : 0;
}
