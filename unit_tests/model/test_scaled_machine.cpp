#include "every_field.hpp"

#include <aloni/core/error.hpp>
#include <aloni/model/scaled_machine.hpp>
#include <aloni/model/shipped_machines.hpp>

#include <gtest/gtest.h>

#include <limits>

namespace aloni::model {
namespace test_scaled_machine {

double seconds_per_byte(const Machine& machine, LinkKind kind) { return machine.link(kind).seconds_per_byte; }

KernelProblem problem(const std::string& key, double flops, double bytes) {
  KernelCall call{.kind = KernelKind::dense};
  call.flops = flops;
  call.bytes = bytes;
  return {.key = key, .calls = {call}};
}

TEST(ScaledMachine, IsTheSameMachineWithoutFactors) {
  const Machine machine = aloni::test::machine_with_every_field();
  EXPECT_EQ(scaled(machine, {}), machine);
}

TEST(ScaledMachine, OfAHostExchangesThroughItsMemory) {
  const Machine machine = find_machine("x86_server");
  const Machine memory = scaled(machine, {.memory_bandwidth = 2}), links = scaled(machine, {.link_bandwidth = 4});
  for (const LinkKind kind : {LinkKind::self, LinkKind::shared_memory, LinkKind::within_node}) {
    EXPECT_EQ(seconds_per_byte(memory, kind), seconds_per_byte(machine, kind) / 2) << name(kind);
    EXPECT_EQ(seconds_per_byte(links, kind), seconds_per_byte(machine, kind)) << name(kind);
  }
  EXPECT_EQ(seconds_per_byte(memory, LinkKind::between_nodes), seconds_per_byte(machine, LinkKind::between_nodes));
  EXPECT_EQ(seconds_per_byte(links, LinkKind::between_nodes), seconds_per_byte(machine, LinkKind::between_nodes) / 4);
  EXPECT_EQ(memory.combine_seconds_per_byte, machine.combine_seconds_per_byte / 2);
  EXPECT_EQ(memory.processor.node_bandwidth, machine.processor.node_bandwidth * 2);
  EXPECT_EQ(memory.processor.core_cache_bandwidth, machine.processor.core_cache_bandwidth);
}

TEST(ScaledMachine, OfDevicesExchangesOverLinks) {
  const Machine machine = find_machine("lassen");
  const Machine links = scaled(machine, {.link_bandwidth = 4});
  EXPECT_EQ(seconds_per_byte(links, LinkKind::self), seconds_per_byte(machine, LinkKind::self));
  for (const LinkKind kind : {LinkKind::shared_memory, LinkKind::within_node, LinkKind::between_nodes})
    EXPECT_EQ(seconds_per_byte(links, kind), seconds_per_byte(machine, kind) / 4) << name(kind);
  EXPECT_EQ(links.link(LinkKind::between_nodes).latency, machine.link(LinkKind::between_nodes).latency);
}

TEST(ScaledMachine, KeepsMeasuredAllReducesOnlyWithItsBandwidths) {
  const Machine machine = aloni::test::machine_with_every_field();
  EXPECT_EQ(scaled(machine, {.flops = 2}).all_reduces, machine.all_reduces);
  EXPECT_TRUE(scaled(machine, {.memory_bandwidth = 2}).all_reduces.empty());
  EXPECT_TRUE(scaled(machine, {.link_bandwidth = 0.5}).all_reduces.empty());
}

TEST(ScaledMachine, RefusesFactorsThatAreNotPositive) {
  for (const double wrong :
       {0.0, -1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(scaled(generic_machine(), {.flops = wrong}), InvalidArgument);
    EXPECT_THROW(scaled(generic_machine(), {.memory_bandwidth = wrong}), InvalidArgument);
    EXPECT_THROW(scaled(generic_machine(), {.link_bandwidth = wrong}), InvalidArgument);
  }
}

TEST(ScaledKernels, ScaleMeasuredTimesByTheLimitOfTheKernel) {
  Machine machine = generic_machine();
  machine.processor.kernel_seconds = 0;
  machine.kernels = {{.ranks_per_node = 2,
                      .threads_per_rank = 1,
                      .times = {{"arithmetic", {.seconds = 3, .runs = 10}}, {"traffic", {.seconds = 5, .runs = 10}}}}};
  const KernelProblem arithmetic = problem("arithmetic", 1e12, 1), traffic = problem("traffic", 1, 1e12);
  const Machine flops = scaled(machine, {.flops = 2}), memory = scaled(machine, {.memory_bandwidth = 4});
  const ScaledKernels with_flops(machine, flops, 2, 1), with_memory(machine, memory, 2, 1);
  EXPECT_DOUBLE_EQ(with_flops.of(arithmetic).seconds, 1.5);
  EXPECT_DOUBLE_EQ(with_flops.of(traffic).seconds, 5);
  EXPECT_DOUBLE_EQ(with_memory.of(arithmetic).seconds, 3);
  EXPECT_DOUBLE_EQ(with_memory.of(traffic).seconds, 1.25);
  EXPECT_EQ(with_memory.of(traffic).source, KernelSource::measured);
}

TEST(ScaledKernels, KeepTheTimeOfACall) {
  Machine machine = generic_machine();
  machine.processor.kernel_seconds = 1;
  const Machine flops = scaled(machine, {.flops = 10});
  const ScaledKernels kernels(machine, flops, 2, 1);
  EXPECT_NEAR(kernels.of(problem("small", 1, 1)).seconds, 1, 1e-6);
}

}  // namespace test_scaled_machine
}  // namespace aloni::model
