// Layer normalisation over the channels of each cell against its definition in double.
#include <aloni/core/error.hpp>
#include <aloni/nn/local/layer_norm.hpp>

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "local_tensor.hpp"
#include "naive_norm.hpp"

namespace aloni::test {
namespace test_local_layer_norm {

using namespace nn::local;
using Exec = Kokkos::DefaultExecutionSpace;

constexpr double epsilon = 1e-3;
constexpr Placement ghosted{.before = {0, 0, 1, 2, 0}, .after = {0, 0, 1, 0, 0}};
constexpr Placement channels_first{.channels_first = true};

template <class T>
class LocalLayerNormalisation : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(LocalLayerNormalisation, Types);

template <class T>
void compare(const std::array<Index, 5>& extents, const Placement& placement, double mean, std::mt19937& random) {
  SCOPED_TRACE(std::to_string(extents[0]) + " samples, " + std::to_string(extents[2]) + " rows, " +
               std::to_string(extents[4]) + " channels around " + std::to_string(mean));
  const Exec exec = test_space();
  const Index channels = extents[4];
  LocalTensor<T> x(extents, placement), dy(extents), y(extents, placement), dx(extents, placement);
  LocalArray<T> gamma(channels), beta(channels), dgamma(channels, 7), dbeta(channels, 7);
  std::uniform_real_distribution<double> reals(-1, 1);
  x.fill([&] { return mean + reals(random); });
  dy.fill_reals(random);
  gamma.fill([&] { return reals(random); });
  beta.fill([&] { return reals(random); });

  LocalLayerNorm<T> norm(exec, extents, epsilon);
  norm.forward(exec, x, gamma, beta, y);
  norm.parameter_gradients(exec, x, dy, dgamma, dbeta);
  norm.backward(exec, x, dy, gamma, dx);
  wait(exec);
  y.download();
  dx.download();
  dgamma.download();
  dbeta.download();

  const auto expected = naive_norm(x, dy, gamma, beta, epsilon, [](Index n, Index d, Index h, Index w, Index) {
    return std::array{n, d, h, w};
  });
  expect_near(y, expected.y, "y");
  expect_near(dx, expected.dx, "dx");
  expect_near(dgamma, expected.dgamma, "dgamma");
  expect_near(dbeta, expected.dbeta, "dbeta");
  EXPECT_EQ(y.damaged(), 0);
  EXPECT_EQ(dx.damaged(), 0);
}

TYPED_TEST(LocalLayerNormalisation, IsItsDefinition) {
  std::mt19937 random(test_seed());
  for (const Placement& placement : {Placement{}, ghosted, channels_first}) {
    for (Index channels : {1, 2, 17}) {
      compare<TypeParam>({3, 2, 4, 5, channels}, placement, 3, random);
      compare<TypeParam>({1, 1, 1, 1, channels}, placement, 3, random);
    }
  }
  compare<TypeParam>({2, 1, 70, 2, 3}, {}, 3, random);  // more rows than shares
}

TEST(LocalLayerNormalisationCells, KeepTheirDigitsFarFromZero) {
  // The mean of x² minus the square of the mean would lose all of them.
  std::mt19937 random(test_seed());
  const std::array<Index, 5> extents{1, 1, 2, 2, 8};
  const Exec exec = test_space();
  LocalTensor<double> x(extents), far(extents), y(extents), y_far(extents);
  x.fill_integers(random, 9);
  far.for_each([&](auto... i) { far(i...) = x(i...) + 1e9; });
  far.upload();
  LocalArray<double> one(8, 1), zero(8);
  LocalLayerNorm<double> norm(exec, extents, epsilon);
  norm.forward(exec, x, one, zero, y);
  norm.forward(exec, far, one, zero, y_far);
  wait(exec);
  y.download();
  y_far.download();
  y.for_each([&](auto... i) { EXPECT_NEAR(y_far(i...), y(i...), 1e-6); });
}

TEST(LocalLayerNormalisationCells, MayBeNone) {
  const Exec exec = test_space();
  for (const auto& extents : std::vector<std::array<Index, 5>>{{0, 1, 4, 4, 4}, {2, 1, 0, 4, 4}, {2, 1, 4, 0, 4}}) {
    LocalTensor<float> x(extents);
    LocalArray<float> gamma(4, 1), dgamma(4, 9), dbeta(4, 9);
    LocalLayerNorm<float> norm(exec, extents, epsilon);
    norm.forward(exec, x, gamma, gamma, x);
    norm.parameter_gradients(exec, x, x, dgamma, dbeta);
    norm.backward(exec, x, x, gamma, x);
    wait(exec);
    dgamma.download();
    dbeta.download();
    for (Index c = 0; c < 4; ++c) EXPECT_EQ(dgamma(c) == 0 && dbeta(c) == 0, true);
  }
}

TEST(LocalLayerNormalisationCells, RefuseWhatDoesNotFit) {
  const Exec exec = test_space();
  LocalLayerNorm<float> norm(exec, {2, 1, 3, 3, 4}, epsilon);
  LocalTensor<float> x({2, 1, 3, 3, 4}), other({2, 1, 3, 2, 4});
  LocalArray<float> four(4), two(2);
  EXPECT_THROW(norm.forward(exec, other, four, four, x), InvalidArgument);
  EXPECT_THROW(norm.forward(exec, x, two, four, x), InvalidArgument);
  EXPECT_THROW(norm.backward(exec, x, other, four, x), InvalidArgument);
  EXPECT_THROW(norm.backward(exec, x, x, two, x), InvalidArgument);
  EXPECT_THROW(norm.parameter_gradients(exec, x, x, four, two), InvalidArgument);
}

}  // namespace test_local_layer_norm
}  // namespace aloni::test
