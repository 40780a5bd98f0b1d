// Batch normalisation's local parts against plain loops in double, and its gradients by finite differences.
#include <aloni/core/error.hpp>
#include <aloni/nn/local/batch_norm.hpp>
#include <aloni/nn/local/detail/batch_norm_kernels.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "local_tensor.hpp"

namespace aloni::test {
namespace test_local_batch_norm {

using namespace nn::local;
using Exec = Kokkos::DefaultExecutionSpace;

constexpr Placement ghosted{.before = {0, 0, 1, 2, 0}, .after = {0, 0, 1, 0, 0}};

template <class T>
class LocalBatchNorm : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(LocalBatchNorm, Types);

TYPED_TEST(LocalBatchNorm, SumsAreExactOnIntegersForAnyNumberOfRows) {
  using T = TypeParam;
  const Exec exec = test_space();
  std::mt19937 random(test_seed());
  for (Index samples : {1, 2, 7}) {
    for (Index height : {1, 3, 40}) {
      for (Index channels : {1, 3, 17}) {
        const std::array<Index, 5> extents{samples, 2, height, 5, channels};
        LocalTensor<T> x(extents, ghosted), dy(extents, ghosted);
        x.fill_integers(random, 9);
        dy.fill_integers(random, 9);
        LocalArray<double> sums(2 * channels, 5), mean(channels, 2), inv_std(channels, 0.5), gradients(2 * channels, 5);
        BatchNormReduction<T> reduction(exec, samples, 2, height, channels);
        reduction.statistics(exec, x, sums);
        reduction.gradients(exec, x, dy, mean, inv_std, gradients);
        wait(exec);
        sums.download();
        gradients.download();
        for (Index c = 0; c < channels; ++c) {
          double sum = 0, squares = 0, g = 0, gx = 0;
          x.for_each([&](Index n, Index d, Index h, Index w, Index k) {
            if (k != c) return;
            const double v = static_cast<double>(x(n, d, h, w, k)), e = static_cast<double>(dy(n, d, h, w, k));
            sum += v;
            squares += v * v;
            g += e;
            gx += e * (v - 2) * 0.5;
          });
          ASSERT_EQ(sums(c), sum);
          ASSERT_EQ(sums(channels + c), squares);
          ASSERT_EQ(gradients(c), g);
          ASSERT_EQ(gradients(channels + c), gx);
        }
      }
    }
  }
}

/// The kernels with a ReLU give the bits of those without it and of a ReLU after or before them.
TYPED_TEST(LocalBatchNorm, ReluBehindItIsTheSameAsReluAlone) {
  using T = TypeParam;
  const Exec exec = test_space();
  std::mt19937 random(test_seed());
  for (const Index channels : {1, 17, 1030}) {
    const std::array<Index, 5> extents{2, 1, 9, 3, channels};
    LocalTensor<T> x(extents, ghosted), dy(extents, ghosted), masked(extents), y(extents), rectified(extents, ghosted);
    LocalTensor<T> dx(extents), dx_of_relu(extents, ghosted);
    LocalArray<double> mean(channels, 0.1), inv_std(channels, 1.5), sums(2 * channels), sums_of_relu(2 * channels);
    LocalArray<T> gamma(channels), beta(channels);
    x.fill_reals(random);
    dy.fill_reals(random);
    std::uniform_real_distribution<double> reals(-1, 1);
    gamma.fill([&] { return static_cast<T>(reals(random)); });
    beta.fill([&] { return static_cast<T>(reals(random)); });
    batch_norm_forward<T>(exec, x, mean, inv_std, gamma, beta, y.view());
    batch_norm_forward<T>(exec, x, mean, inv_std, gamma, beta, rectified.view(), true);
    wait(exec);
    y.download();
    rectified.download();
    Index open = 0;
    y.for_each([&](auto... i) {
      ASSERT_EQ(rectified(i...), y(i...) < 0 ? T(0) : y(i...));
      masked(i...) = y(i...) > 0 ? dy(i...) : T(0);
      open += y(i...) > 0 ? 1 : 0;
    });
    if (channels > 1) {
      ASSERT_GT(open, 0);
      ASSERT_LT(open, 54 * channels);
    }
    masked.upload();
    BatchNormReduction<T> reduction(exec, 2, 1, 9, channels);
    reduction.gradients(exec, x, masked, mean, inv_std, sums);
    reduction.gradients(exec, x, dy, mean, inv_std, sums_of_relu, {gamma, beta});
    batch_norm_backward<T>(exec, 54, x, masked, mean, inv_std, gamma, sums, dx.view());
    batch_norm_backward<T>(exec, 54, x, dy, mean, inv_std, gamma, sums_of_relu, dx_of_relu.view(), beta);
    wait(exec);
    sums.download();
    sums_of_relu.download();
    dx.download();
    dx_of_relu.download();
    for (Index c = 0; c < 2 * channels; ++c) ASSERT_EQ(sums_of_relu(c), sums(c));
    dx.for_each([&](auto... i) { ASSERT_EQ(dx_of_relu(i...), dx(i...)); });
    EXPECT_EQ(rectified.damaged() + dx_of_relu.damaged(), 0);
  }
}

// Small multiples of powers of two: no operation rounds.
TYPED_TEST(LocalBatchNorm, ASummandBehindItIsAddedBeforeTheRelu) {
  using T = TypeParam;
  const Exec exec = test_space();
  std::mt19937 random(test_seed());
  for (const Index channels : {1, 17, 32, 1030}) {
    const std::array<Index, 5> extents{2, 1, 9, 3, channels};
    LocalTensor<T> x(extents, ghosted), summand(extents), sum(extents, ghosted), rectified(extents);
    x.fill_integers(random, 9);
    summand.fill_integers(random, 9);
    LocalArray<double> mean(channels, 2), inv_std(channels, 0.5);
    LocalArray<T> gamma(channels, T(3)), beta(channels, T(-1));
    batch_norm_forward<T>(exec, x, mean, inv_std, gamma, beta, sum.view(), false, summand);
    batch_norm_forward<T>(exec, x, mean, inv_std, gamma, beta, rectified.view(), true, summand);
    wait(exec);
    sum.download();
    rectified.download();
    sum.for_each([&](auto... i) {
      const T expected = (x(i...) - 2) * T(1.5) - 1 + summand(i...);
      ASSERT_EQ(sum(i...), expected);
      ASSERT_EQ(rectified(i...), expected > 0 ? expected : T(0));
    });
    EXPECT_EQ(sum.damaged(), 0);
    LocalTensor<T> other({2, 1, 9, 3, channels + 1});
    EXPECT_THROW(batch_norm_forward<T>(exec, x, mean, inv_std, gamma, beta, sum.view(), false, other),
                 aloni::InvalidArgument);
  }
}

// Small multiples of powers of two: no operation rounds.
TYPED_TEST(LocalBatchNorm, AnotherGradientIsAddedToThatOfItsInput) {
  using T = TypeParam;
  const Exec exec = test_space();
  std::mt19937 random(test_seed());
  for (const Index channels : {1, 17, 32, 1030}) {
    const std::array<Index, 5> extents{2, 1, 8, 4, channels};
    LocalTensor<T> x(extents, ghosted), dy(extents), dx(extents), both(extents, ghosted), in_place(extents, ghosted);
    LocalTensor<T> summand(extents, ghosted);
    x.fill_integers(random, 9);
    dy.fill_integers(random, 9);
    summand.fill_integers(random, 9);
    in_place.for_each([&](auto... i) { in_place(i...) = summand(i...); });
    in_place.upload();
    LocalArray<double> mean(channels, 2), inv_std(channels, 0.5), sums(2 * channels, 64);
    LocalArray<T> gamma(channels, T(4)), beta(channels, T(-1));
    for (const bool relu : {false, true}) {
      const auto run = [&](auto&& to, auto&&... other) {
        if (relu)
          batch_norm_backward<T>(exec, 64, x, dy, mean, inv_std, gamma, sums, to.view(), beta, other...);
        else
          batch_norm_backward<T>(exec, 64, x, dy, mean, inv_std, gamma, sums, to.view(), {}, other...);
      };
      run(dx);
      run(both, summand);
      if (!relu) run(in_place, in_place);
      wait(exec);
      dx.download();
      both.download();
      both.for_each([&](auto... i) { ASSERT_EQ(both(i...), dx(i...) + summand(i...)); });
    }
    in_place.download();
    batch_norm_backward<T>(exec, 64, x, dy, mean, inv_std, gamma, sums, dx.view());
    wait(exec);
    dx.download();
    in_place.for_each([&](auto... i) { ASSERT_EQ(in_place(i...), dx(i...) + summand(i...)); });
    EXPECT_EQ(both.damaged() + in_place.damaged(), 0);
    LocalTensor<T> other({2, 1, 8, 4, channels + 1});
    EXPECT_THROW(batch_norm_backward<T>(exec, 64, x, dy, mean, inv_std, gamma, sums, dx.view(), {}, other),
                 aloni::InvalidArgument);
  }
}

struct Net {
  static constexpr std::array<Index, 5> extents{3, 1, 4, 2, 3};
  static constexpr Index count = 3 * 4 * 2, channels = 3;
  Exec exec = test_space();
  LocalTensor<double> x{extents, ghosted}, y{extents, ghosted}, dy{extents}, dx{extents};
  LocalArray<double> sums{6}, mean{3}, inv_std{3}, running_mean{3}, running_variance{3, 1}, gamma{3}, beta{3},
      dgamma{3}, dbeta{3};
  BatchNormReduction<double> reduction{exec, 3, 1, 4, 3};

  void forward() {
    reduction.statistics(exec, x, sums);
    batch_norm_finish<Exec>(exec, count, {.epsilon = 1e-3, .momentum = 0.25}, sums, mean, inv_std, running_mean,
                            running_variance);
    batch_norm_forward<double>(exec, x, mean, inv_std, gamma, beta, y.view());
    wait(exec);
    y.download();
  }
  double loss() {
    forward();
    double sum = 0;
    y.for_each([&](auto... i) { sum += y(i...) * dy(i...); });
    return sum;
  }
};

TEST(LocalBatchNormLayer, NormalisesAndKeepsRunningStatistics) {
  std::mt19937 random(test_seed());
  Net net;
  net.x.fill_reals(random);
  net.gamma.fill([] { return 2; });
  net.beta.fill([] { return 1; });
  net.forward();
  net.mean.download();
  net.running_mean.download();
  net.running_variance.download();
  for (Index c = 0; c < Net::channels; ++c) {
    double mean = 0, variance = 0, y_mean = 0;
    net.x.for_each(
        [&](Index n, Index d, Index h, Index w, Index k) { mean += k == c ? net.x(n, d, h, w, k) / Net::count : 0; });
    net.x.for_each([&](Index n, Index d, Index h, Index w, Index k) {
      variance += k == c ? std::pow(net.x(n, d, h, w, k) - mean, 2) / Net::count : 0;
    });
    net.y.for_each([&](Index n, Index d, Index h, Index w, Index k) {
      if (k != c) return;
      y_mean += net.y(n, d, h, w, k) / Net::count;
      EXPECT_NEAR(net.y(n, d, h, w, k), (net.x(n, d, h, w, k) - mean) / std::sqrt(variance + 1e-3) * 2 + 1, 1e-12);
    });
    EXPECT_NEAR(y_mean, 1, 1e-12);
    EXPECT_NEAR(net.mean(c), mean, 1e-14);
    EXPECT_NEAR(net.running_mean(c), 0.25 * mean, 1e-14);
    EXPECT_NEAR(net.running_variance(c), 0.75 + 0.25 * variance * Net::count / (Net::count - 1), 1e-13);
  }
  EXPECT_EQ(net.y.damaged(), 0);
  batch_norm_inverse<Exec>(net.exec, 1e-3, net.running_variance, net.inv_std);
  wait(net.exec);
  net.inv_std.download();
  EXPECT_NEAR(net.inv_std(1), 1 / std::sqrt(net.running_variance(1) + 1e-3), 1e-14);
}

TEST(LocalBatchNormLayer, GradientsAreFiniteDifferences) {
  std::mt19937 random(test_seed());
  Net net;
  net.x.fill_reals(random);
  net.dy.fill_reals(random);
  std::uniform_real_distribution<double> reals(0.5, 1.5);
  net.gamma.fill([&] { return reals(random); });
  net.beta.fill([&] { return reals(random); });
  net.forward();
  net.reduction.gradients(net.exec, net.x, net.dy, net.mean, net.inv_std, net.sums);
  batch_norm_parameter_gradients<double>(net.exec, net.sums, net.dgamma.view(), net.dbeta);
  batch_norm_backward<double>(net.exec, Net::count, net.x, net.dy, net.mean, net.inv_std, net.gamma, net.sums,
                              net.dx.view());
  wait(net.exec);
  net.dx.download();
  net.dgamma.download();
  net.dbeta.download();
  constexpr double step = 1e-5;
  auto slope = [&](double& value, auto& owner) {
    const double before = value;
    value = before + step;
    owner.upload();
    const double above = net.loss();
    value = before - step;
    owner.upload();
    const double below = net.loss();
    value = before;
    owner.upload();
    return (above - below) / (2 * step);
  };
  net.dx.for_each([&](auto... i) { EXPECT_NEAR(slope(net.x(i...), net.x), net.dx(i...), 1e-8); });
  for (Index c = 0; c < Net::channels; ++c) {
    EXPECT_NEAR(slope(net.gamma(c), net.gamma), net.dgamma(c), 1e-8);
    EXPECT_NEAR(slope(net.beta(c), net.beta), net.dbeta(c), 1e-8);
  }
}

// Means, deviations and running statistics have the same bits with known sums of the first channels.
TEST(LocalBatchNormLayer, KnownSumsAreJoined) {
  const Exec exec = test_space();
  std::mt19937 random(test_seed());
  constexpr Index channels = 7;
  LocalArray<double> sums(2 * channels), mean(channels), inv_std(channels), running_mean(channels, 2),
      running_variance(channels, 3);
  std::uniform_real_distribution<double> reals(0, 1);
  for (Index c = 0; c < channels; ++c) {
    sums(c) = 64 * reals(random);
    sums(channels + c) = 64 + 64 * reals(random);
  }
  sums.upload();
  const BatchNormStatistics parameters{.epsilon = 1e-3, .momentum = 0.25};
  batch_norm_finish<Exec>(exec, 64, parameters, sums, mean, inv_std, running_mean, running_variance);
  wait(exec);
  for (auto* values : {&mean, &inv_std, &running_mean, &running_variance}) values->download();
  for (const Index k : {1, 4, 6, 7}) {
    SCOPED_TRACE(std::to_string(k) + " channels are known");
    LocalArray<double> known(2 * k), others(2 * (channels - k)), all(2 * channels), own_mean(channels),
        own_inv_std(channels), own_running_mean(channels, 2), own_running_variance(channels, 3);
    for (Index c = 0; c < channels; ++c)
      for (const Index which : {0, 1}) {
        const double sum = sums(which * channels + c);
        (c < k ? known(which * k + c) : others(which * (channels - k) + c - k)) = sum;
      }
    known.upload();
    others.upload();
    batch_norm_finish<Exec>(exec, 64, parameters, others, own_mean, own_inv_std, own_running_mean, own_running_variance,
                            known, all);
    wait(exec);
    for (auto* values : {&all, &own_mean, &own_inv_std, &own_running_mean, &own_running_variance}) values->download();
    for (Index c = 0; c < channels; ++c) {
      EXPECT_EQ(own_mean(c), mean(c));
      EXPECT_EQ(own_inv_std(c), inv_std(c));
      EXPECT_EQ(own_running_mean(c), running_mean(c));
      EXPECT_EQ(own_running_variance(c), running_variance(c));
    }
    for (Index i = 0; i < 2 * channels; ++i) EXPECT_EQ(all(i), sums(i));
  }
  LocalArray<double> too_many(2 * channels + 2), none(0);
  EXPECT_THROW(batch_norm_finish<Exec>(exec, 64, parameters, none, mean, inv_std, {}, {}, too_many, sums),
               InvalidArgument);
}

// A value that is not finite passes where the ReLU passes, and nowhere else. A NaN in x passes nothing.
TEST(LocalBatchNormLayer, GradientsThroughAReluAreChosenByBits) {
  const double infinite = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  using detail::if_positive;
  EXPECT_EQ(if_positive(1.0, infinite), infinite);
  EXPECT_EQ(if_positive(-1.0, infinite), 0.0);
  EXPECT_EQ(if_positive(0.0, 3.0), 0.0);
  EXPECT_EQ(if_positive(nan, 3.0), 0.0);
  EXPECT_FALSE(std::signbit(if_positive(-1.0, -3.0)));
  EXPECT_TRUE(std::isnan(if_positive(1e-30F, static_cast<float>(nan))));
  EXPECT_EQ(if_positive(-1e-30F, static_cast<float>(nan)), 0.0F);
  EXPECT_EQ(if_positive(2.0F, -3.5F), -3.5F);
}

TEST(LocalBatchNormLayer, EmptyBoxesContributeNothing) {
  const Exec exec = test_space();
  LocalTensor<float> x({0, 1, 4, 4, 2});
  LocalArray<double> sums(4, 9);
  BatchNormReduction<float> reduction(exec, 0, 1, 4, 2);
  reduction.statistics(exec, x, sums);
  wait(exec);
  sums.download();
  for (Index i = 0; i < 4; ++i) EXPECT_EQ(sums(i), 0);
  LocalArray<double> none(2);
  EXPECT_THROW(batch_norm_finish<Exec>(exec, 0, {}, sums, none, none, {}, {}), InvalidArgument);
}

}  // namespace test_local_batch_norm
}  // namespace aloni::test
