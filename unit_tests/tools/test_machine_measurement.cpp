// The measurement of a machine: equal on all ranks, and every field that this job can measure is plausible.
#include "support/transport.hpp"

#include <aloni/model/kernel_times.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/tools/kernel_measurement.hpp>
#include <aloni/tools/machine_measurement.hpp>

#include <gtest/gtest.h>

namespace aloni::tools {
namespace test_machine_measurement {

const model::Machine& machine_of(const comm::Communicator& comm) {
  static const model::Machine machine = measure_machine(comm, {.seconds_per_probe = 0.002, .largest_sum_bytes = 4096});
  return machine;
}

void expect_within(double value, double least, double most, const char* what) {
  EXPECT_GE(value, least) << what;
  EXPECT_LE(value, most) << what;
}

TEST(MachineMeasurement, FieldsArePlausible) {
  const auto comm = aloni::test::make_communicator();
  const model::Machine& machine = machine_of(comm);
  const model::Processor& p = machine.processor;
  EXPECT_FALSE(p.name.empty());
  EXPECT_EQ(machine.ranks_per_node, comm.node().size());
  expect_within(p.float32_flops, 1e8, 1e15, "float32_flops");
  expect_within(p.float64_flops, 1e8, 1e15, "float64_flops");
  expect_within(p.core_bandwidth, 1e8, 1e13, "core_bandwidth");
  expect_within(p.node_bandwidth, 1e8, 1e13, "node_bandwidth");
  expect_within(p.kernel_seconds, 1e-9, 1e-3, "kernel_seconds");
  expect_within(machine.memory_bytes, 1e8, 1e14, "memory_bytes");
  expect_within(machine.combine_seconds_per_byte, 1e-13, 1e-7, "combine_seconds_per_byte");
  if (comm.node().size() < 2) return;
  const model::LinkCosts& link = machine.link(model::LinkKind::within_node);
  expect_within(link.latency, 1e-9, 0.1, "latency");
  expect_within(link.seconds_per_byte, 1e-13, 1e-5, "seconds_per_byte");
  EXPECT_FALSE(machine.all_reduces.empty());
  const auto direct = static_cast<double>(machine.planning.direct_bytes);
  if (machine.planning.shared_memory) expect_within(direct, 1 << 10, 4 << 20, "direct_bytes");
}

TEST(MachineMeasurement, IsEqualOnAllRanks) {
  const auto comm = aloni::test::make_communicator();
  const model::Machine& machine = machine_of(comm);
  const auto expect_equal = [&](double value) {
    EXPECT_EQ(comm.all_reduce(value, comm::Reduction::min), comm.all_reduce(value, comm::Reduction::max));
  };
  const model::Processor& p = machine.processor;
  for (const double value :
       {p.float32_flops, p.float64_flops, p.bfloat16_flops, p.core_bandwidth, p.node_bandwidth, p.core_cache_bandwidth,
        p.node_cache_bandwidth, p.kernel_seconds, machine.memory_bytes, machine.exchange_seconds,
        machine.combine_seconds_per_byte, static_cast<double>(machine.planning.direct_bytes)})
    expect_equal(value);
  for (const model::LinkCosts& link : machine.links)
    for (const double value : {link.latency, link.seconds_per_byte, link.seconds_per_message}) expect_equal(value);
}

TEST(KernelMeasurement, FillsATableThatPricesThePlan) {
  const auto comm = aloni::test::make_communicator();
  model::Machine machine = machine_of(comm);
  const model::PlannedNetwork net{nn::lenet5(views::make_extents(1, {28, 28}, 1), 10),
                                  nn::Strategy::uniform(nn::LayerSplit::parse("n2")), 2, 2};
  machine.ranks_per_node = std::max(2, machine.ranks_per_node);
  const auto tasks = model::kernel_tasks({net}, machine, {});
  model::KernelTable table{.ranks_per_node = comm.size(), .threads_per_rank = 1};
  const model::MeasureKernel measure = kernel_measurement(comm, machine, {.runs = 1, .least_seconds = 0});
  model::measure_kernels(tasks, measure, table, [](const model::KernelProgress&) { return true; });
  machine.kernels = {table};
  const model::MachineKernels kernels(machine, comm.size(), 1);
  for (const model::KernelTask& task : tasks) {
    const nn::PlanNode& node = task.plan->nodes[static_cast<std::size_t>(task.node)];
    EXPECT_EQ(kernels.of(model::kernel_of(*task.plan, node)).source, model::KernelSource::measured) << task.key;
  }
}

}  // namespace test_machine_measurement
}  // namespace aloni::tools
