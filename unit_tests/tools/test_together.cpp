#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>
#include <aloni/tools/together.hpp>

#include <gmock/gmock.h>

#include <chrono>
#include <new>

namespace aloni::tools {
namespace test_together {

struct Ending {
  int code;
  std::string text;           // what this rank printed
  std::int64_t lines_in_all;  // and all ranks together
  double seconds;
};

Ending ending_of(const std::function<void(const comm::Communicator&)>& work) {
  const auto start = std::chrono::steady_clock::now();
  testing::internal::CaptureStderr();
  const int code = run_together(work);
  const std::string text = testing::internal::GetCapturedStderr();
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  const auto all = comm::from_mpi(MPI_COMM_WORLD);
  const std::int64_t lines = std::count(text.begin(), text.end(), '\n');
  return {code, text, all.all_reduce(lines, comm::Reduction::sum), time.count()};
}

int last_rank() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size - 1;
}

TEST(RunTogether, SucceedsInSilence) {
  const auto end = ending_of([](const comm::Communicator& comm) { comm.barrier(); });
  EXPECT_EQ(end.code, success);
  EXPECT_EQ(end.lines_in_all, 0);
}

TEST(RunTogether, PrintsAnErrorOfAllRanksOnce) {
  const auto end = ending_of(
      [](const comm::Communicator&) { throw InvalidArgument("aloni::nn::resolve", "grid", "h8", "at most 2 blocks"); });
  EXPECT_EQ(end.code, wrong_usage);
  EXPECT_EQ(end.lines_in_all, 1);
  EXPECT_LT(end.seconds, 2);
}

TEST(RunTogether, PrintsTheErrorOfTheRankThatFailedItself) {
  const auto end = ending_of([](const comm::Communicator& comm) {
    comm::collectively(comm, "reading", [&] {
      if (comm.rank() == last_rank()) throw FileError("aloni::nn::read_idx", "x.gz", "missing", "a readable file");
    });
  });
  EXPECT_EQ(end.code, failure);
  EXPECT_EQ(end.lines_in_all, 1);
  EXPECT_LT(end.seconds, 2);
}

TEST(RunTogether, BringsHomeRanksThatWaitForAFailedOne) {
  const auto end = ending_of([](const comm::Communicator& comm) {
    if (comm.rank() == last_rank()) throw std::bad_alloc();
    for (;;) comm.barrier();
  });
  EXPECT_EQ(end.code, failure);
  EXPECT_EQ(end.lines_in_all, 1);
  EXPECT_LT(end.seconds, 4);
}

TEST(RunTogether, TakesTheCodeOfTheRankThatSpeaks) {
  const auto end = ending_of([](const comm::Communicator& comm) {
    if (comm.rank() == last_rank()) throw UsageError("two\nlines");
  });
  EXPECT_EQ(end.code, wrong_usage);
  EXPECT_EQ(end.lines_in_all, 1);
  EXPECT_THAT(end.text, testing::AnyOf("", testing::AllOf(testing::StartsWith("aloni: "), testing::EndsWith("two\n"))));
}

}  // namespace test_together
}  // namespace aloni::tools
