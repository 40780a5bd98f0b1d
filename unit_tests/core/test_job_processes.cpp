// The processes of a job, as children of this one with the launcher's variables.
#include <aloni/core/comm/liveness/job_processes.hpp>

#include <support/temporary_folder.hpp>

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace test_job_processes {

using namespace aloni::comm::detail;
using namespace std::chrono_literals;

const std::string job = "test_job_processes." + std::to_string(getpid());

/// A process of the job that sleeps. The kernel takes its name from the file of its program.
class Sleeper {
 public:
  Sleeper(int rank, const std::string& file) {
    const std::string space = "PMIX_NAMESPACE=" + job, number = "PMIX_RANK=" + std::to_string(rank);
    process_ = fork();
    if (process_ == 0) {
      const char* const arguments[] = {"sleep", "100", nullptr};
      const char* const environment[] = {space.c_str(), number.c_str(), nullptr};
      execve(file.c_str(), const_cast<char* const*>(arguments), const_cast<char* const*>(environment));
      _exit(1);
    }
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  ~Sleeper() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  int process() const { return process_; }

 private:
  pid_t process_;
};

class JobProcessesTest : public testing::Test {
 protected:
  JobProcessesTest() {
    setenv("PMIX_NAMESPACE", job.c_str(), 1);
    for (const char* const name : {"sleep", "aloni: informed", "aloni: telling"})
      std::filesystem::create_symlink("/bin/sleep", folder_.path(name));
  }
  ~JobProcessesTest() override { unsetenv("PMIX_NAMESPACE"); }

  /// The processes as soon as `enough` holds for them; at the latest after ten seconds.
  std::vector<JobProcess> alive(const std::function<bool(const std::vector<JobProcess>&)>& enough) {
    const JobProcesses processes;
    std::vector<JobProcess> found = processes.alive();
    for (int i = 0; i < 1000 && !enough(found); ++i) {
      std::this_thread::sleep_for(10ms);
      found = processes.alive();
    }
    return found;
  }

  aloni::test::TemporaryFolder folder_;
};

TEST_F(JobProcessesTest, AreThoseThatLiveByRank) {
  const Sleeper second(1, folder_.path("sleep"));
  {
    const Sleeper first(0, folder_.path("sleep"));
    const auto found = alive([](const auto& all) { return all.size() == 2; });
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].process, first.process());
    EXPECT_EQ(found[1].process, second.process());
    EXPECT_EQ(found[1].rank, 1);
  }
  const auto found = alive([](const auto& all) { return all.size() == 1; });
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 1);
}

TEST_F(JobProcessesTest, AreStoppedOrNot) {
  const Sleeper one(0, folder_.path("sleep")), two(1, folder_.path("sleep"));
  (void)alive([](const auto& all) { return all.size() == 2; });
  kill(two.process(), SIGSTOP);
  const auto found = alive([](const auto& all) { return all.size() == 2 && is_stopped(all[1].state); });
  ASSERT_EQ(found.size(), 2u);
  EXPECT_FALSE(is_stopped(found[0].state));
  EXPECT_TRUE(is_stopped(found[1].state));
}

TEST_F(JobProcessesTest, ShowWhichOfThemAreInformedOfAFailure) {
  const Sleeper ignorant(0, folder_.path("sleep")), informed(1, folder_.path("aloni: informed")),
      telling(2, folder_.path("aloni: telling"));
  const auto found = alive([](const auto& all) { return all.size() == 3 && all[1].informed && all[2].telling; });
  ASSERT_EQ(found.size(), 3u);
  EXPECT_FALSE(found[0].informed || found[0].telling);
  EXPECT_TRUE(found[1].informed);
  EXPECT_FALSE(found[1].telling);
  EXPECT_TRUE(found[2].informed && found[2].telling);
}

// A process cannot be made to wait for a disk at will.
TEST(JobProcess, HasTheStateBehindItsNameInTheFileOfTheKernel) {
  const JobProcess waits = process_in_stat(42, "42 (my program) D 1 42 42 0 -1 4194304 100 0");
  EXPECT_EQ(waits.process, 42);
  EXPECT_EQ(waits.state, 'D');
  EXPECT_FALSE(waits.informed || waits.telling);
  EXPECT_EQ(process_in_stat(7, "7 (a) R (b) S 1 7").state, 'S');
  EXPECT_EQ(process_in_stat(7, "7 (a\n) D 1) T 1 7").state, 'T');
  EXPECT_TRUE(process_in_stat(7, "7 (aloni: informed) S 1 7").informed);
  EXPECT_TRUE(process_in_stat(7, "7 (aloni: telling) R 1 7").telling);
  for (const char* const incomplete : {"", "7", "7 (name", "7 (name)", "7 (name) "})
    EXPECT_EQ(process_in_stat(7, incomplete).state, '?') << incomplete;
}

TEST(JobProcess, HasAStateInWords) {
  EXPECT_EQ(text_of_state('R'), "runs");
  EXPECT_EQ(text_of_state('S'), "sleeps");
  EXPECT_EQ(text_of_state('D'), "waits for a disk");
  EXPECT_EQ(text_of_state('T'), "is stopped");
  EXPECT_EQ(text_of_state('t'), "is stopped");
}

TEST_F(JobProcessesTest, AreMarkedByTheirName) {
  const auto name = [] {
    std::string text;
    std::getline(std::ifstream("/proc/self/comm"), text);
    return text;
  };
  const std::string before = name();
  std::thread([] { mark_as_informed(true); }).join();  // from any thread
  EXPECT_EQ(name(), "aloni: telling");
  mark_as_informed(false);
  EXPECT_EQ(name(), "aloni: informed");
  std::ofstream("/proc/self/comm") << before;
}

}  // namespace test_job_processes
