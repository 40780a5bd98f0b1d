// K-FAC without ranks: its plan, its options, and the inversion on the calling thread.
#include <aloni/core/error.hpp>
#include <aloni/nn/kfac_options.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/strategy.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace aloni::nn {
namespace test_kfac_options {

using testing::AllOf;
using testing::HasSubstr;

/// B Bᵀ + 1 with elements of B from a formula.
std::vector<double> positive_definite(std::size_t n) {
  const auto b = [](std::size_t i, std::size_t j) { return std::sin(static_cast<double>(7 * i + 3 * j + 1)); };
  std::vector<double> a(n * n, 0.0);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t k = 0; k < n; ++k) a[i * n + j] += b(i, k) * b(j, k);
      if (i == j) a[i * n + j] += 1;
    }
  return a;
}

TEST(FactorSolver, GivesTheInverse) {
  for (const std::size_t n : {1, 2, 3, 17, 64}) {
    const std::vector<double> a = positive_definite(n);
    const std::vector<double> inverse = serial_factor_solver()(a, static_cast<Index>(n)).get();
    ASSERT_EQ(inverse.size(), n * n);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::size_t k = 0; k < n; ++k) sum += a[i * n + k] * inverse[k * n + j];
        ASSERT_NEAR(sum, i == j ? 1 : 0, 1e-11) << n << ": " << i << ", " << j;
        ASSERT_EQ(inverse[i * n + j], inverse[j * n + i]);
      }
  }
}

TEST(FactorSolver, RefusesAMatrixThatIsNotPositiveDefinite) {
  EXPECT_THROW(serial_factor_solver()({1, 2, 2, 1}, 2), FactorisationError);
  EXPECT_THROW(serial_factor_solver()({std::nan("")}, 1), FactorisationError);
  EXPECT_THROW(serial_factor_solver()({1, 0, 0}, 2), InvalidArgument);
}

std::vector<LayerSplit> splits_of(const NetworkDescription& net, const std::string& split) {
  const LayerSplit parsed = LayerSplit::parse(split);
  return resolve(Strategy::uniform(parsed), net, parsed.size());
}

TEST(KfacPlan, NamesOrdersOfFactorsAndOwners) {
  const NetworkDescription net = lenet5(views::make_extents(1, {28, 28}, 1), 10);
  const KfacPlan plan = plan_kfac(net, splits_of(net, "n2"), 2);
  ASSERT_EQ(plan.layers.size(), 5u);
  EXPECT_TRUE(plan.plain.empty());
  const KfacLayer &conv = plan.layers[0], &conv2 = plan.layers[1], &dense = plan.layers[2], &dense2 = plan.layers[3],
                  &last = plan.layers[4];
  EXPECT_EQ(conv.rows, 6);
  EXPECT_EQ(conv.columns, 5 * 5 * 1 + 1);
  EXPECT_EQ(conv.positions, 28 * 28);
  EXPECT_EQ(conv2.columns, 5 * 5 * 6 + 1);
  EXPECT_EQ(dense.rows, 120);
  EXPECT_EQ(dense.positions, 1);
  EXPECT_EQ(last.columns, 84 + 1);
  for (const KfacLayer& layer : plan.layers) EXPECT_TRUE(layer.bias);
  // The first dense layer has more work than all others together.
  EXPECT_EQ(dense.owner, 0);
  for (const KfacLayer& layer : {conv, conv2, dense2, last}) EXPECT_EQ(layer.owner, 1);
}

TEST(KfacPlan, LeavesOtherLayersToSgd) {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {8, 8}, 4);
  net.loss = Loss::mean_squared_error;
  net.layers = {{"conv", Convolution{4, square_window(2, 3, 1, 1), false}, {"input"}},
                {"norm", BatchNorm{}, {"conv"}},
                {"groups", Convolution{4, square_window(2, 3, 1, 1), true, 2}, {"norm"}},
                {"up", TransposedConvolution{4, square_window(2, 2, 2)}, {"groups"}},
                {"last", Convolution{2, square_window(2, 1)}, {"up"}}};
  const KfacPlan plan = plan_kfac(net, splits_of(net, "h2"), 2);
  EXPECT_EQ(to_string(plan, net), "conv, last by K-FAC; norm, groups, up by SGD");
  EXPECT_FALSE(plan.layers[0].bias);
  EXPECT_EQ(plan.layers[0].columns, 36);
  EXPECT_EQ(plan.layers[1].positions, 16 * 16);

  net.layers = {{"groups", Convolution{4, square_window(2, 3, 1, 1), true, 2}, {"input"}}};
  EXPECT_THROW(plan_kfac(net, splits_of(net, "1"), 1), InvalidArgument);
  net.layers = {{"conv", Convolution{1, square_window(2, 1)}, {"input"}}};
  net.loss = Loss::dice;
  EXPECT_THROW(plan_kfac(net, splits_of(net, "1"), 1), Unsupported);
}

TEST(KfacPlan, RefusesSplitChannelsAndFilters) {
  const NetworkDescription net = lenet5(views::make_extents(1, {28, 28}, 1), 10);
  for (const char* split : {"f2", "c2", "n2f2"}) {
    try {
      plan_kfac(net, splits_of(net, split), LayerSplit::parse(split).size());
      ADD_FAILURE() << split;
    } catch (const Unsupported& e) {
      EXPECT_THAT(e.what(), AllOf(HasSubstr("conv1"), HasSubstr("--optimiser sgd")));
    }
  }
}

TEST(KfacOptions, AreChecked) {
  const auto fault = [](const KfacOptions& options) {
    try {
      check(options, "test");
      return std::string();
    } catch (const InvalidArgument& e) {
      return e.argument();
    }
  };
  EXPECT_EQ(fault({}), "");
  EXPECT_EQ(fault({.every = 0}), "K-FAC every");
  EXPECT_EQ(fault({.factors_every = 0}), "K-FAC factors_every");
  EXPECT_EQ(fault({.every = 4, .delay = 4}), "K-FAC delay");
  EXPECT_EQ(fault({.damping = 0}), "K-FAC damping");
  EXPECT_EQ(fault({.decay = 1}), "K-FAC decay");
  EXPECT_EQ(fault({.kl_clip = -1}), "K-FAC kl_clip");
  EXPECT_EQ(fault({.solver = {}}), "K-FAC solver");
}

}  // namespace test_kfac_options
}  // namespace aloni::nn
