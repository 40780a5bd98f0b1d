#include <aloni/core/error.hpp>
#include <aloni/nn/local/loss.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "local_tensor.hpp"

namespace aloni::test {
namespace test_local_loss {

using namespace nn::local;
using Exec = Kokkos::DefaultExecutionSpace;

struct Loss {
  double sum, right;
};

template <class T>
Loss softmax(const LocalTensor<T>& logits, const LocalArray<int>& labels, double scale, LocalTensor<T>& gradient) {
  const Exec exec = test_space();
  LocalArray<double> result(2, -1);
  softmax_cross_entropy<T>(exec, logits, labels, scale, gradient.view(), result);
  wait(exec);
  result.download();
  gradient.download();
  return {result(0), result(1)};
}

template <class T>
Loss binary(const LocalTensor<T>& logits, const LocalTensor<T>& targets, double scale, LocalTensor<T>& gradient) {
  const Exec exec = test_space();
  LocalArray<double> result(2, -1);
  binary_cross_entropy_with_logits<T>(exec, logits, targets, scale, gradient.view(), result);
  wait(exec);
  result.download();
  gradient.download();
  return {result(0), result(1)};
}

TEST(LocalLoss, SoftmaxByHand) {
  LocalTensor<double> z({2, 1, 1, 1, 2}), g({2, 1, 1, 1, 2});
  const std::array<double, 4> logits{std::log(3.0), 0, 1, 1};
  z.fill([&, i = 0]() mutable { return logits[i++]; });
  LocalArray<int> labels(2);
  labels.fill([i = 0]() mutable { return i++; });  // 0, 1
  const auto loss = softmax(z, labels, 2.0, g);
  EXPECT_NEAR(loss.sum, -std::log(0.75) - std::log(0.5), 1e-15);
  EXPECT_EQ(loss.right, 1);  // the tie predicts the first class
  EXPECT_NEAR(g(0, 0, 0, 0, 0), 2 * (0.75 - 1), 1e-15);
  EXPECT_NEAR(g(0, 0, 0, 0, 1), 2 * 0.25, 1e-15);
  EXPECT_NEAR(g(1, 0, 0, 0, 0), 2 * 0.5, 1e-15);
  EXPECT_NEAR(g(1, 0, 0, 0, 1), 2 * (0.5 - 1), 1e-15);
}

TEST(LocalLoss, StaysFiniteForLargeLogits) {
  LocalTensor<float> z({2, 1, 1, 1, 3}), g({2, 1, 1, 1, 3});
  const std::array<float, 6> logits{3e38F, -3e38F, 0, -1e30F, -1e30F, -2e30F};
  z.fill([&, i = 0]() mutable { return logits[i++]; });
  LocalArray<int> labels(2);
  const auto loss = softmax(z, labels, 1.0, g);
  EXPECT_NEAR(loss.sum, std::log(2.0), 1e-6);
  g.for_each([&](auto... i) { EXPECT_TRUE(std::isfinite(g(i...))); });

  LocalTensor<float> t({2, 1, 1, 1, 3});
  t.fill([i = 0]() mutable { return i++ % 2; });  // 0 1 0 1 0 1
  const auto pixels = binary(z, t, 1.0, g);
  EXPECT_TRUE(std::isfinite(pixels.sum));
  g.for_each([&](auto... i) { EXPECT_TRUE(std::isfinite(g(i...))); });
  EXPECT_EQ(g(0, 0, 0, 0, 0), 1.0F);   // sure of one, is zero
  EXPECT_EQ(g(0, 0, 0, 0, 1), -1.0F);  // sure of zero, is one
}

TEST(LocalLoss, SmallProbabilitiesKeepTheirDigits) {
  LocalTensor<double> z({1, 1, 1, 1, 1}), t({1, 1, 1, 1, 1}), g({1, 1, 1, 1, 1});
  z.fill([] { return -40; });
  t.fill([] { return 0; });
  const auto loss = binary(z, t, 1.0, g);
  EXPECT_NEAR(loss.sum / std::exp(-40.0), 1, 1e-12) << "log(1 + e) for small e";
  EXPECT_NEAR(g(0, 0, 0, 0, 0) / std::exp(-40.0), 1, 1e-12);
}

TEST(LocalLoss, LabelsOutOfRangeGiveNaN) {
  for (int label : {-1, 3, 1 << 30}) {
    LocalTensor<float> z({2, 1, 1, 1, 3}), g({2, 1, 1, 1, 3});
    z.fill([] { return 0; });
    LocalArray<int> labels(2);
    labels(1) = label;
    labels.upload();
    const auto loss = softmax(z, labels, 1.0, g);
    EXPECT_TRUE(std::isnan(loss.sum));
    EXPECT_TRUE(std::isnan(g(1, 0, 0, 0, 0)));
    EXPECT_FALSE(std::isnan(g(0, 0, 0, 0, 0)));
    EXPECT_EQ(loss.right, 1);
  }
}

TEST(LocalLoss, GradientsAreFiniteDifferences) {
  std::mt19937 random(test_seed());
  std::uniform_real_distribution<double> reals(-3, 3);
  const std::array<Index, 5> extents{5, 1, 1, 1, 4};
  LocalTensor<double> z(extents, {.after = {0, 0, 0, 0, 2}}), g(extents), unused(extents), t(extents);
  z.fill([&] { return reals(random); });
  t.fill([&] { return (reals(random) + 3) / 6; });
  LocalArray<int> labels(5);
  labels.fill([&] { return static_cast<int>(random() % 4); });
  constexpr double step = 1e-5;
  for (int kind = 0; kind < 2; ++kind) {
    auto loss = [&](LocalTensor<double>& gradient) {
      return (kind == 0 ? softmax(z, labels, 0.5, gradient) : binary(z, t, 0.5, gradient)).sum;
    };
    loss(g);
    z.for_each([&](auto... i) {
      const double before = z(i...);
      z(i...) = before + step;
      z.upload();
      const double above = loss(unused);
      z(i...) = before - step;
      z.upload();
      const double below = loss(unused);
      z(i...) = before;
      z.upload();
      EXPECT_NEAR(0.5 * (above - below) / (2 * step), g(i...), 1e-9);
    });
  }
}

// The values below are fractions, computed by hand.

TEST(LocalLoss, SquaredErrorHasItsKnownValues) {
  LocalTensor<double> y({2, 1, 1, 2, 1}), t({2, 1, 1, 2, 1}), g({2, 1, 1, 2, 1});
  y.fill([values = std::array{1.0, 2.0, -1.0, 0.0}, i = 0]() mutable { return values[i++]; });
  t.fill([values = std::array{0.0, 2.0, 1.0, 0.5}, i = 0]() mutable { return values[i++]; });
  LocalArray<double> result(2, -1);
  mean_squared_error<double>(test_space(), y, t, 0.25, g.view(), result);
  wait(test_space());
  result.download();
  g.download();
  EXPECT_EQ(result(0), 5.25);
  EXPECT_EQ(result(1), 0);
  EXPECT_EQ(g(0, 0, 0, 0, 0), 0.5);
  EXPECT_EQ(g(0, 0, 0, 1, 0), 0);
  EXPECT_EQ(g(1, 0, 0, 0, 0), -1);
  EXPECT_EQ(g(1, 0, 0, 1, 0), -0.25);
}

TEST(LocalLoss, CrossEntropyOfPixelsHasItsKnownValuesInAnyPlacement) {
  const std::array<double, 6> odds{1, 2, 5, 3, 1, 1};
  const std::array<double, 6> expected{1.0 / 8, 2.0 / 8, -3.0 / 8, 3.0 / 5, -4.0 / 5, 1.0 / 5};
  for (const Placement& at : {Placement{}, Placement{.before = {0, 0, 1, 1, 0}, .after = {0, 0, 2, 0, 1}},
                              Placement{.channels_first = true}}) {
    LocalTensor<double> z({1, 1, 2, 1, 3}, at), g({1, 1, 2, 1, 3}, at);
    LocalTensor<int> labels({1, 1, 2, 1, 1}, at);
    z.fill([&, i = 0]() mutable { return std::log(odds[i++]); });
    labels.fill([i = 2]() mutable { return i--; });
    LocalArray<double> result(2, -1);
    pixel_cross_entropy<double>(test_space(), z, labels, 1.0, g.view(), result);
    wait(test_space());
    result.download();
    g.download();
    EXPECT_NEAR(result(0), std::log(8.0 / 5) + std::log(5.0), 1e-14);
    EXPECT_EQ(result(1), 1);
    std::size_t i = 0;
    g.for_each([&](auto... index) { EXPECT_NEAR(g(index...), expected[i++], 1e-14); });
    EXPECT_EQ(g.damaged(), 0);
    LocalArray<double> too_few(1);
    EXPECT_THROW(pixel_cross_entropy<double>(test_space(), z, labels, 1.0, g.view(), too_few), InvalidArgument);
    EXPECT_THROW(pixel_cross_entropy<double>(test_space(), z, LocalTensor<int>({1, 1, 2, 1, 3}), 1.0, g.view(), result),
                 InvalidArgument);
  }
}

TEST(LocalLoss, DiceHasItsKnownValues) {
  LocalTensor<double> z({1, 1, 1, 3, 1}), t({1, 1, 1, 3, 1}), g({1, 1, 1, 3, 1});
  z.fill([values = std::array{0.0, std::log(3.0), -std::log(3.0)}, i = 0]() mutable { return values[i++]; });
  t.fill([values = std::array{1.0, 1.0, 0.0}, i = 0]() mutable { return values[i++]; });
  LocalArray<double> sums(4, -1), result(2, -1);
  dice_sums<double>(test_space(), z, t, sums);
  dice_gradient<double>(test_space(), z, t, sums, 1, g.view());
  dice_loss<Exec>(test_space(), 0.5, sums, result);
  wait(test_space());
  sums.download();
  result.download();
  g.download();
  EXPECT_NEAR(sums(0), 1.25, 1e-14);
  EXPECT_NEAR(sums(1), 0.875, 1e-14);
  EXPECT_NEAR(sums(2), 2, 1e-14);
  EXPECT_EQ(sums(3), 2);
  EXPECT_NEAR(result(0), 3.0 / 46, 1e-14);
  EXPECT_EQ(result(1), 1);
  EXPECT_NEAR(g(0, 0, 0, 0, 0), -52.0 / 529, 1e-14);
  EXPECT_NEAR(g(0, 0, 0, 1, 0), -24.0 / 529, 1e-14);
  EXPECT_NEAR(g(0, 0, 0, 2, 0), 15.0 / 529, 1e-14);
}

TEST(LocalLoss, BinaryLossOfGhostedPixelsCountsRightPredictions) {
  std::mt19937 random(test_seed());
  const Placement ghosted{.before = {0, 0, 1, 1, 0}, .after = {0, 0, 2, 0, 0}};
  LocalTensor<float> z({2, 1, 9, 7, 1}, ghosted), t({2, 1, 9, 7, 1}), g({2, 1, 9, 7, 1}, ghosted);
  z.fill_reals(random);
  t.fill([&] { return static_cast<int>(random() % 2); });
  const auto loss = binary(z, t, 1.0, g);
  double sum = 0, right = 0;
  z.for_each([&](auto... i) {
    const double p = 1 / (1 + std::exp(-static_cast<double>(z(i...))));
    sum -= t(i...) > 0.5F ? std::log(p) : std::log(1 - p);
    right += (z(i...) > 0) == (t(i...) > 0.5F);
  });
  EXPECT_NEAR(loss.sum, sum, 1e-6);
  EXPECT_EQ(loss.right, right);
  EXPECT_EQ(g.damaged(), 0);
}

TEST(LocalLoss, EmptyBatchesGiveZeroAndNoGradientIsFine) {
  LocalTensor<float> none({0, 1, 1, 1, 3}), g({0, 1, 1, 1, 3});
  const auto empty = softmax(none, LocalArray<int>(0), 1.0, g);
  EXPECT_EQ(empty.sum, 0);
  EXPECT_EQ(empty.right, 0);
  LocalTensor<float> z({2, 1, 1, 1, 3});
  z.fill([] { return 0; });
  LocalArray<double> result(2);
  softmax_cross_entropy<float>(test_space(), z, LocalArray<int>(2), 1.0, nn::local::Tensor<float, Exec>{}, result);
  wait(test_space());
  result.download();
  EXPECT_NEAR(result(0), 2 * std::log(3.0), 1e-12);
  EXPECT_THROW(softmax_cross_entropy<float>(test_space(), z, LocalArray<int>(3), 1.0, z.view(), result),
               InvalidArgument);
}

}  // namespace test_local_loss
}  // namespace aloni::test
