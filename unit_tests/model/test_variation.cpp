#include "round_times.hpp"

#include <aloni/core/error.hpp>
#include <aloni/model/variation.hpp>
#include <aloni/nn/models.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <string>

namespace aloni::model {
namespace test_variation {

nn::NetworkDescription small_network() { return nn::make_model("lenet5"); }

/// Kernels alone take time, in proportion to their flops. The samples of a rank stay equal.
VariedSteps of_kernels(const std::string& split, int ranks, const Variation& variation,
                       const SimulationOptions& options = {}) {
  const auto net = small_network();
  return simulate_variation(net, layers_of(net, split, ranks, 4 * Index{ranks}), free_machine(), RoundTimes(0, 1e-9),
                            variation, options);
}

/// Devices, each in its own node. Links between nodes alone take time.
Machine machine_of_links(double factor = 1) {
  Machine machine = free_machine();
  machine.planning.on_host = false;
  machine.ranks_per_node = 1;
  machine.links[static_cast<std::size_t>(LinkKind::between_nodes)] = {.latency = factor * 1e-5,
                                                                      .seconds_per_byte = factor * 1e-9};
  return machine;
}

VariedSteps of_links(const Machine& machine, const std::string& split, int ranks, const Variation& variation) {
  const auto net = small_network();
  return simulate_variation(net, layers_of(net, split, ranks, 4 * Index{ranks}), machine, RoundTimes(0), variation);
}

TEST(Variation, NothingChangesWithoutADistribution) {
  const Variation nothing{.slow_link_factor = 3, .draws = 3};
  for (const int ranks : {2, 64}) {
    const VariedSteps steps = of_kernels("n" + std::to_string(ranks), ranks, nothing);
    EXPECT_GT(steps.without, 0);
    for (const double seconds : {steps.mean, steps.median, steps.percentile_95}) EXPECT_EQ(seconds, steps.without);
  }
  // Ranks of one node have no link that can be slow.
  const VariedSteps within = of_kernels("n2", 2, {.slow_link_share = 1, .slow_link_factor = 3, .draws = 3});
  EXPECT_DOUBLE_EQ(within.mean, within.without);
}

TEST(Variation, EqualSeedsGiveEqualResults) {
  const auto mean = [](std::uint64_t seed) {
    return of_kernels("n16", 16, {.straggler_sigma = 0.1, .draws = 10, .seed = seed}).mean;
  };
  EXPECT_EQ(mean(1), mean(1));
  EXPECT_NE(mean(1), mean(2));
}

// The mean of the larger one of two lognormal numbers is 2 exp(sigma²/2) Phi(sigma / sqrt(2)).
TEST(Variation, TwoRanksTakeTheLargerOfTwoFactors) {
  const double sigma = 0.2;
  const int draws = 2000;
  const VariedSteps steps = of_kernels("n2", 2, {.straggler_sigma = sigma, .draws = draws});
  const double expected = std::exp(sigma * sigma / 2) * (1 + std::erf(sigma / 2));
  const double error = sigma / std::sqrt(draws);  // above the standard error
  EXPECT_NEAR(steps.mean / steps.without, expected, 4 * error);
  // The quantiles of one factor at the square roots of 0.5 and 0.95.
  EXPECT_NEAR(steps.median / steps.without, std::exp(0.5449 * sigma), 6 * error);
  EXPECT_NEAR(steps.percentile_95 / steps.without, std::exp(1.9545 * sigma), 12 * error);
}

TEST(Variation, MoreRanksWaitLonger) {
  double before = 0;
  for (const int ranks : {1, 16, 256, 4096}) {
    const VariedSteps steps = of_kernels("n" + std::to_string(ranks), ranks, {.straggler_sigma = 0.1, .draws = 100});
    const double factor = steps.mean / steps.without;
    EXPECT_GT(factor, before + 0.05);
    before = factor;
  }
  // The largest one of 4,096 normal numbers is 3.59 on average.
  EXPECT_NEAR(before, std::exp(0.359), 0.02);
}

// n16 has equal plans. The plans of n4h4 differ: there the classes are an upper bound.
TEST(Variation, ClassesTakeTheTimeOfTheirRanks) {
  const Variation variation{.straggler_sigma = 0.1, .draws = 400};
  for (const std::string split : {"n16", "n4h4"}) {
    const VariedSteps classes = of_kernels(split, 16, variation);
    const VariedSteps ranks = of_kernels(split, 16, variation, {.most_single_ranks = 16});
    EXPECT_NEAR(classes.without, ranks.without, 1e-9 * ranks.without);
    const double classes_factor = classes.mean / classes.without, ranks_factor = ranks.mean / ranks.without;
    const double error = 4 * 0.1 * std::sqrt(2.0 / variation.draws);  // above that of the difference
    EXPECT_NEAR(classes_factor, ranks_factor, error) << split;
    EXPECT_GT(ranks_factor, 1.1);
  }
}

TEST(Variation, AllLinksSlowAreASlowerMachine) {
  const Variation variation{.slow_link_share = 1, .slow_link_factor = 4, .draws = 2};
  for (const int ranks : {4, 32}) {  // walked by rank, and by class
    const std::string split = "n" + std::to_string(ranks / 2) + "h2";
    const VariedSteps slow = of_links(machine_of_links(), split, ranks, variation);
    const double expected = of_links(machine_of_links(4), split, ranks, {}).without;
    EXPECT_NEAR(slow.mean, expected, 1e-9 * expected);
    EXPECT_GT(slow.mean, 2 * slow.without);
  }
}

// All sums take four times as long if one of the nodes has a slow link.
TEST(Variation, OneSlowLinkSlowsTheSumsOfAllNodes) {
  const double share = 0.03;
  const int draws = 1000;
  for (const int ranks : {2, 32}) {
    const VariedSteps steps = of_links(machine_of_links(), "n" + std::to_string(ranks), ranks,
                                       {.slow_link_share = share, .slow_link_factor = 4, .draws = draws});
    const double any = 1 - std::pow(1 - share, ranks);
    EXPECT_NEAR(steps.mean / steps.without, 1 + 3 * any, 4 * 3 * 0.5 / std::sqrt(draws)) << ranks;
  }
}

TEST(Variation, TheLargestOfManyNumbersIsDrawnAtOnce) {
  EXPECT_NEAR(largest_lognormal(1, 1, 0.5), 1, 1e-9);
  EXPECT_NEAR(largest_lognormal(2, 1, 0.975), std::exp(2 * 1.959963985), 1e-6);
  EXPECT_NEAR(largest_lognormal(1, 1, 0.025), std::exp(-1.959963985), 1e-9);
  for (const double u : {1e-9, 0.1, 0.5, 0.999}) {
    const double x = std::log(largest_lognormal(1, 1'000'000, u));
    const double above = std::erfc(x / std::numbers::sqrt2) / 2;
    EXPECT_NEAR(std::exp(1e6 * std::log1p(-above)), u, 1e-6 * u);
  }
  EXPECT_GT(largest_lognormal(1, 1, 0), 0);
  EXPECT_LT(largest_lognormal(1, 1'000'000, 1 - 0x1p-53), 1e5);
}

TEST(Variation, RefusesValuesOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Variation& bad :
       {Variation{.straggler_sigma = -0.1}, Variation{.straggler_sigma = nan}, Variation{.slow_link_share = 1.1},
        Variation{.slow_link_share = -0.1}, Variation{.slow_link_factor = 0.5}, Variation{.draws = 0}})
    EXPECT_THROW(of_kernels("n2", 2, bad), InvalidArgument);
}

}  // namespace test_variation
}  // namespace aloni::model
