#include <aloni/core/memory.hpp>

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
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
