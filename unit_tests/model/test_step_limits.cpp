#include "round_times.hpp"

#include <aloni/model/step_limits.hpp>
#include <aloni/nn/models.hpp>

#include <gmock/gmock.h>

#include <optional>
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

TEST(StepLimits, ASlabHidesItsCallAndItsCache) {
  Machine machine = generic_machine();  // 85 Gflop/s; 1 µs for a call; 1 MiB of cache at 30 GB/s
  machine.links[static_cast<std::size_t>(LinkKind::between_nodes)] = {};
  machine.planning.interior_overhead_beside_messages = 0.05;
  const double seconds = (1e-6 + (1 << 20) / 30e9) / 0.05;
  EXPECT_NEAR(multiplications_per_slab(machine), seconds * 0.85 * 100e9 / 2, 1e-6 * seconds * 85e9);
  machine.threads_per_rank = 2;
  EXPECT_NEAR(multiplications_per_slab(machine), 2 * seconds * 0.85 * 100e9 / 2, 2e-6 * seconds * 85e9);
}

TEST(StepLimits, ASlabWaitsForAFragment) {
  Machine machine = generic_machine();
  machine.links[static_cast<std::size_t>(LinkKind::between_nodes)] = {1e-3, 1e-7, 0};
  machine.planning.fragment_bytes = 10'000;
  EXPECT_NEAR(multiplications_per_slab(machine), 2e-3 * 0.85 * 100e9 / 2, 1e3);
  machine.planning.fragment_bytes = Index{1} << 30;  // such messages need no help
  EXPECT_NEAR(multiplications_per_slab(machine), (1e-3 + 60 * 1024 * 1e-7) * 0.85 * 100e9 / 2, 1e3);
}

TEST(StepLimits, WithoutMeasuredProcessorSlabsStay) {
  Machine machine = generic_machine();
  machine.planning.multiplications_per_slab = 77;
  machine.processor.kernel_seconds = 0;
  EXPECT_EQ(multiplications_per_slab(machine), 77);
}

// The last bucket is summed when no kernel is left. A smaller one leaves less.
TEST(StepLimits, BandwidthMakesBucketsSmaller) {
  Machine machine = devices(0, 1e-9);
  machine.planning.bucket_bytes = Index{16} << 20;
  const RoundTimes kernels(1e-3);
  const StepLimits limits = limits_of("n4", 4, machine, kernels);
  EXPECT_EQ(limits.bucket_bytes, Index{1} << 20);
  EXPECT_LT(limits.seconds, limits.seconds_before);
}

// LeNet-5 has 241 KiB of gradients, less than one bucket.
TEST(StepLimits, FewGradientsAreSplitIntoBucketsToo) {
  const auto net = nn::make_model("lenet5");
  const auto layers = layers_of(net, "n2", 2, 2);
  const RoundTimes kernels(1e-3);
  const StepLimits slow = choose_step_limits(net, layers, devices(0, 1e-7), kernels);
  EXPECT_LT(slow.bucket_bytes, 100'000);
  EXPECT_LT(slow.seconds, 0.9 * slow.seconds_before);
  const StepLimits fast = choose_step_limits(net, layers, devices(0, 1e-12), kernels);
  EXPECT_EQ(fast.bucket_bytes, Index{1} << 20);
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

TEST(StepLimits, LatencyMakesChunksLarger) {
  const auto net = nn::make_model("vgg16");
  Machine machine = devices(1e-2, 1e-12);
  machine.planning.on_host = true;
  machine.planning.bucket_bytes = Index{1} << 40;  // one
  const auto layers = layers_of(net, "c4", 4, 16);
  const RoundTimes fast(0);
  const StepLimits limits = choose_step_limits(net, layers, machine, fast);
  EXPECT_EQ(limits.chunk_bytes, Index{16} << 20);
  EXPECT_LT(limits.seconds, limits.seconds_before);
  EXPECT_THAT(limits.reason, HasSubstr("chunks of 16 MiB, not 1 MiB; a step takes "));
  machine.planning.chunk_bytes = static_cast<double>(limits.chunk_bytes);
  EXPECT_DOUBLE_EQ(limits.seconds, simulate(net, layers, machine, fast).seconds);
}

/// The decision about interiors of two ranks on two nodes, from a given limit. Four convolutions of 18 MFLOP each.
std::optional<double> overhead_for(double latency, const KernelTimes& kernels, double given) {
  const nn::Window window = nn::square_window(2, 3, 1, 1);
  nn::NetworkDescription net{.spatial_rank = 2,
                             .input = views::make_extents(1, {256, 256}, 4),
                             .layers = {},
                             .loss = nn::Loss::mean_squared_error};
  for (const char* const name : {"a", "b", "c", "d"}) {
    const std::string source = net.layers.empty() ? "input" : net.layers.back().name;
    net.layers.push_back({name, nn::Convolution{4, window}, {source}});
  }
  Machine machine = devices(latency, 0);
  machine.planning.on_host = true;
  SimulationOptions options;
  options.step.largest_overhead = given;
  return choose_step_limits(net, layers_of(net, "h2", 2, 1), machine, kernels, options).largest_overhead;
}

TEST(StepLimits, SlowMessagesPutInteriorsFirst) {
  const RoundTimes kernels(0, 1e-9);  // 9 ms for each convolution
  EXPECT_EQ(overhead_for(5e-3, kernels, interior_at_once), interior_always_first);
  EXPECT_EQ(overhead_for(0, kernels, interior_at_once), interior_at_once);  // nothing to hide
}

TEST(StepLimits, ExpensiveCallsPutNoInteriorFirst) {
  const RoundTimes calls(1e-3);  // of any box
  EXPECT_EQ(overhead_for(0, calls, interior_always_first), interior_at_once);
}

}  // namespace test_step_limits
}  // namespace aloni::model
