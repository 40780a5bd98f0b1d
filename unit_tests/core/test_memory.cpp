#include "support/sanitizer.hpp"
#include "support/temporary_folder.hpp"

#include <aloni/core/memory.hpp>

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace test_memory {

TEST(Memory, PeakGrowsWithTouchedMemoryAndNeverShrinks) {
  const auto before = aloni::peak_memory_bytes();
  EXPECT_GT(before, 100'000);
  // More than the process has ever used: other tests of the program may have used and freed memory before.
  constexpr std::int64_t more = 64 << 20;
  const auto bytes = static_cast<std::size_t>(before + more);
  {
    std::vector<char> block(bytes, 1);
    ASSERT_EQ(block[bytes / 2], 1);
  }
  const auto after = aloni::peak_memory_bytes();
  EXPECT_GT(after, before + more / 2);
  EXPECT_GE(aloni::peak_memory_bytes(), after);  // the block is freed; the call itself may use another page
}

#ifdef __GLIBC__
TEST(Memory, OfFreedBlocksIsReturned) {
  if (aloni::test::sanitized) GTEST_SKIP() << "the heap of a sanitizer";
  constexpr std::size_t blocks = 32 << 10, bytes = 1000;
  std::vector<std::unique_ptr<char[]>> heap(blocks);
  for (auto& block : heap) {
    block = std::make_unique<char[]>(bytes);
    block[0] = 1;
  }
  for (std::size_t i = 0; i + 1 < blocks; ++i) heap[i].reset();  // the last block keeps the heap from shrinking
  const std::int64_t before = aloni::resident_memory_bytes();
  aloni::return_freed_memory();
  EXPECT_LT(aloni::resident_memory_bytes(), before - static_cast<std::int64_t>(blocks * bytes / 2));
  EXPECT_EQ(heap.back()[0], 1);
}
#endif

/// A file system with these control groups: files with their contents.
std::int64_t usable_memory_with(const std::string& own_groups,
                                const std::vector<std::pair<std::string, std::string>>& files) {
  const aloni::test::TemporaryFolder root;
  const auto write = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root.path(path)).parent_path());
    std::ofstream(root.path(path)) << text << "\n";
  };
  write("proc/self/cgroup", own_groups);
  for (const auto& [path, text] : files) write("sys/fs/cgroup/" + path, text);
  return aloni::usable_memory_bytes(root.path(""));
}

TEST(Memory, OfAJobEndsAtTheLeastLimitOfItsControlGroups) {
  const std::int64_t all = usable_memory_with("", {});
  EXPECT_EQ(all, std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE));
  EXPECT_EQ(usable_memory_with("0::/job/step", {{"job/step/memory.max", "max"}}), all);
  EXPECT_EQ(usable_memory_with("0::/job/step", {{"job/memory.max", "4000000"}, {"job/step/memory.max", "max"}}),
            4000000);
  EXPECT_EQ(usable_memory_with("0::/job/step", {{"job/memory.max", "4000000"}, {"job/step/memory.max", "3000000"}}),
            3000000);
  EXPECT_EQ(usable_memory_with("0::/not/mounted/here", {{"memory.max", "5000000"}}), 5000000);
  EXPECT_EQ(
      usable_memory_with("5:cpu,cpuacct:/a\n4:memory:/job\n0::/", {{"memory/job/memory.limit_in_bytes", "6000000"},
                                                                   {"cpu,cpuacct/a/memory.limit_in_bytes", "1"}}),
      6000000);
  EXPECT_EQ(usable_memory_with("4:memory:/job", {{"memory/job/memory.limit_in_bytes", "9223372036854771712"}}), all);
  EXPECT_EQ(usable_memory_with("no colons", {}), all);
}

TEST(Memory, OfPagesOfTwoProcessesIsCountedHalf) {
  if (aloni::proportional_memory_bytes() == 0) GTEST_SKIP() << "the system does not report it";
  constexpr std::size_t bytes = 64 << 20;
  std::vector<char> block(bytes, 1);  // a child that does not write to it shares its pages
  int pipe_of_child[2], pipe_of_parent[2];
  ASSERT_EQ(pipe(pipe_of_child), 0);
  ASSERT_EQ(pipe(pipe_of_parent), 0);
  const auto alone = aloni::proportional_memory_bytes();
  const pid_t child = fork();
  char byte = 1;
  if (child == 0) {
    const bool told = write(pipe_of_child[1], &byte, 1) == 1 && read(pipe_of_parent[0], &byte, 1) == 1;
    _exit(told ? 0 : 1);
  }
  ASSERT_EQ(read(pipe_of_child[0], &byte, 1), 1);
  const auto together = aloni::proportional_memory_bytes(), resident = aloni::resident_memory_bytes();
  ASSERT_EQ(write(pipe_of_parent[1], &byte, 1), 1);
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_LT(together, alone - static_cast<std::int64_t>(bytes / 4));
  EXPECT_GT(resident, static_cast<std::int64_t>(bytes));
  for (const int end : {pipe_of_child[0], pipe_of_child[1], pipe_of_parent[0], pipe_of_parent[1]}) close(end);
}

}  // namespace test_memory
