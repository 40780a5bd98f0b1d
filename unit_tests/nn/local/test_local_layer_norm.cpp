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

TYPED_TEST(LocalLayerNormalisation, AgreesWithTheDefinition) {
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
  // The mean of x² minus the square of the mean would lose all digits.
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

TYPED_TEST(LocalLayerNormalisation, PartsOfTheChannelsGiveTheResultOfAllChannels) {
  // As ranks do: sums of blocks of the channels are added, and each block is normalised with the sums of all.
  using T = TypeParam;
  const Exec exec = test_space();
  std::mt19937 random(test_seed());
  const std::array<Index, 5> extents{2, 1, 3, 2, 5};
  LocalTensor<T> whole(extents), dy(extents), y(extents), dx(extents);
  whole.fill_reals(random);
  dy.fill_reals(random);
  const LocalArray<T> gamma(5, 2), beta(5, 1);
  LocalLayerNorm<T> all(exec, extents, epsilon);
  all.forward(exec, whole, gamma, beta, y);
  all.backward(exec, whole, dy, gamma, dx);
  wait(exec);
  y.download();
  dx.download();
  struct Part {
    Index first;
    LocalTensor<T> x, dy, y, dx;
    LocalArray<T> gamma, beta;
    LocalLayerNorm<T> norm;
  };
  std::vector<Part> parts;
  for (const auto& [first, channels] : std::vector<std::pair<Index, Index>>{{0, 2}, {2, 3}, {5, 0}}) {
    const std::array<Index, 5> e{2, 1, 3, 2, channels};
    parts.push_back({first, LocalTensor<T>(e), LocalTensor<T>(e), LocalTensor<T>(e), LocalTensor<T>(e),
                     LocalArray<T>(channels, 2), LocalArray<T>(channels, 1), LocalLayerNorm<T>(exec, e, epsilon)});
    Part& p = parts.back();
    p.x.for_each([&](Index n, Index d, Index h, Index w, Index c) {
      p.x(n, d, h, w, c) = whole(n, d, h, w, c + p.first);
      p.dy(n, d, h, w, c) = dy(n, d, h, w, c + p.first);
    });
    p.x.upload();
    p.dy.upload();
  }
  /// Calls add(part, sums) for each part, and adds the results.
  const auto add = [&](Index elements, const auto& sum) {
    LocalArray<double> total(elements, 0);
    for (Part& p : parts) {
      LocalArray<double> mine(elements, 7);
      sum(p, mine);
      wait(exec);
      mine.download();
      for (Index i = 0; i < elements; ++i) total(i) += mine(i);
    }
    total.upload();
    return total;
  };
  const Index cells = all.cells();
  ASSERT_EQ(cells, 12);
  const auto sums = add(cells, [&](Part& p, auto& mine) { p.norm.sums(exec, p.x, mine); });
  const auto squares = add(cells, [&](Part& p, auto& mine) { p.norm.squares(exec, 5, p.x, sums, mine); });
  for (Part& p : parts) p.norm.forward(exec, 5, p.x, p.gamma, p.beta, squares, p.y);
  const auto both = add(2 * cells, [&](Part& p, auto& mine) { p.norm.gradient_sums(exec, p.x, p.dy, p.gamma, mine); });
  const double tolerance = std::is_same_v<T, double> ? 1e-12 : 1e-5;
  for (Part& p : parts) {
    p.norm.backward(exec, 5, p.x, p.dy, p.gamma, both, p.dx);
    wait(exec);
    p.y.download();
    p.dx.download();
    p.x.for_each([&](Index n, Index d, Index h, Index w, Index c) {
      EXPECT_NEAR(p.y(n, d, h, w, c), y(n, d, h, w, c + p.first), tolerance);
      EXPECT_NEAR(p.dx(n, d, h, w, c), dx(n, d, h, w, c + p.first), tolerance);
    });
  }
  EXPECT_THROW(all.squares(exec, 0, whole, sums, LocalArray<double>(cells)), InvalidArgument);
  EXPECT_THROW(all.sums(exec, whole, LocalArray<double>(cells + 1)), InvalidArgument);
}

TEST(LocalLayerNormalisationCells, MayBeAbsent) {
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

TEST(LocalLayerNormalisationCells, RefuseWrongExtents) {
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
