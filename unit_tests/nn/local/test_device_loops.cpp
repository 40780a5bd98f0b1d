// The loops of a device, run on the execution space of the tests: each element once, and exact sums of integers.
#include <aloni/nn/local/detail/device_loops.hpp>
#include <aloni/nn/local/detail/normalisation.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <string>

#include "local_tensor.hpp"

namespace aloni::test {
namespace test_device_loops {

using namespace nn::local;
using namespace nn::local::detail;
using Exec = Kokkos::DefaultExecutionSpace;
using Mem = Exec::memory_space;

/// Samples, depth, height, width, channels; some with more channels than a team has lanes.
const std::array<Rows, 6> cases{Rows{1, 1, 1, 1, 1},   Rows{2, 1, 3, 5, 7},    Rows{3, 2, 4, 1, 33},
                                Rows{1, 1, 40, 9, 64}, Rows{2, 3, 1, 17, 100}, Rows{1, 1, 2, 70, 300}};

std::string text_of(const Rows& r) {
  return std::to_string(r.samples) + "x" + std::to_string(r.depth) + "x" + std::to_string(r.height) + "x" +
         std::to_string(r.width) + "x" + std::to_string(r.channels);
}

KOKKOS_INLINE_FUNCTION Index number_of(const Rows& r, const PixelPlace& p, Index c) {
  return (((p.n * r.depth + p.d) * r.height + p.h) * r.width + p.w) * r.channels + c;
}

struct Count {
  Rows rows;
  Kokkos::View<int*, Mem> visits;
  KOKKOS_FUNCTION Index constants(Index c) const { return 3 * c + 1; }
  KOKKOS_FUNCTION void pixel(const PixelPlace& p, Index c, Index k) const {
    visits(number_of(rows, p, c)) += k == 3 * c + 1 ? 1 : 100;
  }
};

TEST(DeviceLoops, VisitEachElementOnceWithTheConstantsOfItsChannel) {
  for (const Rows& rows : cases) {
    const Kokkos::View<int*, Mem> visits("aloni::test::visits", static_cast<std::size_t>(rows.elements()));
    for_each_pixel_of_channel(test_space(), "aloni::test::count", Count{rows, visits});
    wait(test_space());
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), visits);
    for (std::size_t i = 0; i < host.extent(0); ++i) ASSERT_EQ(host(i), 1) << text_of(rows) << ", element " << i;
  }
}

struct Add {
  Rows rows;
  Shares shares;
  Kokkos::View<double*, Mem> partial;
  KOKKOS_FUNCTION Index constants(Index c) const { return c; }
  KOKKOS_FUNCTION void add(const PixelPlace& p, Index c, Index k, double& first, double& second) const {
    first += static_cast<double>(number_of(rows, p, c) % 11);
    second += static_cast<double>(k);
  }
};

TEST(DeviceLoops, AddTheChannelsOfEachShare) {
  for (const Rows& rows : cases) {
    for (const Index segments : {Index{1}, rows.samples}) {
      const Shares shares = shares_of(segments, rows.rows() / segments);
      const Kokkos::View<double*, Mem> partial("aloni::test::partial",
                                               static_cast<std::size_t>(shares.total() * 2 * rows.channels));
      const Index threads = runs_on_host<Exec> ? 1 : 512;
      sum_channels_of_shares(test_space(), "aloni::test::sums", Add{rows, shares, partial}, threads);
      wait(test_space());
      const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), partial);
      for (Index share = 0; share < shares.total(); ++share)
        for (Index c = 0; c < rows.channels; ++c) {
          double first = 0, second = 0;
          for (Index pixel = shares.begin(share) * rows.width; pixel < shares.end(share) * rows.width; ++pixel) {
            first += static_cast<double>((pixel * rows.channels + c) % 11);
            second += static_cast<double>(c);
          }
          const auto at = static_cast<std::size_t>(share * 2 * rows.channels + c);
          ASSERT_EQ(host(at), first) << text_of(rows) << ", share " << share << ", channel " << c;
          ASSERT_EQ(host(at + static_cast<std::size_t>(rows.channels)), second) << text_of(rows);
        }
    }
  }
}

}  // namespace test_device_loops
}  // namespace aloni::test
