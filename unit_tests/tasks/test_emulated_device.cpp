// Cholesky on an emulated device (emulated_cuda.hpp): everything but the libraries of the device themselves.
#include "support/sanitizer.hpp"
#include "tasks/device_cholesky_cases.hpp"
#include "tasks/emulated_cuda.hpp"

#include <aloni/tasks/detail/device_slots.hpp>
#include <aloni/tasks/task_order.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace aloni::tasks {
namespace test_emulated_device {

class EmulatedDevice : public testing::Test {
 protected:
  void SetUp() override { device = {}; }
  void TearDown() override {
    EXPECT_EQ(device.events, 0);
    EXPECT_EQ(device.page_locks, 0);
    EXPECT_EQ(device.allocations, 0);
    EXPECT_EQ(device.bytes, 0u);
    EXPECT_EQ(device.streams, 0);
    EXPECT_EQ(device.handles, 0);
  }
  aloni::test::EmulatedDevice& device = aloni::test::emulated_device();
};

TEST_F(EmulatedDevice, HasTheFactorOfTheHost) {
  for (const auto& [n, tile] : {std::pair<Index, views::TileShape>{1, 1},
                                {5, 8},
                                {7, 1},
                                {65, 16},
                                {130, 33},
                                {200, 48},
                                {200, {32, 16}},
                                {210, {60, 20}},
                                {100, {400, 20}}})
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

/// Work of the device comes as late as possible, or early and in random order between its streams.
TEST_F(EmulatedDevice, HasEqualBitsWithinLimits) {
  for (const std::uint64_t early_seed : {0, 1, 2, 3}) {
    if (aloni::test::sanitized && early_seed > 1) break;
    device.early_seed = early_seed;
    test::expect_bits_within_limits<double>(130, 16);
    test::expect_bits_within_limits<float>(130, {48, 16});
    test::expect_bits_within_limits<double>(70, {16, 8}, TilePart::whole);
    if (HasFailure()) FAIL() << "early_seed " << early_seed;
  }
}

TEST_F(EmulatedDevice, RefusesALimitBelowTheLeast) {
  test::expect_refusal_below_the_least<double>(16);
  test::expect_refusal_below_the_least<double>({21, 7});
  test::expect_refusal_below_the_least<float>(5);
}

/// Tasks one by one: the order of all events is known.
TEST_F(EmulatedDevice, CopiesTheTilesThatTheSimulatedCacheMoves) {
  constexpr Index n = 128, tile = 16, tile_bytes = tile * tile * 8;
  const CholeskyRule rule(views::TileDistribution(n, n, tile));
  for (const Eviction eviction : {Eviction::furthest, Eviction::lru})
    for (const Index slots : {27, 18, 9, 3})
      for (const std::uint64_t early_seed : {0, 7}) {
        device = {.early_seed = early_seed};
        TileMatrix<double> a = test::device_matrix<double>(n, tile);
        const MemoryLimit limit{.bytes = slots * tile_bytes, .eviction = eviction, .most_tasks = 1};
        const DeviceReport report = cholesky_on_device(a, {.workers = 2}, limit);
        const CacheOptions options{.eviction = eviction, .most_tasks = 1};
        const BlockOrder order = choose_order(rule, slots, options);
        EXPECT_EQ(report.block, order.block);
        EXPECT_EQ(report.slots, slots);
        const auto predicted = simulate(order.uses, slots, options, std::numeric_limits<Index>::max());
        EXPECT_EQ(report.swaps.tiles.loads, predicted->loads);
        EXPECT_EQ(report.swaps.tiles.write_backs, predicted->write_backs);
        EXPECT_EQ(static_cast<Index>(device.bytes_in), predicted->loads * tile_bytes);
        EXPECT_EQ(static_cast<Index>(device.bytes_out), predicted->write_backs * tile_bytes);
        EXPECT_EQ(report.swaps.bytes(), predicted->traffic() * tile_bytes);
      }
}

TEST_F(EmulatedDevice, CountsItsCopies) {
  TileMatrix<double> a = test::device_matrix<double>(130, 16);
  const DeviceReport report = cholesky_on_device(a, {.workers = 3}, {.bytes = a.bytes() / 4});
  EXPECT_EQ(report.swaps.bytes_in, static_cast<Index>(device.bytes_in));
  EXPECT_EQ(report.swaps.bytes_out, static_cast<Index>(device.bytes_out));
  EXPECT_GT(report.swaps.tiles.prefetches, 0);
}

/// The other tests see it if one of these waits is missing.
TEST_F(EmulatedDevice, ComputesWrongNumbersWithoutWaits) {
  constexpr Index n = 128, tile = 16;
  TileMatrix<double> expected = test::device_matrix<double>(n, tile);
  cholesky_on_device(expected, {.workers = 1});
  const auto is_wrong = [&](Index slots) {
    TileMatrix<double> a = test::device_matrix<double>(n, tile);
    try {
      cholesky_on_device(a, {.workers = 1}, {.bytes = slots * tile * tile * 8});
      return test::elements(a) != test::elements(expected);
    } catch (const FactorisationError&) {
      return true;
    }
  };
  for (const Index slots : {18, 9, 3}) {
    device = {};
    EXPECT_FALSE(is_wrong(slots));
    device.ignore_waits_of_kernels = true;
    EXPECT_TRUE(is_wrong(slots)) << slots;
    device.ignore_waits_of_kernels = false;
    device.ignore_waits_of_copies = true;
    EXPECT_TRUE(is_wrong(slots)) << slots;
  }
}

TEST_F(EmulatedDevice, LeavesAReserveFree) {
  constexpr Index n = 64, tile = 16, tile_bytes = tile * tile * 8;
  const auto run = [&](Index free_bytes, const MemoryLimit& limit = {}) {
    device.free_bytes = static_cast<std::size_t>(free_bytes);
    TileMatrix<double> a = test::device_matrix<double>(n, tile);
    return cholesky_on_device(a, {.workers = 2}, limit);
  };
  EXPECT_EQ(run(device_reserve + 10 * tile_bytes).slots, 10);
  EXPECT_FALSE(run(device_reserve + 10 * tile_bytes).block) << "all fit";
  const DeviceReport some = run(device_reserve + 10 * tile_bytes - 1);
  EXPECT_EQ(some.slots, 9);
  EXPECT_TRUE(some.block);
  EXPECT_EQ(run(device_reserve + 3 * tile_bytes).slots, 3);
  try {
    run(device_reserve + 3 * tile_bytes - 1);
    FAIL() << "no error";
  } catch (const Unsupported& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr(std::to_string(device_reserve + 3 * tile_bytes) + " free bytes"));
  }
  // A limit is the caller's own.
  EXPECT_EQ(run(4 * tile_bytes, {.bytes = 4 * tile_bytes}).slots, 4);
  try {
    run(4 * tile_bytes - 1, {.bytes = 4 * tile_bytes});
    FAIL() << "no error";
  } catch (const Unsupported& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("8191 free bytes"));
  }
  EXPECT_EQ(run(10 * tile_bytes, {.bytes = 20 * tile_bytes}).slots, 10) << "the tiles need less than the limit";
  EXPECT_THROW(run(10 * tile_bytes - 1, {.bytes = 20 * tile_bytes}), Unsupported);
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

TEST_F(EmulatedDevice, AFailedCallEndsTheRunWithinALimit) {
  const auto run = [&](int calls, int copies) {
    device.calls_to_failure = calls;
    device.copies_to_failure = copies;
    TileMatrix<double> a = test::device_matrix<double>(64, 16);
    return cholesky_on_device(a, {.workers = 2}, {.bytes = 4 * 2048});
  };
  for (int calls = 0; calls < 20; ++calls) EXPECT_THROW(run(calls, -1), Error) << calls;
  for (int copies = 0; copies < 20; ++copies) EXPECT_THROW(run(-1, copies), Error) << copies;  // 10 tiles, each twice
  run(20, -1);
  device.late_failure = true;
  EXPECT_THROW(run(-1, -1), Error) << "seen only by the last wait for copies";
}

/// The tile is loaded again while it is on its way out.
TEST_F(EmulatedDevice, LoadsATileThatHasJustBeenWrittenBack) {
  constexpr std::size_t bytes = 256;
  std::vector<std::byte> host(bytes, std::byte{1}), changed(bytes, std::byte{2}), found(bytes);
  detail::DeviceSlots slots("a test", [&](const TileId&) { return host.data(); });
  std::byte* const memory = slots.allocate(1, 2, 2 * bytes);
  const auto in_slot = [&](std::int32_t slot) {
    return detail::TileMove{
        .tile = {}, .slot = slot, .contents = {memory + bytes * static_cast<std::size_t>(slot), bytes}};
  };
  detail::DeviceQueue queue("a test");
  slots.load(in_slot(0));
  slots.await(queue, 0);
  queue.copy_to_device(memory, changed.data(), bytes);
  queue.finish();
  slots.write_back(in_slot(0));
  slots.load(in_slot(1));
  slots.await(queue, 0);
  queue.copy_to_host(found.data(), memory + bytes, bytes);
  queue.finish();
  EXPECT_EQ(found, changed);
  EXPECT_EQ(host, changed);
}

TEST_F(EmulatedDevice, NamesTheFirstPivotWithinALimit) {
  for (const Index slots : {3, 8}) test::expect_named_pivot(-1000., {.bytes = slots * 1024});
}

}  // namespace test_emulated_device
}  // namespace aloni::tasks
