// The loops of a device, run on the execution space of the tests: each element once, and exact results. On a host the
// threads of a team run one after the other.
#include <aloni/core/bfloat16.hpp>
#include <aloni/nn/local/detail/batch_norm_kernels.hpp>
#include <aloni/nn/local/detail/device_loops.hpp>
#include <aloni/nn/local/detail/elementwise.hpp>
#include <aloni/nn/local/detail/normalisation.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "local_tensor.hpp"

namespace aloni::test {
namespace test_device_loops {

using namespace nn::local;
using namespace nn::local::detail;
using Exec = Kokkos::DefaultExecutionSpace;
using Mem = Exec::memory_space;
using comm::bfloat16;

/// Samples, depth, height, width, channels; some with more packs than a team has lanes.
const std::array<Rows, 8> cases{Rows{1, 1, 1, 1, 1},    Rows{2, 1, 3, 5, 7},    Rows{3, 2, 4, 1, 33},
                                Rows{1, 1, 40, 9, 64},  Rows{2, 3, 1, 17, 100}, Rows{1, 1, 2, 70, 300},
                                Rows{2, 1, 16, 3, 512}, Rows{1, 1, 90, 40, 24}};

std::string text_of(const Rows& r) {
  return std::to_string(r.samples) + "x" + std::to_string(r.depth) + "x" + std::to_string(r.height) + "x" +
         std::to_string(r.width) + "x" + std::to_string(r.channels);
}

KOKKOS_INLINE_FUNCTION Index number_of(const Rows& r, const PixelPlace& p, Index c) {
  return (((p.n * r.depth + p.d) * r.height + p.h) * r.width + p.w) * r.channels + c;
}

/// run(N) for each size of packs of the channels.
template <class Run>
void for_each_size(Index channels, const Run& run) {
  run(std::integral_constant<int, 1>());
  if (channels % 2 == 0) run(std::integral_constant<int, 2>());
  if (channels % 4 == 0) run(std::integral_constant<int, 4>());
  if (channels % 8 == 0) run(std::integral_constant<int, 8>());
}

struct Count {
  using Element = float;
  using Constants = Index;
  static constexpr int tensors = 1;
  template <int N>
  struct Values {
    PixelPlace place;
  };
  Rows rows;
  Kokkos::View<int*, Mem> visits;
  KOKKOS_FUNCTION Index constants(Index c) const { return 3 * c + 1; }
  template <int N>
  KOKKOS_FUNCTION Values<N> read(const PixelPlace& p, Index) const {
    return {p};
  }
  template <int N>
  KOKKOS_FUNCTION void write(const PixelPlace& p, Index c, const Values<N>& v, const Index (&k)[N]) const {
    const bool same = number_of(rows, v.place, c) == number_of(rows, p, c);
    for (int j = 0; j < N; ++j) visits(number_of(rows, p, c + j)) += same && k[j] == 3 * (c + j) + 1 ? 1 : 100;
  }
};

TEST(DeviceLoops, VisitEachElementOnceWithTheConstantsOfItsChannel) {
  for (const Rows& rows : cases) {
    for_each_size(rows.channels, [&](auto n) {
      const Kokkos::View<int*, Mem> visits("aloni::test::visits", static_cast<std::size_t>(rows.elements()));
      for_each_pixel_of_channels<n()>(test_space(), "aloni::test::count", Count{rows, visits});
      wait(test_space());
      const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), visits);
      for (std::size_t i = 0; i < host.extent(0); ++i)
        ASSERT_EQ(host(i), 1) << text_of(rows) << ", packs of " << n() << ", element " << i;
    });
  }
}

/// sum_channels_of_shares. On a host the threads of a team run one after the other, up to the barrier and behind it.
template <int N, class Kernel>
void sum_channels(const Kernel& kernel) {
  if constexpr (!runs_on_host<Exec>) {
    sum_channels_of_shares<N>(test_space(), "aloni::test::sums", kernel);
    wait(test_space());
  } else {
    using Sums = ChannelSumsOfShare<Exec, Kernel, N>;
    const TeamTable table(threads_of_sums, kernel.rows.channels / N, Kernel::most_lanes);
    const Sums sums{kernel, table, threads_of_sums};
    EXPECT_LE(Sums::scratch_bytes(threads_of_sums), std::ptrdiff_t{1} << (N > 4 ? 15 : 14));
    std::vector<double> scratch(static_cast<std::size_t>(Sums::scratch_bytes(threads_of_sums)) / sizeof(double));
    for (Index team = 0; team < kernel.shares.total() * table.blocks; ++team) {
      std::ranges::fill(scratch, 1e300);  // what another team has left
      for (Index t = 0; t < threads_of_sums; ++t) sums.add_lines(team, t, scratch.data());
      for (Index t = 0; t < threads_of_sums; ++t) sums.add_up(team, t, scratch.data());
    }
  }
}

struct Add {
  using Element = double;
  using Constants = Index;
  template <int N>
  struct Values {
    PixelPlace place;
    Index channel;
  };
  static constexpr int sums = 2, tensors = 1;
  static constexpr Index most_lanes = 32;
  Rows rows;
  Shares shares;
  Kokkos::View<double*, Mem> partial;
  KOKKOS_FUNCTION Index constants(Index c) const { return c; }
  template <int N>
  KOKKOS_FUNCTION Values<N> read(const PixelPlace& p, Index c) const {
    return {p, c};
  }
  template <int N>
  KOKKOS_FUNCTION void add(const Values<N>& v, const Index (&k)[N], double (&sum)[2][N]) const {
    for (int j = 0; j < N; ++j) {
      sum[0][j] += static_cast<double>(number_of(rows, v.place, v.channel + j) % 11);
      sum[1][j] += static_cast<double>(k[j]);
    }
  }
  KOKKOS_FUNCTION void store(Index share, Index s, Index c, double sum) const {
    partial((share * 2 + s) * rows.channels + c) += sum;  // each once
  }
};

TEST(DeviceLoops, AddTheChannelsOfEachShare) {
  for (const Rows& rows : cases) {
    for (const Index segments : {Index{1}, rows.samples}) {
      const Shares shares = shares_of(segments, rows.rows() / segments, most_shares(false, rows.channels));
      for_each_size(rows.channels, [&](auto n) {
        const Kokkos::View<double*, Mem> partial("aloni::test::partial",
                                                 static_cast<std::size_t>(shares.total() * 2 * rows.channels));
        sum_channels<n()>(Add{rows, shares, partial});
        const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), partial);
        for (Index share = 0; share < shares.total(); ++share)
          for (Index c = 0; c < rows.channels; ++c) {
            double first = 0, second = 0;
            for (Index pixel = shares.begin(share) * rows.width; pixel < shares.end(share) * rows.width; ++pixel) {
              first += static_cast<double>((pixel * rows.channels + c) % 11);
              second += static_cast<double>(c);
            }
            const auto at = static_cast<std::size_t>(share * 2 * rows.channels + c);
            ASSERT_EQ(host(at), first) << text_of(rows) << ", packs of " << n() << ", share " << share;
            ASSERT_EQ(host(at + static_cast<std::size_t>(rows.channels)), second) << text_of(rows);
          }
      });
    }
  }
}

TEST(DeviceLoops, AddTheSharesOfEachSegment) {
  for (const Index segments : {1, 3}) {
    for (const Index count : {1, 7, 512}) {
      for (const Index values : {2, 10, 128}) {
        LocalArray<double> partial(segments * count * values), total(segments * values);
        Index next = 0;
        partial.fill([&] { return next++ % 13; });
        sum_channels<1>(AddShares<Exec>{.rows = {segments, 1, 1, count, values}, .partial = partial, .total = total});
        total.download();
        for (Index i = 0; i < segments * values; ++i) {
          double sum = 0;
          for (Index s = 0; s < count; ++s) sum += partial((i / values * count + s) * values + i % values);
          ASSERT_EQ(total(i), sum) << segments << " segments, " << count << " shares, value " << i;
        }
      }
    }
  }
}

constexpr Placement aligned{.before = {0, 0, 1, 2, 0}, .after = {0, 0, 1, 0, 8}};
constexpr Placement dense{};

TEST(DeviceLoops, PacksNeedAlignedChannelsSideBySide) {
  const auto has = [](std::array<Index, 5> extents, const Placement& placement) {
    return detail::has_packs<4>(LocalTensor<float>(extents, placement).view());
  };
  EXPECT_TRUE(has({2, 1, 3, 5, 8}, dense));
  EXPECT_TRUE(has({2, 1, 3, 5, 8}, aligned));
  EXPECT_FALSE(has({2, 1, 3, 5, 6}, dense));
  EXPECT_FALSE(has({2, 1, 3, 5, 8}, {.after = {0, 0, 0, 0, 2}}));  // pixels 10 elements apart
  EXPECT_FALSE(has({2, 1, 3, 5, 8}, {.before = {0, 0, 0, 0, 1}, .after = {0, 0, 0, 0, 3}}));  // the first one
  EXPECT_FALSE(has({2, 1, 3, 5, 8}, {.channels_first = true}));
  EXPECT_TRUE(has({1, 1, 1, 1, 4}, {.after = {0, 0, 0, 0, 3}}));  // no second pixel
  EXPECT_TRUE(detail::has_packs<4>(Tensor<float, Exec>()));
}

template <class T>
class DeviceLoopsOf : public testing::Test {};
using Types = testing::Types<float, double, bfloat16>;
TYPED_TEST_SUITE(DeviceLoopsOf, Types);

// All numbers are small multiples of powers of two, so no operation rounds, and results do not depend on the compiler.
TYPED_TEST(DeviceLoopsOf, NormaliseAsOnePixelAfterTheOther) {
  using T = TypeParam;
  using Real = nn::parameter_type_t<T>;
  constexpr int most = channels_of_thread<T>;
  std::mt19937 random(test_seed());
  for (const Placement& placement : {dense, aligned}) {
    for (const Index channels : {Index{most}, Index{8 * most}}) {
      const std::array<Index, 5> extents{2, 1, 5, 7, channels};
      LocalTensor<T> x(extents, placement), dy(extents, placement), dx(extents, placement);
      LocalTensor<T> summand(extents, placement), sum(extents, placement);
      x.fill_integers(random, 4);
      dy.fill_integers(random, 4);
      summand.fill_integers(random, 4);
      LocalArray<double> mean(channels), inv_std(channels, 0.5), sums(2 * channels);
      LocalArray<Real> gamma(channels, Real(2)), beta(channels, Real(0.5));
      std::uniform_int_distribution<int> integers(-2, 2);
      mean.fill([&] { return integers(random); });
      sums.fill([&] { return 32 * integers(random); });
      const EachNormalised<T, Exec, BatchNormGradient<Real, true>> kernel{
          {2, 1, 5, 7, channels}, {mean, inv_std, gamma, beta, sums, 1.0 / 64}, x, dy, dx};
      ASSERT_TRUE(kernel.template has_packs<most>());
      for_each_pixel_of_channels(test_space(), "aloni::test::normalise", kernel);
      const EachNormalised<T, Exec, BatchNormGradient<Real, true, true>> adding{
          {2, 1, 5, 7, channels}, {mean, inv_std, gamma, beta, sums, 1.0 / 64}, x, dy, sum, summand};
      ASSERT_TRUE(adding.template has_packs<most>());
      for_each_pixel_of_channels(test_space(), "aloni::test::normalise", adding);
      wait(test_space());
      dx.download();
      sum.download();
      dx.for_each([&](Index n, Index d, Index h, Index w, Index c) {
        const double v = static_cast<double>(x(n, d, h, w, c)) - mean(c);  // scale = gamma * inv_std = 1
        const double g = v + 0.5 > 0 ? static_cast<double>(dy(n, d, h, w, c)) : 0;
        const double expected = g - sums(c) / 64 - v / 2 * sums(channels + c) / 64;
        ASSERT_EQ(dx(n, d, h, w, c), static_cast<T>(expected));
        ASSERT_EQ(sum(n, d, h, w, c), static_cast<T>(expected + static_cast<double>(summand(n, d, h, w, c))));
      });
      EXPECT_EQ(dx.damaged() + sum.damaged(), 0);
    }
  }
}

TYPED_TEST(DeviceLoopsOf, SumIntegersExactly) {
  using T = TypeParam;
  using Real = nn::parameter_type_t<T>;
  constexpr int most = channels_of_thread<T>;
  std::mt19937 random(test_seed());
  const Index channels = 3 * most;
  const std::array<Index, 5> extents{2, 1, 40, 7, channels};
  LocalTensor<T> x(extents, aligned), dy(extents, aligned);
  x.fill_integers(random, 9);
  dy.fill_integers(random, 9);
  LocalArray<double> mean(channels, 2), inv_std(channels, 0.5);
  LocalArray<Real> gamma(channels, Real(1)), beta(channels, Real(-1));
  const Shares shares = shares_of(1, 80, most_shares(false, channels));
  LocalArray<double> partial(shares.total() * 2 * channels);
  const auto run = [&](auto kernel) {
    ASSERT_TRUE(kernel.template has_packs<most>());
    sum_channels<most>(kernel);
    partial.download();
  };
  const auto total = [&](Index s, Index c) {
    double sum = 0;
    for (Index i = 0; i < shares.total(); ++i) sum += partial((2 * i + s) * channels + c);
    return sum;
  };
  const Rows rows{2, 1, 40, 7, channels};
  const auto expect = [&](const char* what, const auto& first_of, const auto& second_of) {
    std::vector<double> first(static_cast<std::size_t>(channels)), second(first);
    x.for_each([&](Index n, Index d, Index h, Index w, Index c) {
      const auto v = static_cast<double>(x(n, d, h, w, c)), g = static_cast<double>(dy(n, d, h, w, c));
      first[static_cast<std::size_t>(c)] += first_of(v, g);
      second[static_cast<std::size_t>(c)] += second_of(v, g);
    });
    for (Index c = 0; c < channels; ++c) {
      ASSERT_EQ(total(0, c), first[static_cast<std::size_t>(c)]) << what;
      ASSERT_EQ(total(1, c), second[static_cast<std::size_t>(c)]) << what;
    }
  };
  run(BatchNormSums<T, Exec, false, false>{rows, shares, {}, x, {}, partial});
  expect(
      "statistics", [](double v, double) { return v; }, [](double v, double) { return v * v; });
  // y = (x - 2) / 2 - 1 is positive above 4.
  run(BatchNormSums<T, Exec, true, true>{rows, shares, {mean, inv_std, gamma, beta}, x, dy, partial});
  expect(
      "gradients with ReLU", [](double v, double g) { return v > 4 ? g : 0; },
      [](double v, double g) { return v > 4 ? g * (v - 2) / 2 : 0; });
  const PerChannel statistics;
  run(PartialSums<T, Exec, true, PerChannel>{rows, shares, statistics, x, dy, mean, inv_std, partial});
  expect(
      "gradients", [](double, double g) { return g; }, [](double v, double g) { return g * (v - 2) / 2; });
}

template <class T>
struct AddTwice {
  KOKKOS_FUNCTION T operator()(T a, T b) const { return static_cast<T>(a + b + b); }
};

TYPED_TEST(DeviceLoopsOf, ComputePacksAndTheRestOfAnArray) {
  using T = TypeParam;
  constexpr int most = most_in_pack<T>;
  std::mt19937 random(test_seed());
  for (const Index elements : {Index{1}, Index{most}, Index{5 * most - 1}, Index{64 * most + 1}}) {
    const std::array<Index, 5> extents{1, 1, 1, 1, elements};
    LocalTensor<T> a(extents), b(extents), out(extents, {.after = {0, 0, 0, 0, 32}});
    a.fill_integers(random, 9);
    b.fill_integers(random, 9);
    const DenseElements<AddTwice<T>, T, T, most> kernel{
        {}, out.view().data(), a.view().data(), b.view().data(), elements};
    Kokkos::parallel_for("aloni::test::packs", Range<Exec>(test_space(), 0, (elements + most - 1) / most), kernel);
    wait(test_space());
    out.download();
    out.for_each([&](auto... i) { ASSERT_EQ(out(i...), AddTwice<T>()(a(i...), b(i...))); });
    EXPECT_EQ(out.damaged(), 0) << elements << " elements";
  }
}

TYPED_TEST(DeviceLoopsOf, ComputePacksOfChannelsWithGhostsAround) {
  using T = TypeParam;
  constexpr int most = most_in_pack<T>;
  std::mt19937 random(test_seed());
  const std::array<Index, 5> extents{2, 3, 4, 5, 3 * most};
  LocalTensor<T> a(extents, aligned), b(extents), out(extents, aligned);
  a.fill_integers(random, 9);
  b.fill_integers(random, 9);
  EachPack<AddTwice<T>, Tensor<T, Exec>, Tensor<const T, Exec>, most> kernel{{2, 3, 4, 5, 3}, {}, out, a, b};
  Kokkos::parallel_for("aloni::test::packs", Range<Exec>(test_space(), 0, kernel.rows.elements()), kernel);
  wait(test_space());
  out.download();
  out.for_each([&](auto... i) { ASSERT_EQ(out(i...), AddTwice<T>()(a(i...), b(i...))); });
  EXPECT_EQ(out.damaged(), 0);
}

}  // namespace test_device_loops
}  // namespace aloni::test
