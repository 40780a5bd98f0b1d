#include <aloni/core/blas_library.hpp>

#include <gtest/gtest.h>

namespace aloni {
namespace test_blas_library {

TEST(BlasLibrary, GetsTheBestKernelsThatTheProcessorRunsInsteadOfOldOnes) {
  for (const char* old : {"Prescott", "Barcelona", "Nehalem", "Core2"}) {
    EXPECT_EQ(better_blas_kernels(old, true, true), "SkylakeX") << old;
    EXPECT_EQ(better_blas_kernels(old, true, false), "Haswell") << old;
    EXPECT_EQ(better_blas_kernels(old, false, false), "") << old;
  }
}

TEST(BlasLibrary, KeepsKernelsThatItHasChosenForTheProcessor) {
  for (const char* known : {"Sandybridge", "Haswell", "SkylakeX", "Cooperlake", "SapphireRapids", "Zen", "a later one"})
    EXPECT_EQ(better_blas_kernels(known, true, true), "") << known;
}

}  // namespace test_blas_library
}  // namespace aloni
