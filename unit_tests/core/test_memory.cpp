#include <aloni/core/memory.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace test_memory {

TEST(Memory, PeakGrowsWithWhatIsTouchedAndStaysAfterwards) {
  const auto before = aloni::peak_memory_bytes();
  EXPECT_GT(before, 100'000);
  constexpr std::size_t bytes = 64 << 20;
  {
    std::vector<char> block(bytes, 1);
    ASSERT_EQ(block[bytes / 2], 1);
  }
  const auto after = aloni::peak_memory_bytes();
  EXPECT_GT(after, before + static_cast<std::int64_t>(bytes) / 2);
  EXPECT_GE(aloni::peak_memory_bytes(), after);  // the block is gone; the question itself may take a page
}

}  // namespace test_memory
