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
  x.fill([&] { return 3 + reals(random); });  // a mean to subtract
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

TYPED_TEST(LocalGroupNormalisation, AgreesWithTheDefinitionForEveryNumberOfGroups) {
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

TYPED_TEST(LocalGroupNormalisation, SumsOfPartsAddUpToTheSumsOfTheSample) {
  // As ranks do: the sums of two boxes add up to the sums of both together, exactly on integers.
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

TYPED_TEST(LocalGroupNormalisation, PartsOfTheChannelsGiveTheResultOfAllChannels) {
  // As ranks do: blocks of 6 channels that divide the groups of 3, each with the sums of all groups.
  using T = TypeParam;
  const Exec exec = test_space();
  std::mt19937 random(test_seed());
  LocalTensor<T> whole({2, 1, 4, 3, 6}), dy({2, 1, 4, 3, 6}), y(whole.extents()), dx(whole.extents());
  whole.fill_integers(random, 9);
  dy.fill_integers(random, 9);
  const LocalArray<T> gamma(6, 1), beta(6, 2);
  constexpr Index count = 3 * 12;
  LocalGroupNorm<T> all(exec, whole.extents(), 2);
  LocalArray<double> sums(8), gradient_sums(8);
  all.statistics(exec, whole, sums);
  all.finish(exec, count, epsilon, sums);
  all.forward(exec, whole, gamma, beta, y);
  all.gradients(exec, whole, dy, gamma, gradient_sums);
  all.backward(exec, count, whole, dy, gamma, gradient_sums, dx);
  wait(exec);
  y.download();
  dx.download();
  sums.download();
  gradient_sums.download();
  std::vector<double> added(8, 0), gradients_added(8, 0);
  for (const auto& [first, channels] : std::vector<std::pair<Index, Index>>{{0, 2}, {2, 3}, {5, 1}, {6, 0}}) {
    const std::array<Index, 5> extents{2, 1, 4, 3, channels};
    LocalTensor<T> x(extents), part_dy(extents), part_y(extents), part_dx(extents);
    x.for_each([&, first = first](Index n, Index d, Index h, Index w, Index c) {
      x(n, d, h, w, c) = whole(n, d, h, w, c + first);
      part_dy(n, d, h, w, c) = dy(n, d, h, w, c + first);
    });
    x.upload();
    part_dy.upload();
    const LocalArray<T> part_gamma(channels, 1), part_beta(channels, 2);
    LocalArray<double> mine(8, 5), my_gradients(8, 5);
    LocalGroupNorm<T> part(exec, extents, ChannelGroups{2, 3, first});
    part.statistics(exec, x, mine);
    part.finish(exec, count, epsilon, sums);
    part.forward(exec, x, part_gamma, part_beta, part_y);
    part.gradients(exec, x, part_dy, part_gamma, my_gradients);
    part.backward(exec, count, x, part_dy, part_gamma, gradient_sums, part_dx);
    wait(exec);
    mine.download();
    my_gradients.download();
    part_y.download();
    part_dx.download();
    for (Index i = 0; i < 8; ++i) added[static_cast<std::size_t>(i)] += mine(i);
    for (Index i = 0; i < 8; ++i) gradients_added[static_cast<std::size_t>(i)] += my_gradients(i);
    x.for_each([&, first = first](Index n, Index d, Index h, Index w, Index c) {
      EXPECT_EQ(part_y(n, d, h, w, c), y(n, d, h, w, c + first));
      EXPECT_EQ(part_dx(n, d, h, w, c), dx(n, d, h, w, c + first));
    });
  }
  for (Index i = 0; i < 8; ++i) EXPECT_EQ(added[static_cast<std::size_t>(i)], sums(i));
  for (Index i = 0; i < 8; ++i) EXPECT_NEAR(gradients_added[static_cast<std::size_t>(i)], gradient_sums(i), 1e-9);
  EXPECT_THROW(LocalGroupNorm<T>(exec, {2, 1, 4, 3, 2}, ChannelGroups{2, 3, 5}), InvalidArgument);
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

TEST(LocalGroupNormalisationLayer, RefusesWrongExtents) {
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
