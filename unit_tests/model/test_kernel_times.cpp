#include <aloni/core/error.hpp>
#include <aloni/model/kernel_times.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace aloni::model {
namespace test_kernel_times {

/// One core: 100 GFLOP/s; caches of 1 MB (100 GB/s) and 10 MB (50 GB/s); memory 10 GB/s for a core, 15 GB/s for a node.
Machine round_machine() {
  Machine machine = generic_machine();
  Processor& p = machine.processor;
  p.float32_flops = 100e9;
  p.core_bandwidth = 10e9;
  p.node_bandwidth = 15e9;
  p.core_cache_bytes = 1e6;
  p.node_cache_bytes = 10e6;
  p.core_cache_bandwidth = 100e9;
  p.node_cache_bandwidth = 50e9;
  p.kernel_seconds = 1e-6;
  p.efficiency = {{KernelKind::pointwise, 0.5}};
  return machine;
}

KernelCall call_of(double flops, double bytes) {
  return {.kind = KernelKind::pointwise, .features = {1, 2, 3, flops, bytes}, .flops = flops, .bytes = bytes};
}

/// A network that answers exp(2) seconds for any call.
LearnedKernel constant_model() {
  return {.kind = KernelKind::pointwise,
          .per_call = 1,
          .mean = {0, 0, 0, 0, 0},
          .deviation = {1, 1, 1, 1, 1},
          .least = {0, 0, 0, 0, 0},
          .largest = {10, 10, 10, 1e10, 1e10},
          .networks = {Perceptron{.layers = {{5, 1, {0, 0, 0, 0, 0}, {2}}}}},
          .relative_error = 0.07};
}

TEST(KernelTimes, RooflineTakesTheSlowerOfArithmeticAndTraffic) {
  const Machine machine = round_machine();
  EXPECT_DOUBLE_EQ(roofline_seconds(machine, call_of(1e9, 0), 1, 1), 1e9 / (100e9 * 0.5));
  EXPECT_DOUBLE_EQ(roofline_seconds(machine, call_of(0, 100e6), 1, 1), 100e6 / 10e9);
  EXPECT_DOUBLE_EQ(roofline_seconds(machine, call_of(1e9, 100e6), 1, 1), 0.02);
}

TEST(KernelTimes, RooflineTakesTheLevelThatHoldsTheBytes) {
  const Machine machine = round_machine();
  EXPECT_DOUBLE_EQ(roofline_seconds(machine, call_of(0, 1e6), 1, 1), 1e6 / 100e9);
  EXPECT_DOUBLE_EQ(roofline_seconds(machine, call_of(0, 8e6), 1, 1), 8e6 / 50e9);
  EXPECT_DOUBLE_EQ(roofline_seconds(machine, call_of(0, 8e6), 2, 1), 8e6 / 7.5e9);  // half of the cache is too small
}

TEST(KernelTimes, ACopiedByteTakesAsLongAsThisWork) {
  Machine machine = round_machine();
  machine.processor.bfloat16_flops = 400e9;
  machine.processor.efficiency[KernelKind::convolution_forward] = 0.5;
  machine.planning.on_host = false;
  machine.ranks_per_node = 1;
  EXPECT_EQ(work_per_copied_byte(machine), WorkPerCopiedByte{}) << "the bandwidth to the host is not known";
  machine.processor.host_bandwidth = 2e9;
  const WorkPerCopiedByte work = work_per_copied_byte(machine);
  EXPECT_DOUBLE_EQ(work.flops, 100e9 * 0.5 / 2e9);
  EXPECT_DOUBLE_EQ(work.flops_16_bit, 400e9 * 0.5 / 2e9);
  EXPECT_DOUBLE_EQ(work.traffic, 10e9 / 2e9);
  EXPECT_EQ(description_of(machine, 1).work_per_copied_byte, work);
  machine.planning.on_host = true;
  EXPECT_EQ(work_per_copied_byte(machine), WorkPerCopiedByte{});
}

TEST(KernelTimes, RanksShareTheMemoryOfTheirNode) {
  const Machine machine = round_machine();
  EXPECT_DOUBLE_EQ(roofline_seconds(machine, call_of(0, 100e6), 2, 1), 100e6 / 7.5e9);
  EXPECT_DOUBLE_EQ(roofline_seconds(machine, call_of(0, 100e6), 1, 2), 100e6 / 15e9);
}

TEST(KernelTimes, TheFirstSourceThatKnowsAProblemGivesItsTime) {
  Machine machine = round_machine();
  const KernelProblem problem{"pointwise a", {call_of(1e9, 0)}};
  const Estimate roofline = MachineKernels(machine, 1, 1).of(problem);
  EXPECT_EQ(roofline.source, KernelSource::roofline);
  EXPECT_DOUBLE_EQ(roofline.seconds, 1e-6 + 0.02);
  EXPECT_GT(roofline.relative_error, 0.1);

  machine.learned = {constant_model()};
  const Estimate learned = MachineKernels(machine, 1, 1).of(problem);
  EXPECT_EQ(learned.source, KernelSource::learned);
  EXPECT_DOUBLE_EQ(learned.seconds, std::exp(2.0));  // measured times include the start of a kernel
  EXPECT_NEAR(learned.relative_error, 0.07, 1e-6);
  // Outside of its training set nothing is predicted.
  EXPECT_EQ(MachineKernels(machine, 1, 1).of({"pointwise b", {call_of(1e12, 0)}}).source, KernelSource::roofline);

  machine.kernels = {{.ranks_per_node = 2, .threads_per_rank = 1, .times = {{"pointwise a", {0.5, 0.01, 10}}}}};
  EXPECT_EQ(MachineKernels(machine, 1, 1).of(problem).source, KernelSource::learned);
  const Estimate measured = MachineKernels(machine, 2, 1).of(problem);
  EXPECT_EQ(measured.source, KernelSource::measured);
  EXPECT_DOUBLE_EQ(measured.seconds, 0.5);
  EXPECT_DOUBLE_EQ(measured.relative_error, 0.01);
}

TEST(KernelTimes, TheErrorOfSeveralKernelsIsWeightedByTheirSeconds) {
  KernelSeconds kernels;
  EXPECT_FALSE(kernels.main_source());
  EXPECT_FALSE(kernels.relative_error());
  kernels.add(3, {1, KernelSource::learned, 0.2});  // the seconds are those of the step, not those of the estimate
  kernels.add(1, {9, KernelSource::measured, 0.04});
  EXPECT_DOUBLE_EQ(kernels.relative_error().value(), (3 * 0.2 + 1 * 0.04) / 4);
  ASSERT_TRUE(kernels.main_source());
  EXPECT_EQ(kernels.main_source()->source, KernelSource::learned);
  EXPECT_DOUBLE_EQ(kernels.main_source()->share, 0.75);
}

TEST(KernelTimes, TheErrorOfARooflineIsNotKnown) {
  KernelSeconds rooflines;
  rooflines.add(6, {6, KernelSource::roofline, 0.4});
  EXPECT_FALSE(rooflines.relative_error());
  EXPECT_EQ(rooflines.main_source()->source, KernelSource::roofline);
  KernelSeconds kernels;
  kernels.add(2, {2, KernelSource::learned, 0.1});
  kernels += rooflines;
  EXPECT_DOUBLE_EQ(kernels.relative_error().value(), 0.1) << "that of the learned kernels alone";
  EXPECT_EQ(kernels.by_source, (std::array<double, kernel_sources>{0, 2, 6}));
  EXPECT_DOUBLE_EQ(kernels.sum(), 8);
  EXPECT_DOUBLE_EQ(kernels.main_source()->share, 0.75);
}

TEST(KernelTimes, AMachineWithoutRatesIsRefused) {
  Machine machine = round_machine();
  machine.processor.node_bandwidth = 0;
  try {
    const MachineKernels kernels(machine, 1, 1);
    FAIL() << "a machine without the bandwidth of its memory was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("processor.node_bandwidth"), std::string::npos) << error.what();
  }
}

TEST(KernelTimes, LearnedKernelsEvaluateTheirLayers) {
  // Inputs 1 and 3 become log 2 and log 4; the hidden layer has one positive and one negative value.
  const LearnedKernel model{
      .kind = KernelKind::copy,
      .per_call = 0.5,
      .per_flop = 2,
      .per_byte = 0.25,
      .mean = {0, std::log(2.0)},
      .deviation = {std::log(2.0), 1},
      .seconds_mean = -3,
      .seconds_deviation = 2,
      .least = {0, 0},
      .largest = {5, 5},
      .networks = {{{{2, 2, {1, 0, -1, 0}, {1, 0.5f}}, {2, 1, {0.5f, 7}, {0.25f}}}}, {{{2, 1, {1, 0}, {1}}}}}};
  const KernelCall call{.kind = KernelKind::copy, .features = {1, 3}, .flops = 1, .bytes = 12};
  EXPECT_DOUBLE_EQ(bound_of(model, call), 3.5);
  EXPECT_DOUBLE_EQ(predict(model, call), 3.5 * std::exp(((0.5 * 2 + 0.25) + 2) / 2 * 2 - 3));
  EXPECT_TRUE(covers(model, call));
  // Beyond the measured problems the factor is that of the last one, and the bound grows.
  KernelCall large{.kind = KernelKind::copy, .features = {1, 20}, .flops = 20, .bytes = 12};
  EXPECT_TRUE(covers(model, large));
  const double by_bound = predict(model, large) / bound_of(model, large);
  large.features[1] = 5;
  EXPECT_DOUBLE_EQ(predict(model, large) / bound_of(model, large), by_bound);
  large.features[1] = 383;  // 1 + 383 is 64 times 1 + 5
  EXPECT_TRUE(covers(model, large));
  large.features[1] = 384;
  EXPECT_FALSE(covers(model, large));
}

// Calibrations measure no slab of an interior: in all their convolutions the first call orders the filters.
TEST(KernelTimes, LearnedKernelsCoverFlagsThatAllMeasurementsShare) {
  const LearnedKernel model{.kind = KernelKind::copy, .least = {1, 0, 127}, .largest = {1, 0, 512}};
  const auto is_covered = [&](std::vector<double> features) {
    return covers(model, {.kind = KernelKind::copy, .features = std::move(features)});
  };
  EXPECT_TRUE(is_covered({0, 0, 128}));
  EXPECT_TRUE(is_covered({1, 1, 128}));
  EXPECT_TRUE(is_covered({1, 0, 1}));
  EXPECT_FALSE(is_covered({1, 0, 0}));
}

}  // namespace test_kernel_times
}  // namespace aloni::model
