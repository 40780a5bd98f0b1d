// Cholesky on a device, if this build and this machine have one; otherwise the refusal.
#include "tasks/device_cholesky_cases.hpp"

#include <aloni/tasks/detail/device_kernels.hpp>

#include <limits>
#include <utility>

namespace aloni::tasks {
namespace test_device_cholesky {

TEST(DeviceCholesky, RefusesWhatItCannotServe) {
  test::expect_refusals();
  TileMatrix<double> a = test::device_matrix<double>(20, 10);
  if (const auto reason = detail::device_refusal()) {
    try {
      cholesky_on_device(a);
      FAIL() << "no error";
    } catch (const Unsupported& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr(*reason));
    }
  }
}

TEST(DeviceCholesky, HasTheFactorOfTheHost) {
  if (detail::device_refusal()) GTEST_SKIP() << *detail::device_refusal();
  for (const auto& [n, tile] : {std::pair<Index, views::TileShape>{1, 1}, {65, 16}, {200, {96, 48}}, {700, 256}}) {
    test::expect_factor_of_host<double>(n, tile, 3, 0);
    test::expect_factor_of_host<float>(n, tile, 2, 5);
  }
}

TEST(DeviceCholesky, NamesTheFirstPivotThatIsNotPositive) {
  if (detail::device_refusal()) GTEST_SKIP() << *detail::device_refusal();
  test::expect_named_pivot(-1000.);
  test::expect_named_pivot(-1000.F);
  test::expect_named_pivot(std::numeric_limits<double>::quiet_NaN());
}

TEST(DeviceCholesky, HasEqualBitsWithinLimits) {
  if (detail::device_refusal()) GTEST_SKIP() << *detail::device_refusal();
  test::expect_bits_within_limits<double>(1400, 128);
  test::expect_bits_within_limits<float>(1000, {256, 64});
  test::expect_refusal_below_the_least<double>(100);
  test::expect_named_pivot(-1000., {.bytes = 3 * test::device_tile_bytes<double>(10)});
}

}  // namespace test_device_cholesky
}  // namespace aloni::tasks
