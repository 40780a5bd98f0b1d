// Group normalisation's local parts against its definition in double.
#include <aloni/core/error.hpp>
#include <aloni/nn/local/group_norm.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "local_tensor.hpp"
#include "naive_norm.hpp"

namespace aloni::test {
namespace test_local_group_norm {

using namespace nn::local;
using Exec = Kokkos::DefaultExecutionSpace;

constexpr double epsilon = 1e-3;
constexpr Placement ghosted{.before = {0, 0, 1, 2, 0}, .after = {0, 0, 1, 0, 0}};
constexpr Placement channels_first{.channels_first = true};

template <class T>
class LocalGroupNormalisation : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(LocalGroupNormalisation, Types);

template <class T>
void compare(const std::array<Index, 5>& extents, Index groups, const Placement& placement, std::mt19937& random) {
  SCOPED_TRACE(std::to_string(extents[0]) + " samples, " + std::to_string(extents[2]) + " rows, " +
               std::to_string(extents[4]) + " channels in " + std::to_string(groups) + " groups");
  const Exec exec = test_space();
  const Index channels = extents[4], count = extents[1] * extents[2] * extents[3] * channels / groups;
  LocalTensor<T> x(extents, placement), dy(extents), y(extents, placement), dx(extents, placement);
  LocalArray<T> gamma(channels), beta(channels), dgamma(channels, 7), dbeta(channels, 7);
  std::uniform_real_distribution<double> reals(-1, 1);
  x.fill([&] { return 3 + reals(random); });  // a mean to take away
  dy.fill_reals(random);
  gamma.fill([&] { return reals(random); });
  beta.fill([&] { return reals(random); });

  LocalGroupNorm<T> norm(exec, extents, groups);
  LocalArray<double> sums(norm.sums(), 5);
  norm.statistics(exec, x, sums);
  norm.finish(exec, count, epsilon, sums);
  norm.forward(exec, x, gamma, beta, y);
  norm.gradients(exec, x, dy, gamma, sums);
  norm.parameter_gradients(exec, dgamma, dbeta);
  norm.backward(exec, count, x, dy, gamma, sums, dx);
  wait(exec);
  y.download();
  dx.download();
  dgamma.download();
  dbeta.download();

  const auto expected = naive_norm(x, dy, gamma, beta, epsilon, [&](Index n, Index, Index, Index, Index c) {
    return std::pair(n, c / (channels / groups));
  });
  expect_near(y, expected.y, "y");
  expect_near(dx, expected.dx, "dx");
  expect_near(dgamma, expected.dgamma, "dgamma");
  expect_near(dbeta, expected.dbeta, "dbeta");
  EXPECT_EQ(y.damaged(), 0);
  EXPECT_EQ(dx.damaged(), 0);
}

TYPED_TEST(LocalGroupNormalisation, IsItsDefinitionForEveryNumberOfGroups) {
  std::mt19937 random(test_seed());
  for (const Placement& placement : {Placement{}, ghosted, channels_first}) {
    for (Index samples : {1, 3}) {
      for (Index height : {1, 7}) {
        for (Index groups : {1, 2, 3, 6}) compare<TypeParam>({samples, 2, height, 3, 6}, groups, placement, random);
      }
    }
  }
  compare<TypeParam>({2, 1, 1, 1, 4}, 2, {}, random);
  compare<TypeParam>({1, 1, 80, 2, 2}, 1, {}, random);  // more rows than shares
  compare<TypeParam>({70, 1, 2, 2, 2}, 2, {}, random);  // more samples than shares
  compare<TypeParam>({2, 1, 1, 1, 3}, 3, {}, random);   // groups of one element have no variance
}

TYPED_TEST(LocalGroupNormalisation, AddsPartsOfASampleToItsWhole) {
  // What ranks do: the sums of two boxes, added, are the sums of both together; exactly, on integers.
  using T = TypeParam;
  const Exec exec = test_space();
  std::mt19937 random(test_seed());
  const std::array<Index, 5> whole_extents{3, 1, 7, 5, 4};
  LocalTensor<T> whole(whole_extents);
  whole.fill_integers(random, 9);
  std::vector<double> added(12, 0);
  const auto sums_of = [&](const LocalTensor<T>& x) {
    LocalGroupNorm<T> norm(exec, x.extents(), 2);
    LocalArray<double> sums(norm.sums(), 5);
    norm.statistics(exec, x, sums);
    wait(exec);
    sums.download();
    std::vector<double> values;
    for (Index i = 0; i < sums.size(); ++i) values.push_back(sums(i));
    return values;
  };
  for (const auto& [first, rows] : std::vector<std::pair<Index, Index>>{{0, 4}, {4, 3}, {7, 0}}) {
    LocalTensor<T> part({3, 1, rows, 5, 4});
    part.for_each([&, first = first](Index n, Index d, Index h, Index w, Index c) {
      part(n, d, h, w, c) = whole(n, d, h + first, w, c);
    });
    part.upload();
    const auto sums = sums_of(part);
    std::transform(sums.begin(), sums.end(), added.begin(), added.begin(), std::plus<>());
  }
  EXPECT_EQ(added, sums_of(whole));
}

TEST(LocalGroupNormalisationLayer, TakesEmptyBoxes) {
  const Exec exec = test_space();
  for (const auto& extents : std::vector<std::array<Index, 5>>{{0, 1, 4, 4, 4}, {2, 1, 0, 4, 4}, {2, 1, 4, 0, 4}}) {
    LocalTensor<float> x(extents);
    LocalArray<float> gamma(4, 1), dgamma(4, 9), dbeta(4, 9);
    LocalGroupNorm<float> norm(exec, extents, 2);
    LocalArray<double> sums(norm.sums(), 9);
    ASSERT_EQ(norm.sums(), 4 * extents[0]);
    norm.statistics(exec, x, sums);
    wait(exec);
    sums.download();
    for (Index i = 0; i < sums.size(); ++i) EXPECT_EQ(sums(i), 0);
    norm.finish(exec, 32, epsilon, sums);
    norm.forward(exec, x, gamma, gamma, x);
    norm.gradients(exec, x, x, gamma, sums);
    norm.parameter_gradients(exec, dgamma, dbeta);
    norm.backward(exec, 32, x, x, gamma, sums, x);
    wait(exec);
    dgamma.download();
    dbeta.download();
    for (Index c = 0; c < 4; ++c) EXPECT_EQ(dgamma(c) == 0 && dbeta(c) == 0, true);
  }
}

TEST(LocalGroupNormalisationLayer, RefusesWhatDoesNotFit) {
  const Exec exec = test_space();
  const std::array<Index, 5> extents{2, 1, 3, 3, 4};
  EXPECT_THROW(LocalGroupNorm<float>(exec, extents, 3), InvalidArgument);
  EXPECT_THROW(LocalGroupNorm<float>(exec, extents, 0), InvalidArgument);
  LocalGroupNorm<float> norm(exec, extents, 2);
  LocalTensor<float> x(extents), other({2, 1, 3, 2, 4});
  LocalArray<float> channels(4), groups(2);
  LocalArray<double> sums(8), few(4);
  EXPECT_THROW(norm.statistics(exec, other, sums), InvalidArgument);
  EXPECT_THROW(norm.statistics(exec, x, few), InvalidArgument);
  EXPECT_THROW(norm.finish(exec, 0, epsilon, sums), InvalidArgument);
  EXPECT_THROW(norm.forward(exec, x, groups, channels, x), InvalidArgument);
  EXPECT_THROW(norm.forward(exec, x, channels, channels, other), InvalidArgument);
  EXPECT_THROW(norm.gradients(exec, x, other, channels, sums), InvalidArgument);
  EXPECT_THROW(norm.parameter_gradients(exec, groups, channels), InvalidArgument);
  EXPECT_THROW(norm.backward(exec, 0, x, x, channels, sums, x), InvalidArgument);
}

}  // namespace test_local_group_norm
}  // namespace aloni::test
