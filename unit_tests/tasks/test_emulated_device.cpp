// Cholesky on an emulated device (emulated_cuda.hpp): everything but the libraries of the device themselves.
#include "tasks/device_cholesky_cases.hpp"
#include "tasks/emulated_cuda.hpp"

#include <aloni/tasks/detail/device_kernels.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace aloni::tasks {
namespace test_emulated_device {

class EmulatedDevice : public testing::Test {
 protected:
  void SetUp() override { device = {}; }
  void TearDown() override {
    EXPECT_EQ(device.allocations, 0);
    EXPECT_EQ(device.bytes, 0u);
    EXPECT_EQ(device.streams, 0);
    EXPECT_EQ(device.handles, 0);
  }
  aloni::test::EmulatedDevice& device = aloni::test::emulated_device();
};

TEST_F(EmulatedDevice, HasTheFactorOfTheHost) {
  for (const auto& [n, tile] : {std::pair<Index, Index>{1, 1}, {5, 8}, {7, 1}, {65, 16}, {130, 33}, {200, 48}})
    for (const int workers : {1, 4}) {
      test::expect_factor_of_host<double>(n, tile, workers, 0);
      test::expect_factor_of_host<float>(n, tile, workers, 3 + static_cast<std::uint64_t>(n));
    }
  TileMatrix<double> empty(views::TileDistribution(0, 0, 8), TilePart::lower);
  EXPECT_EQ(cholesky_on_device(empty, {.workers = 2}).device_bytes, 0u);
}

TEST_F(EmulatedDevice, NamesTheFirstPivotThatIsNotPositive) {
  test::expect_named_pivot(-1000.);
  test::expect_named_pivot(-1000.F);
  test::expect_named_pivot(std::numeric_limits<double>::quiet_NaN());
}

TEST_F(EmulatedDevice, RefusesAMatrixThatDoesNotFit) {
  TileMatrix<double> a = test::device_matrix<double>(64, 16);
  device.free_bytes = 10 * 16 * 16 * 8 - 1;
  try {
    cholesky_on_device(a, {.workers = 2});
    FAIL() << "no error";
  } catch (const Unsupported& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("20480 bytes"));
    EXPECT_THAT(e.what(), testing::HasSubstr("20479 free bytes"));
  }
  ++device.free_bytes;
  EXPECT_EQ(cholesky_on_device(a, {.workers = 2}).device_bytes, 20480u);
}

TEST_F(EmulatedDevice, RefusesAProcessWithoutADevice) {
  test::expect_refusals();
  device.devices = 0;
  TileMatrix<double> a = test::device_matrix<double>(20, 10);
  EXPECT_THROW(cholesky_on_device(a), Unsupported);
}

/// Whatever call fails, the error arrives, and streams and memory are freed.
TEST_F(EmulatedDevice, AFailedCallEndsTheRun) {
  for (int calls = 0; calls < 20; ++calls) {  // 4 tiles in a column: 20 tasks
    device.calls_to_failure = calls;
    TileMatrix<double> a = test::device_matrix<double>(64, 16);
    const std::vector<double> before = test::elements(a);
    EXPECT_THROW(cholesky_on_device(a, {.workers = 2}), Error) << calls;
    EXPECT_EQ(test::elements(a), before);
  }
  device.calls_to_failure = 20;
  TileMatrix<double> a = test::device_matrix<double>(64, 16);
  cholesky_on_device(a, {.workers = 2});
}

}  // namespace test_emulated_device
}  // namespace aloni::tasks
