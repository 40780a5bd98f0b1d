#pragma once
// What test_device_cholesky.cpp checks on a real device, and test_emulated_device.cpp on an emulated one.
#include <aloni/core/error.hpp>
#include <aloni/core/host_random.hpp>
#include <aloni/tasks/cholesky.hpp>
#include <aloni/tasks/device_cholesky.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace aloni::tasks::test {

inline double device_element(Index i, Index j, Index n) {
  const auto number = static_cast<std::uint64_t>(std::max(i, j)) << 32 | static_cast<std::uint64_t>(std::min(i, j));
  return 2 * random::host_uniform(7, 0, number) - 1 + (i == j ? static_cast<double>(n) : 0);
}

template <class T>
TileMatrix<T> device_matrix(Index n, views::TileShape tile, TilePart part = TilePart::lower) {
  TileMatrix<T> a(views::TileDistribution(n, n, tile), part);
  a.fill([n](Index i, Index j) { return device_element(i, j, n); });
  return a;
}

template <class T>
std::vector<T> elements(const TileMatrix<T>& a) {
  const Index n = a.distribution().rows();
  std::vector<T> all(static_cast<std::size_t>(n * n));
  a.copy_to(all.data(), n);
  return all;
}

/// The factors of device and host agree up to their rounding.
template <class T>
void expect_factor_of_host(Index n, views::TileShape tile, int workers, std::uint64_t seed) {
  SCOPED_TRACE(std::to_string(n) + " rows in tiles of " + to_string(tile));
  TileMatrix<T> a = device_matrix<T>(n, tile), b = device_matrix<T>(n, tile);
  const DeviceReport report = cholesky_on_device(a, {.workers = workers, .schedule_seed = seed});
  cholesky(b, {.workers = 1});
  Index tasks = 0;
  const CholeskyRule rule(a.distribution());
  for (const TileId& t : rule.tiles()) tasks += rule.writes(t);
  EXPECT_EQ(report.run.tasks, tasks);
  EXPECT_GE(report.device_bytes, static_cast<std::size_t>(n * (n + 1) / 2) * sizeof(T));
  const std::vector<T> l = elements(a), expected = elements(b);
  const double bound = 8 * static_cast<double>(n) * std::numeric_limits<T>::epsilon();
  for (Index j = 0; j < n; ++j)
    for (Index i = j; i < n; ++i) {
      const auto at = static_cast<std::size_t>(j * n + i);
      ASSERT_NEAR(static_cast<double>(l[at]), static_cast<double>(expected[at]), bound) << i << ", " << j;
    }
}

/// A matrix that is not positive definite: the tile and the column are named. Without a limit the matrix is as before.
template <class T>
void expect_named_pivot(T bad_element, const MemoryLimit& limit = {}) {
  constexpr Index n = 50, tile = 10, bad = 23;
  TileMatrix<T> a = device_matrix<T>(n, tile);
  a.tile({2, 2})[3 * tile + 3] = bad_element;
  const std::vector<T> before = elements(a);
  try {
    cholesky_on_device(a, {.workers = 3}, limit);
    FAIL() << "no error";
  } catch (const FactorisationError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("tile (2, 2), column " + std::to_string(bad)));
  }
  EXPECT_TRUE(limit.bytes > 0 || std::memcmp(elements(a).data(), before.data(), before.size() * sizeof(T)) == 0);
}

/// Bytes of a tile on the device, in whole multiples of the alignment.
template <class T>
Index device_tile_bytes(const views::TileShape& tile) {
  return ceil_div(tile.rows * tile.columns * static_cast<Index>(sizeof(T)), 256) * 256;
}

/// Bytes of all lower tiles.
template <class T>
Index lower_bytes(const TileMatrix<T>& a) {
  const views::TileDistribution& d = a.distribution();
  Index bytes = 0;
  for (const views::Tile& t : d.tiles_of(0))
    if (d.is_lower(t)) bytes += d.elements(t) * static_cast<Index>(sizeof(T));
  return bytes;
}

/// A run within a limit has the bits of one without.
template <class T>
void expect_bits_within_limits(Index n, const views::TileShape& tile, TilePart part = TilePart::lower) {
  TileMatrix<T> expected = device_matrix<T>(n, tile, part);
  const DeviceReport all = cholesky_on_device(expected, {.workers = 2});
  EXPECT_FALSE(all.block);
  EXPECT_EQ(all.compulsory_bytes, 2 * lower_bytes(expected));
  const Index least = 3 * device_tile_bytes<T>(tile), bytes = static_cast<Index>(all.device_bytes);
  for (const int percent : {75, 50, 25, 0})
    for (const int workers : {1, 3})
      for (const std::uint64_t seed : {0, 5}) {
        TileMatrix<T> a = device_matrix<T>(n, tile, part);
        const MemoryLimit limit{.bytes = std::max(least, bytes * percent / 100),
                                .eviction = seed == 5 ? Eviction::lru : Eviction::furthest};
        const DeviceReport report = cholesky_on_device(a, {.workers = workers, .schedule_seed = seed}, limit);
        ASSERT_EQ(elements(a), elements(expected)) << n << " rows, " << percent << " %, " << workers << " workers";
        EXPECT_EQ(report.run.tasks, all.run.tasks);
        EXPECT_LE(static_cast<Index>(report.device_bytes), limit.bytes);
        EXPECT_EQ(static_cast<Index>(report.device_bytes), report.slots * device_tile_bytes<T>(tile));
        EXPECT_TRUE(report.block);
        EXPECT_EQ(report.compulsory_bytes, all.compulsory_bytes);
        EXPECT_GE(report.swaps.bytes_in, lower_bytes(a));
        EXPECT_GE(report.swaps.bytes_out, lower_bytes(a));
      }
}

template <class T>
void expect_refusal_below_the_least(const views::TileShape& tile) {
  TileMatrix<T> a = device_matrix<T>(5 * tile.rows, tile);
  const std::vector<T> before = elements(a);
  const Index least = 3 * device_tile_bytes<T>(tile);
  try {
    cholesky_on_device(a, {.workers = 2}, {.bytes = least - 1});
    FAIL() << "no error";
  } catch (const InvalidArgument& e) {
    EXPECT_EQ(e.argument(), "memory limit");
    EXPECT_THAT(e.what(), testing::HasSubstr("at least " + std::to_string(least) + " bytes, the 3 tiles of one task"));
  }
  EXPECT_EQ(elements(a), before);
  EXPECT_EQ(cholesky_on_device(a, {.workers = 2}, {.bytes = least}).slots, 3);
}

inline void expect_refusals() {
  TileMatrix<double> a = device_matrix<double>(20, 10);
  EXPECT_THROW(cholesky_on_device(a, {.workers = -1}), InvalidArgument);
  EXPECT_THROW(cholesky_on_device(a, {}, {.bytes = -1}), InvalidArgument);
  EXPECT_THROW(cholesky_on_device(a, {.owns = [](const TileId&) { return true; }}), InvalidArgument);
  TileMatrix<double> oblong(views::TileDistribution(20, 10, 10));
  EXPECT_THROW(cholesky_on_device(oblong), InvalidArgument);
  TileMatrix<double> two_ranks(views::TileDistribution(20, 20, 10, {1, 2}));
  EXPECT_THROW(cholesky_on_device(two_ranks), Unsupported);
}

}  // namespace aloni::tasks::test
