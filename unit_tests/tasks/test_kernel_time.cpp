#include <aloni/core/error.hpp>
#include <aloni/tasks/kernel_time.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace aloni::tasks {
namespace test_kernel_time {

TEST(KernelTime, MeasuresEachKernelOfAFactorisation) {
  for (const Kernel kernel :
       {Kernel::potrf, Kernel::getrf, Kernel::trsm, Kernel::trsm_row, Kernel::syrk, Kernel::gemm}) {
    SCOPED_TRACE(name(kernel));
    for (const int workers : {1, 2}) {
      const std::vector<double> times = kernel_seconds<double>(kernel, {40, 40, 40}, workers, 0);
      ASSERT_EQ(times.size(), 5u * static_cast<std::size_t>(workers));
      EXPECT_GT(times.front(), 0);
      EXPECT_TRUE(std::ranges::is_sorted(times));
    }
    EXPECT_EQ(kernel_seconds<float>(kernel, {1, 1, 1}, 1, 0).size(), 5u);
  }
}

/// 512 times as many operations: a factor of 16 is far from every noise.
TEST(KernelTime, LargerTilesTakeLonger) {
  const std::vector<double> small = kernel_seconds<double>(Kernel::gemm, {32, 32, 32}, 1, 0.01),
                            large = kernel_seconds<double>(Kernel::gemm, {256, 256, 256}, 1, 0.01);
  EXPECT_GT(large[large.size() / 2], 16 * small[small.size() / 2]);
}

TEST(KernelTime, TakesOblongTiles) {
  EXPECT_EQ(kernel_seconds<double>(Kernel::gemm, {30, 20, 10}, 1, 0).size(), 5u);
  EXPECT_EQ(kernel_seconds<double>(Kernel::trsm, {30, 20, 20}, 1, 0).size(), 5u);
  EXPECT_EQ(kernel_seconds<double>(Kernel::trsm_row, {30, 20, 30}, 1, 0).size(), 5u);
  EXPECT_EQ(kernel_seconds<double>(Kernel::syrk, {20, 20, 30}, 1, 0).size(), 5u);
}

TEST(KernelTime, RefusesWrongArguments) {
  EXPECT_THROW(kernel_seconds<double>(Kernel::other, {8, 8, 8}, 1, 0), InvalidArgument);
  EXPECT_THROW(kernel_seconds<double>(Kernel::solve_lower, {8, 8, 8}, 1, 0), InvalidArgument);
  EXPECT_THROW(kernel_seconds<double>(Kernel::potrf, {8, 9, 8}, 1, 0), InvalidArgument);
  EXPECT_THROW(kernel_seconds<double>(Kernel::trsm, {8, 9, 8}, 1, 0), InvalidArgument);
  EXPECT_THROW(kernel_seconds<double>(Kernel::gemm, {8, 0, 8}, 1, 0), InvalidArgument);
  EXPECT_THROW(kernel_seconds<double>(Kernel::gemm, {8, 8, 8}, 0, 0), InvalidArgument);
  EXPECT_THROW(kernel_seconds<double>(Kernel::gemm, {8, 8, 8}, 1, -1), InvalidArgument);
}

}  // namespace test_kernel_time
}  // namespace aloni::tasks
