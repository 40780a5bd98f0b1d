#include "round_times.hpp"

#include <aloni/model/step_limits.hpp>
#include <aloni/nn/models.hpp>

#include <gmock/gmock.h>

#include <string>

namespace aloni::model {
namespace test_step_limits {

using testing::HasSubstr;

nn::NetworkDescription small_resnet() {
  return nn::make_model("resnet18", {.input = views::make_extents(1, {32, 32}, 3)});
}

/// Devices, each in its own node. Only messages between nodes take time.
Machine devices(double latency, double seconds_per_byte) {
  Machine machine = free_machine();
  machine.name = "devices";
  machine.planning.on_host = false;
  machine.ranks_per_node = 1;
  machine.links[static_cast<std::size_t>(LinkKind::between_nodes)] = {latency, seconds_per_byte, 0};
  return machine;
}

StepLimits limits_of(const std::string& split, int ranks, const Machine& machine, const KernelTimes& kernels,
                     const SimulationOptions& options = {}) {
  const auto net = small_resnet();
  return choose_step_limits(net, layers_of(net, split, ranks, ranks), machine, kernels, options);
}

double simulated(const std::string& split, int ranks, Machine machine, const KernelTimes& kernels,
                 const StepLimits& limits) {
  const auto net = small_resnet();
  machine.planning.bucket_bytes = limits.bucket_bytes;
  SimulationOptions options;
  options.step.largest_overhead = limits.largest_overhead;
  return simulate(net, layers_of(net, split, ranks, ranks), machine, kernels, options).seconds;
}

TEST(StepLimits, LatencyMakesBucketsLarger) {
  Machine machine = devices(1e-2, 1e-12);
  machine.planning.on_host = true;  // cores take part in each step of a sum
  const RoundTimes fast(0);
  const StepLimits limits = limits_of("n4", 4, machine, fast);
  EXPECT_EQ(limits.bucket_bytes, Index{16} << 20);
  EXPECT_LT(limits.seconds, 0.9 * limits.seconds_before);
  EXPECT_DOUBLE_EQ(limits.seconds, simulated("n4", 4, machine, fast, limits));
  EXPECT_THAT(limits.reason, HasSubstr("buckets of 16 MiB, not 1 MiB; a step takes "));
  EXPECT_FALSE(limits.largest_overhead);
}

// The last bucket is summed when no kernel is left. A smaller one leaves less.
TEST(StepLimits, BandwidthMakesBucketsSmaller) {
  Machine machine = devices(0, 2e-9);
  machine.planning.bucket_bytes = Index{16} << 20;
  const RoundTimes kernels(1e-3);
  const StepLimits limits = limits_of("n4", 4, machine, kernels);
  EXPECT_EQ(limits.bucket_bytes, Index{4} << 20);
  EXPECT_LT(limits.seconds, limits.seconds_before);
}

TEST(StepLimits, ConstantsAreKeptWhereNothingIsGained) {
  for (const auto& [split, ranks] : {std::pair("1", 1), std::pair("n2", 2), std::pair("h2", 2)}) {
    const StepLimits limits = limits_of(split, ranks, devices(0, 0), RoundTimes(1e-3));
    EXPECT_EQ(limits.bucket_bytes, Index{1} << 20) << split;
    EXPECT_FALSE(limits.largest_overhead) << split;
    EXPECT_EQ(limits.seconds, limits.seconds_before) << split;
    EXPECT_THAT(limits.reason, HasSubstr("as given")) << split;
  }
}

// A kernel that takes the same time for any box makes a second call expensive. Slow messages pay for it.
TEST(StepLimits, SlowMessagesPutInteriorsFirst) {
  const auto net = nn::make_model("mesh1k", {.input = views::make_extents(1, {512, 512}, 18)});
  const auto layers = layers_of(net, "h2", 2, 1);
  const auto overhead = [&](double latency, double limit) {
    SimulationOptions options;
    options.step.largest_overhead = limit;
    Machine machine = devices(latency, 0);
    machine.planning.on_host = true;
    return choose_step_limits(net, layers, machine, RoundTimes(0, 1e-9), options).largest_overhead;
  };
  EXPECT_EQ(overhead(0.5, interior_at_once), interior_always_first);
  EXPECT_EQ(overhead(0, interior_at_once), interior_at_once);  // nothing to hide
  const auto calls = [&](double limit) {
    SimulationOptions options;
    options.step.largest_overhead = limit;
    Machine machine = devices(0, 0);
    machine.planning.on_host = true;
    return choose_step_limits(net, layers, machine, RoundTimes(1e-3), options).largest_overhead;
  };
  EXPECT_EQ(calls(interior_always_first), interior_at_once);
}

}  // namespace test_step_limits
}  // namespace aloni::model
