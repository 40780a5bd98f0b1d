#pragma once
// All values of a set of parameters on the host, as Parameters gathers them.
#include <Kokkos_Core.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace aloni::nn::test {

using HostFlat = Kokkos::View<double*, Kokkos::HostSpace>;

inline double largest_difference(const HostFlat& a, const HostFlat& b) {
  EXPECT_EQ(a.extent(0), b.extent(0));
  double largest = 0;
  for (std::size_t i = 0; i < a.extent(0); ++i) largest = std::max(largest, std::abs(a(i) - b(i)));
  return largest;
}

}  // namespace aloni::nn::test
