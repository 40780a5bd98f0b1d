// Kernels of bfloat16 and float16 give the results of kernels of float for the same values, rounded once.
#include <aloni/nn/local/batch_norm.hpp>
#include <aloni/nn/local/bias.hpp>
#include <aloni/nn/local/dropout.hpp>
#include <aloni/nn/local/group_norm.hpp>
#include <aloni/nn/local/layer_norm.hpp>
#include <aloni/nn/local/loss.hpp>
#include <aloni/nn/local/pointwise.hpp>
#include <aloni/nn/local/pointwise_layers.hpp>
#include <aloni/nn/local/pooling.hpp>
#include <aloni/nn/local/resampling.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "local_tensor.hpp"

namespace aloni::test {
namespace test_local_bfloat16 {

using namespace nn::local;
using Exec = Kokkos::DefaultExecutionSpace;

constexpr Placement ghosted{.before = {0, 0, 1, 2, 0}, .after = {0, 0, 1, 0, 0}};
const std::vector<Placement> placements{{}, ghosted, {.channels_first = true}};

/// The same values in a type of 16 bits and in float.
template <class T>
struct Both {
  LocalTensor<T> narrow;
  LocalTensor<float> wide;

  explicit Both(const std::array<Index, 5>& extents, const Placement& placement = {})
      : narrow(extents, placement), wide(extents, placement) {}

  template <class F>
  Both& fill(const F& value) {
    narrow.for_each([&](auto... i) {
      narrow(i...) = T(static_cast<float>(value()));
      wide(i...) = static_cast<float>(narrow(i...));
    });
    narrow.upload();
    wide.upload();
    return *this;
  }
  Both& fill_integers(std::mt19937& random, int largest) {
    std::uniform_int_distribution<int> values(-largest, largest);
    return fill([&] { return values(random); });
  }
  Both& fill_reals(std::mt19937& random) {
    std::uniform_real_distribution<double> values(-1, 1);
    return fill([&] { return values(random); });
  }

  void expect_equal(const char* what) {
    wait(test_space());
    narrow.download();
    wide.download();
    Index wrong = 0;
    narrow.for_each([&](auto... i) { wrong += T(wide(i...)).bits != narrow(i...).bits; });
    EXPECT_EQ(wrong, 0) << what;
    EXPECT_EQ(narrow.damaged(), 0) << what << " wrote beside its result";
  }
};

template <class T>
void expect_same(LocalArray<T>& a, LocalArray<T>& b, const char* what) {
  wait(test_space());
  a.download();
  b.download();
  for (Index i = 0; i < a.size(); ++i) EXPECT_EQ(a(i), b(i)) << what << " " << i;
}

template <class T>
class Local16Bit : public testing::Test {};
using Types = testing::Types<comm::bfloat16, comm::float16>;
TYPED_TEST_SUITE(Local16Bit, Types);

TYPED_TEST(Local16Bit, PointwiseKernelsRoundOnce) {
  const Exec exec = test_space();
  std::mt19937 random(1);
  for (const Placement& at : placements) {
    Both<TypeParam> x({2, 1, 5, 6, 7}, at), y({2, 1, 5, 6, 7}, at), dy({2, 1, 5, 6, 7}), sum({2, 1, 5, 6, 7});
    x.fill_reals(random);
    dy.fill_reals(random);
    pointwise_forward<TypeParam>(exec, nn::Relu{}, x.narrow, y.narrow.view());
    pointwise_forward<float>(exec, nn::Relu{}, x.wide, y.wide.view());
    y.expect_equal("relu");
    add<TypeParam>(exec, y.narrow, dy.narrow, sum.narrow.view());
    add<float>(exec, y.wide, dy.wide, sum.wide.view());
    sum.expect_equal("add");
    pointwise_backward<TypeParam>(exec, nn::Relu{}, y.narrow, dy.narrow, sum.narrow.view());
    pointwise_backward<float>(exec, nn::Relu{}, y.wide, dy.wide, sum.wide.view());
    sum.expect_equal("gradient of relu");
    for (const nn::Operation& layer :
         std::vector<nn::Operation>{nn::LeakyRelu{0.1}, nn::Sigmoid{}, nn::Tanh{}, nn::Silu{}, nn::Gelu{}}) {
      pointwise_forward<TypeParam>(exec, layer, x.narrow, y.narrow.view());
      pointwise_forward<float>(exec, layer, x.wide, y.wide.view());
      y.expect_equal(kind(layer));
      pointwise_backward<TypeParam>(exec, layer, x.narrow, dy.narrow, sum.narrow.view());
      pointwise_backward<float>(exec, layer, x.wide, dy.wide, sum.wide.view());
      sum.expect_equal(kind(layer));
    }
    const DropoutMask mask{.seed = 3, .stream = 4, .rate = 0.3, .extents = {2, 1, 5, 6, 7}};
    dropout<TypeParam>(exec, mask, x.narrow, y.narrow.view());
    dropout<float>(exec, mask, x.wide, y.wide.view());
    y.expect_equal("dropout");
    copy<TypeParam>(exec, x.narrow, y.narrow.view());
    copy<float>(exec, x.wide, y.wide.view());
    y.expect_equal("copy");
    fill<TypeParam>(exec, TypeParam(3.0F), y.narrow.view());
    fill<float>(exec, 3, y.wide.view());
    y.expect_equal("fill");
    LocalArray<float> bias(7), db(7), expected(7);
    bias.fill([&] { return static_cast<int>(random() % 9) - 4; });
    add_bias<TypeParam>(exec, bias, y.narrow.view());
    add_bias<float>(exec, bias, y.wide.view());
    y.expect_equal("bias");
    BiasGradient<TypeParam>(exec, 2, 1, 5, 7)(exec, dy.narrow, db);
    BiasGradient<float>(exec, 2, 1, 5, 7)(exec, dy.wide, expected);
    expect_same(db, expected, "gradient of the bias");
    convert<TypeParam, float>(exec, x.wide, y.narrow.view());
    convert<float, TypeParam>(exec, x.narrow, y.wide.view());
    y.expect_equal("conversion");
  }
}

TYPED_TEST(Local16Bit, PoolingRoundsOnce) {
  const Exec exec = test_space();
  std::mt19937 random(2);
  for (const Placement& at : placements) {
    for (const Index channels : {1, 16, 19}) {
      const PoolingProblem p{.samples = 2,
                             .channels = channels,
                             .input = {3, 7, 8},
                             .output = {2, 4, 4},
                             .window = {2, 3, 3},
                             .stride = {1, 2, 2},
                             .offset = {0, -1, -1}};
      Both<TypeParam> x({2, 3, 7, 8, channels}, at), dx({2, 3, 7, 8, channels}, at), y({2, 2, 4, 4, channels}, at),
          dy({2, 2, 4, 4, channels});
      LocalTensor<std::int32_t> argmax({2, 2, 4, 4, channels}), expected({2, 2, 4, 4, channels});
      x.fill_integers(random, 3);  // many ties
      dy.fill_integers(random, 3);
      const bool relu = channels != 1;
      max_pool_forward<TypeParam>(exec, p, x.narrow, y.narrow.view(), argmax, relu);
      max_pool_forward<float>(exec, p, x.wide, y.wide.view(), expected, relu);
      y.expect_equal("maximum");
      argmax.download();
      expected.download();
      EXPECT_EQ(differing_bits(argmax, expected), 0);
      max_pool_backward<TypeParam>(exec, p, dy.narrow, argmax, dx.narrow.view());
      max_pool_backward<float>(exec, p, dy.wide, argmax, dx.wide.view());
      dx.expect_equal("gradient of the maximum");
      max_pool_forward<TypeParam>(exec, p, x.narrow, y.narrow.view(), {}, relu);
      y.expect_equal("maximum in evaluation");
      x.fill_reals(random);
      dy.fill_reals(random);
      average_pool_forward<TypeParam>(exec, p, AverageDivisor::in_domain, x.narrow, y.narrow.view());
      average_pool_forward<float>(exec, p, AverageDivisor::in_domain, x.wide, y.wide.view());
      y.expect_equal("average");
      average_pool_backward<TypeParam>(exec, p, AverageDivisor::in_domain, dy.narrow, dx.narrow.view());
      average_pool_backward<float>(exec, p, AverageDivisor::in_domain, dy.wide, dx.wide.view());
      dx.expect_equal("gradient of the average");
      Both<TypeParam> features({2, 1, 1, 1, channels});
      LocalTensor<float> mean({2, 1, 1, 1, channels}), expected_mean({2, 1, 1, 1, channels});
      global_average_forward<TypeParam>(exec, 0.1, x.narrow, mean);
      global_average_forward<float>(exec, 0.1, x.wide, expected_mean);
      wait(exec);
      mean.download();
      expected_mean.download();
      EXPECT_EQ(differing_bits(mean, expected_mean), 0) << "sums stay float";
      features.fill_reals(random);
      global_average_backward<TypeParam>(exec, 0.1, features.narrow, dx.narrow.view());
      global_average_backward<float>(exec, 0.1, features.wide, dx.wide.view());
      dx.expect_equal("gradient of the global average");
    }
  }
}

TYPED_TEST(Local16Bit, MaximumOfNaNIsNaNAndOfNoElementMinusInfinity) {
  const Exec exec = test_space();
  const PoolingProblem p{
      .samples = 1, .channels = 1, .input = {1, 1, 3}, .output = {1, 1, 3}, .window = {1, 1, 2}, .offset = {0, 0, 1}};
  Both<TypeParam> x({1, 1, 1, 3, 1}), y({1, 1, 1, 3, 1});
  int next = 0;
  x.fill([&] { return ++next == 2 ? std::numeric_limits<float>::quiet_NaN() : 1.0F; });
  max_pool_forward<TypeParam>(exec, p, x.narrow, y.narrow.view(), {});
  max_pool_forward<float>(exec, p, x.wide, y.wide.view(), {});
  y.expect_equal("maximum");
  EXPECT_TRUE(std::isnan(static_cast<float>(y.narrow(0, 0, 0, 0, 0))));
  EXPECT_EQ(static_cast<float>(y.narrow(0, 0, 0, 2, 0)), -std::numeric_limits<float>::infinity());
}

TYPED_TEST(Local16Bit, ResamplingRoundsOnce) {
  const Exec exec = test_space();
  std::mt19937 random(3);
  for (const auto rule : {halo::RangeRule::adaptive, halo::RangeRule::nearest, halo::RangeRule::linear}) {
    const ResamplingProblem p{.samples = 2,
                              .channels = 18,
                              .map = {halo::RangeMap1D{rule, 1, 1}, {rule, 7, 5}, {rule, 6, 9}},
                              .input = {1, 7, 6},
                              .output = {1, 5, 9}};
    Both<TypeParam> x({2, 1, 7, 6, 18}, ghosted), dx({2, 1, 7, 6, 18}, ghosted), y({2, 1, 5, 9, 18}),
        dy({2, 1, 5, 9, 18});
    x.fill_reals(random);
    dy.fill_reals(random);
    resample_forward<TypeParam>(exec, p, x.narrow, y.narrow.view());
    resample_forward<float>(exec, p, x.wide, y.wide.view());
    y.expect_equal("resampled");
    resample_backward<TypeParam>(exec, p, dy.narrow, dx.narrow.view());
    resample_backward<float>(exec, p, dy.wide, dx.wide.view());
    dx.expect_equal("gradient");
    if (rule != halo::RangeRule::adaptive) continue;
    LocalTensor<std::int32_t> argmax({2, 1, 5, 9, 18});
    adaptive_max_pool_forward<TypeParam>(exec, p, x.narrow, y.narrow.view(), argmax);
    adaptive_max_pool_forward<float>(exec, p, x.wide, y.wide.view(), argmax);
    y.expect_equal("adaptive maximum");
    adaptive_max_pool_backward<TypeParam>(exec, p, dy.narrow, argmax, dx.narrow.view());
    adaptive_max_pool_backward<float>(exec, p, dy.wide, argmax, dx.wide.view());
    dx.expect_equal("gradient of the adaptive maximum");
  }
}

TYPED_TEST(Local16Bit, BatchNormalisationRoundsOnce) {
  const Exec exec = test_space();
  std::mt19937 random(4);
  const std::array<Index, 5> extents{3, 1, 5, 4, 6};
  Both<TypeParam> x(extents, ghosted), y(extents), dy(extents), dx(extents);
  x.fill_reals(random);
  dy.fill_reals(random);
  LocalArray<float> gamma(6), beta(6);
  for (auto* a : {&gamma, &beta}) a->fill([&] { return 0.25 * static_cast<double>(random() % 9); });
  LocalArray<double> sums(12), expected(12), mean(6), inv_std(6);
  BatchNormReduction<TypeParam> reduction(exec, 3, 1, 5, 6);
  BatchNormReduction<float> wide_reduction(exec, 3, 1, 5, 6);
  reduction.statistics(exec, x.narrow, sums);
  wide_reduction.statistics(exec, x.wide, expected);
  expect_same(sums, expected, "sums");
  batch_norm_finish<Exec>(exec, 60, {}, sums, mean, inv_std, {}, {});
  batch_norm_forward<TypeParam>(exec, x.narrow, mean, inv_std, gamma, beta, y.narrow.view());
  batch_norm_forward<float>(exec, x.wide, mean, inv_std, gamma, beta, y.wide.view());
  y.expect_equal("forward");
  reduction.gradients(exec, x.narrow, dy.narrow, mean, inv_std, sums);
  wide_reduction.gradients(exec, x.wide, dy.wide, mean, inv_std, expected);
  expect_same(sums, expected, "sums of gradients");
  batch_norm_backward<TypeParam>(exec, 60, x.narrow, dy.narrow, mean, inv_std, gamma, sums, dx.narrow.view());
  batch_norm_backward<float>(exec, 60, x.wide, dy.wide, mean, inv_std, gamma, sums, dx.wide.view());
  dx.expect_equal("backward");
}

TYPED_TEST(Local16Bit, GroupAndLayerNormalisationRoundOnce) {
  const Exec exec = test_space();
  std::mt19937 random(5);
  const std::array<Index, 5> extents{3, 1, 5, 4, 6};
  Both<TypeParam> x(extents, ghosted), y(extents), dy(extents), dx(extents);
  x.fill_reals(random);
  dy.fill_reals(random);
  LocalArray<float> gamma(6), beta(6), dgamma(6), dbeta(6), expected_dgamma(6), expected_dbeta(6);
  for (auto* a : {&gamma, &beta}) a->fill([&] { return 0.25 * static_cast<double>(random() % 9); });
  LocalGroupNorm<TypeParam> groups(exec, extents, 2);
  LocalGroupNorm<float> wide_groups(exec, extents, 2);
  LocalArray<double> sums(groups.sums()), expected(groups.sums());
  groups.statistics(exec, x.narrow, sums);
  wide_groups.statistics(exec, x.wide, expected);
  expect_same(sums, expected, "sums");
  groups.finish(exec, 60, 1e-5, sums);
  wide_groups.finish(exec, 60, 1e-5, sums);
  groups.forward(exec, x.narrow, gamma, beta, y.narrow);
  wide_groups.forward(exec, x.wide, gamma, beta, y.wide);
  y.expect_equal("groups forward");
  groups.gradients(exec, x.narrow, dy.narrow, gamma, sums);
  wide_groups.gradients(exec, x.wide, dy.wide, gamma, expected);
  expect_same(sums, expected, "sums of gradients");
  groups.parameter_gradients(exec, dgamma, dbeta);
  wide_groups.parameter_gradients(exec, expected_dgamma, expected_dbeta);
  expect_same(dgamma, expected_dgamma, "dgamma");
  expect_same(dbeta, expected_dbeta, "dbeta");
  groups.backward(exec, 60, x.narrow, dy.narrow, gamma, sums, dx.narrow);
  wide_groups.backward(exec, 60, x.wide, dy.wide, gamma, sums, dx.wide);
  dx.expect_equal("groups backward");

  LocalLayerNorm<TypeParam> cells(exec, extents, 1e-5);
  LocalLayerNorm<float> wide_cells(exec, extents, 1e-5);
  cells.forward(exec, x.narrow, gamma, beta, y.narrow);
  wide_cells.forward(exec, x.wide, gamma, beta, y.wide);
  y.expect_equal("cells forward");
  cells.backward(exec, x.narrow, dy.narrow, gamma, dx.narrow);
  wide_cells.backward(exec, x.wide, dy.wide, gamma, dx.wide);
  dx.expect_equal("cells backward");
  cells.parameter_gradients(exec, x.narrow, dy.narrow, dgamma, dbeta);
  wide_cells.parameter_gradients(exec, x.wide, dy.wide, expected_dgamma, expected_dbeta);
  expect_same(dgamma, expected_dgamma, "dgamma of cells");
  expect_same(dbeta, expected_dbeta, "dbeta of cells");
}

TYPED_TEST(Local16Bit, LossesRoundTheirGradientsOnce) {
  const Exec exec = test_space();
  std::mt19937 random(6);
  Both<TypeParam> z({4, 1, 1, 1, 5}), t({4, 1, 1, 1, 5}), dz({4, 1, 1, 1, 5});
  z.fill_reals(random);
  t.fill([&] { return 0.125 * static_cast<double>(random() % 9); });
  LocalArray<int> labels(4);
  labels.fill([&] { return static_cast<int>(random() % 5); });
  LocalArray<double> result(2), expected(2);
  softmax_cross_entropy<TypeParam>(exec, z.narrow, labels, 0.25, dz.narrow.view(), result);
  softmax_cross_entropy<float>(exec, z.wide, labels, 0.25, dz.wide.view(), expected);
  dz.expect_equal("gradient of the softmax");
  expect_same(result, expected, "loss and right predictions");
  binary_cross_entropy_with_logits<TypeParam>(exec, z.narrow, t.narrow, 0.25, dz.narrow.view(), result);
  binary_cross_entropy_with_logits<float>(exec, z.wide, t.wide, 0.25, dz.wide.view(), expected);
  dz.expect_equal("gradient of the binary loss");
  expect_same(result, expected, "loss and right elements");
  mean_squared_error<TypeParam>(exec, z.narrow, t.narrow, 0.25, dz.narrow.view(), result);
  mean_squared_error<float>(exec, z.wide, t.wide, 0.25, dz.wide.view(), expected);
  dz.expect_equal("gradient of the squared error");
  expect_same(result, expected, "squared error");
  LocalTensor<int> of_pixels({4, 1, 1, 1, 1});
  of_pixels.fill([&] { return static_cast<int>(random() % 5); });
  pixel_cross_entropy<TypeParam>(exec, z.narrow, of_pixels, 0.25, dz.narrow.view(), result);
  pixel_cross_entropy<float>(exec, z.wide, of_pixels, 0.25, dz.wide.view(), expected);
  dz.expect_equal("gradient of the cross-entropy of pixels");
  expect_same(result, expected, "loss and right pixels");
  LocalArray<double> sums(4), expected_sums(4);
  dice_sums<TypeParam>(exec, z.narrow, t.narrow, sums);
  dice_sums<float>(exec, z.wide, t.wide, expected_sums);
  expect_same(sums, expected_sums, "sums of Dice");
  dice_gradient<TypeParam>(exec, z.narrow, t.narrow, sums, 1, dz.narrow.view());
  dice_gradient<float>(exec, z.wide, t.wide, sums, 1, dz.wide.view());
  dz.expect_equal("gradient of Dice");
}

}  // namespace test_local_bfloat16
}  // namespace aloni::test
