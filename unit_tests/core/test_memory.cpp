#include <aloni/core/memory.hpp>

#include <gtest/gtest.h>

#include <cstddef>
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

}  // namespace test_memory
