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
TileMatrix<T> device_matrix(Index n, Index tile) {
  TileMatrix<T> a(views::TileDistribution(n, n, tile), TilePart::lower);
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
void expect_factor_of_host(Index n, Index tile, int workers, std::uint64_t seed) {
  SCOPED_TRACE(std::to_string(n) + " rows in tiles of " + std::to_string(tile));
  TileMatrix<T> a = device_matrix<T>(n, tile), b = device_matrix<T>(n, tile);
  const DeviceReport report = cholesky_on_device(a, {.workers = workers, .schedule_seed = seed});
  cholesky(b, {.workers = 1});
  const Index tiles = a.distribution().tile_rows();
  EXPECT_EQ(report.run.tasks, tiles * (tiles + 1) * (tiles + 2) / 6);
  EXPECT_GE(report.device_bytes, static_cast<std::size_t>(n * (n + 1) / 2) * sizeof(T));
  const std::vector<T> l = elements(a), expected = elements(b);
  const double bound = 8 * static_cast<double>(n) * std::numeric_limits<T>::epsilon();
  for (Index j = 0; j < n; ++j)
    for (Index i = j; i < n; ++i) {
      const auto at = static_cast<std::size_t>(j * n + i);
      ASSERT_NEAR(static_cast<double>(l[at]), static_cast<double>(expected[at]), bound) << i << ", " << j;
    }
}

/// A matrix that is not positive definite: the tile and the column are named, and the matrix is as before.
template <class T>
void expect_named_pivot(T bad_element) {
  constexpr Index n = 50, tile = 10, bad = 23;
  TileMatrix<T> a = device_matrix<T>(n, tile);
  a.tile({2, 2})[3 * tile + 3] = bad_element;
  const std::vector<T> before = elements(a);
  try {
    cholesky_on_device(a, {.workers = 3});
    FAIL() << "no error";
  } catch (const FactorisationError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("tile (2, 2), column " + std::to_string(bad)));
  }
  EXPECT_EQ(std::memcmp(elements(a).data(), before.data(), before.size() * sizeof(T)), 0);
}

inline void expect_refusals() {
  TileMatrix<double> a = device_matrix<double>(20, 10);
  EXPECT_THROW(cholesky_on_device(a, {.workers = -1}), InvalidArgument);
  EXPECT_THROW(cholesky_on_device(a, {.owns = [](const TileId&) { return true; }}), InvalidArgument);
  TileMatrix<double> oblong(views::TileDistribution(20, 10, 10));
  EXPECT_THROW(cholesky_on_device(oblong), InvalidArgument);
  TileMatrix<double> two_ranks(views::TileDistribution(20, 20, 10, {1, 2}));
  EXPECT_THROW(cholesky_on_device(two_ranks), Unsupported);
}

}  // namespace aloni::tasks::test
