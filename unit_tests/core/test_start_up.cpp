// from_mpi() where one rank fails, gives other options, or has no shared memory: no rank waits for ever.
#include <aloni/core/comm/engine/start_up.hpp>
#include <aloni/core/comm/engine/trial_message.hpp>
#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

namespace test_start_up {

using namespace aloni;
using namespace aloni::comm;

int world(int (*f)(MPI_Comm, int*)) {
  int value = 0;
  f(MPI_COMM_WORLD, &value);
  return value;
}
int rank() { return world(MPI_Comm_rank); }
int size() { return world(MPI_Comm_size); }

/// Lowers a limit of this process while it lives.
class Limit {
 public:
  Limit(__rlimit_resource resource, rlim_t value) : resource_(resource) {
    getrlimit(resource_, &before_);
    rlimit lower = before_;
    lower.rlim_cur = value;
    setrlimit(resource_, &lower);
  }
  ~Limit() { setrlimit(resource_, &before_); }

 private:
  __rlimit_resource resource_;
  rlimit before_{};
};

/// The text of the error that from_mpi throws with these options, and how long it took.
template <class E>
std::string text_of(const TransportOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  std::string text;
  try {
    const Communicator comm = from_mpi(MPI_COMM_WORLD, options);
    ADD_FAILURE() << "no error";
  } catch (const E& error) {
    text = error.what();
  } catch (...) {
    ADD_FAILURE() << "another type of error";
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  return text;
}

void expect_all_reduce_works(const Communicator& comm) {
  EXPECT_EQ(comm.all_reduce(1, Reduction::sum), comm.size());
  std::vector<float> large(100'000, 1.0f);
  comm.all_reduce(std::span(large), Reduction::sum);
  EXPECT_EQ(large.back(), static_cast<float>(comm.size()));
}

TEST(StartUp, NamesAnOptionThatDiffersOnAllRanks) {
  if (size() < 2) GTEST_SKIP() << "needs a second rank";
  const int last = size() - 1;
  const std::string text =
      text_of<InvalidArgument>({.mpi_fragment_bytes = rank() == last ? std::size_t{1000} : std::size_t{2000}});
  EXPECT_NE(text.find("options.mpi_fragment_bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("2000 on rank 0, 1000 on rank " + std::to_string(last)), std::string::npos) << text;
}

TEST(StartUp, TellsTheOthersOfAWrongOptionOnOneRank) {
  if (size() < 2) GTEST_SKIP() << "needs a second rank";
  if (rank() == 1) {
    const std::string text = text_of<InvalidArgument>({.faults = {.delay = 2}});
    EXPECT_NE(text.find("options.faults.delay"), std::string::npos) << text;
  } else {
    const std::string text = text_of<PeerFailed>({});
    EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
    EXPECT_NE(text.find("options.faults.delay"), std::string::npos) << text;
  }
}

TEST(StartUp, TellsTheOthersWhenOneRankHasNoMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need memory of their own";
#endif
  if (size() < 2) GTEST_SKIP() << "needs a second rank";
  if (rank() == size() - 1) {
    const Limit no_more_memory(RLIMIT_AS, 1 << 20);
    (void)text_of<std::exception>({});
  } else {
    const std::string text = text_of<PeerFailed>({});
    EXPECT_NE(text.find("rank " + std::to_string(size() - 1)), std::string::npos) << text;
  }
}

/// A StartUp and its communicator.
struct Start {
  comm::detail::StartUp up{MPI_COMM_WORLD, std::chrono::seconds(5)};
  MPI_Comm comm = up.duplicate();
  Start() = default;
  Start(const Start&) = delete;
  Start& operator=(const Start&) = delete;
  ~Start() { MPI_Comm_free(&comm); }
};

TEST(StartUp, GathersBytesOfAnyNumber) {
  Start start;
  for (const std::size_t each : {0, 7, 1000}) {
    const std::vector<std::byte> mine(each * static_cast<std::size_t>(1 + rank()), static_cast<std::byte>(rank()));
    std::vector<std::byte> all;
    for (int r = 0; r < size(); ++r)
      all.insert(all.end(), each * static_cast<std::size_t>(1 + r), static_cast<std::byte>(r));
    EXPECT_EQ(start.up.all_gather(mine), all) << each;
  }
}

TEST(StartUp, WaitsForARankThatComputes) {
  if (size() < 2) GTEST_SKIP() << "needs a second rank";
  if (!comm::detail::JobProcesses().known()) GTEST_SKIP() << "needs a launcher that names the job";
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank() == 1) {
    const auto start = std::chrono::steady_clock::now();
    for (volatile double x = 1; std::chrono::steady_clock::now() - start < std::chrono::milliseconds(2500);)
      x = x * 1.0000001;
  }
  comm::detail::StartUp up(MPI_COMM_WORLD, std::chrono::seconds(1), std::chrono::seconds(60));
  MPI_Comm duplicate = up.duplicate();
  EXPECT_NO_THROW(up.finish());
  MPI_Comm_free(&duplicate);
}

TEST(StartUp, TellsTheOthersALongText) {
  if (size() < 2) GTEST_SKIP() << "needs a second rank";
  Start start;
  const std::string what(700, 'x');
  if (rank() == 1) return start.up.fail(what);
  try {
    (void)start.up.all_gather({});
    ADD_FAILURE() << "no error";
  } catch (const PeerFailed& error) {
    EXPECT_EQ(error.root_rank(), 1);
    EXPECT_EQ(error.value(), what);
  }
}

TEST(StartUp, UsesMpiWhereOneRankMayNotMakeSharedMemory) {
  const Limit small_files(RLIMIT_FSIZE, rank() == 0 ? 4096 : RLIM_INFINITY);
  expect_all_reduce_works(from_mpi(MPI_COMM_WORLD));
  expect_all_reduce_works(from_mpi(MPI_COMM_WORLD, {.shared_memory = false}));
}

TEST(StartUp, AChildThatDestroysACopyLeavesTheFamilyAlone) {
  auto comm = std::make_unique<Communicator>(from_mpi(MPI_COMM_WORLD));
  std::pmr::vector<float> values(1 << 20, 1.0f, comm->shared_memory().get());
  const pid_t child = fork();
  if (child == 0) {
    auto memory = comm->shared_memory();
    comm.reset();
    // A block of the parent: its pages must not go back to the system.
    memory->deallocate(values.data(), values.size() * sizeof(float), alignof(float));
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(values.back(), 1.0f);
  expect_all_reduce_works(*comm);
}

/// Host memory in the place of device memory. `wrong`: what arrives at this rank counts as changed.
class HostTrialMemory final : public detail::TrialMemory {
 public:
  HostTrialMemory(int of_rank, std::size_t bytes, bool wrong) : sent_(bytes), received_(bytes), wrong_(wrong) {
    for (std::size_t i = 0; i < bytes; ++i) sent_[i] = detail::trial_value(of_rank, i);
  }
  const void* sent() const override { return sent_.data(); }
  void* received() override { return received_.data(); }
  bool holds_values_of(int of_rank) const override {
    for (std::size_t i = 0; i < received_.size(); ++i)
      if (received_[i] != detail::trial_value(of_rank, i)) return false;
    return !wrong_;
  }

 private:
  std::vector<std::byte> sent_, received_;
  bool wrong_;
};

/// Each rank gets the same answer, whichever rank has the reason.
TEST(TrialMessages, ArriveOrAllRanksKnowThatTheyDoNot) {
  detail::StartUp start_up(MPI_COMM_WORLD, std::chrono::seconds(10));
  MPI_Comm comm = start_up.duplicate();
  MPI_Comm messages = start_up.duplicate();
  int made = 0;
  const auto trial = [&](bool reported, int without_memory, int changed, std::size_t changed_bytes) {
    return detail::trial_messages_arrive(messages, start_up, reported, [&](int of_rank, std::size_t bytes) {
      ++made;
      return of_rank == without_memory
                 ? nullptr
                 : std::make_unique<HostTrialMemory>(of_rank, bytes, of_rank == changed && bytes == changed_bytes);
    });
  };
  EXPECT_TRUE(trial(true, -1, -1, 0));
  EXPECT_EQ(made, 2) << "a short and a long message";
  for (int r = 0; r < size(); ++r) {
    EXPECT_FALSE(trial(true, r, -1, 0));
    EXPECT_FALSE(trial(true, -1, r, 64));
    EXPECT_FALSE(trial(true, -1, r, std::size_t{1} << 20));
    made = 0;
    EXPECT_FALSE(trial(rank() != r, -1, -1, 0));
    EXPECT_EQ(made, 0) << "nothing is sent";
  }
  start_up.finish();
  MPI_Comm_free(&messages);
  MPI_Comm_free(&comm);
}

}  // namespace test_start_up
