// The measurement of a machine: equal on all ranks, and every field that this job can measure is plausible.
#include "support/transport.hpp"

#include <aloni/core/memory.hpp>
#include <aloni/model/kernel_times.hpp>
#include <aloni/model/machine_file.hpp>
#include <aloni/model/sample_networks.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/tools/collective_measurement.hpp>
#include <aloni/tools/job_machine.hpp>
#include <aloni/tools/kernel_measurement.hpp>
#include <aloni/tools/kernels_in_steps.hpp>
#include <aloni/tools/machine_measurement.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

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
  if (machine.planning.on_host) {
    EXPECT_EQ(p.host_bandwidth, 0);
  } else {
    expect_within(p.host_bandwidth, 1e8, 1e12, "host_bandwidth");
  }
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

TEST(MachineMeasurement, TheMemoryOfAJobIsSharedByTheRanksOfItsNode) {
  const auto comm = aloni::test::make_communicator();
  KernelPlace place = kernel_place(comm);
  EXPECT_GT(place.memory_bytes, 0);
  if (place.on_host) {
    EXPECT_DOUBLE_EQ(place.memory_bytes * comm.node().size(), static_cast<double>(usable_memory_bytes()));
  }
  EXPECT_DOUBLE_EQ(place.host_memory_bytes * comm.node().size(), static_cast<double>(usable_memory_bytes()));
  // Ranks that share a device share its memory.
  EXPECT_EQ(ranks_with_equal(comm, "0000:01:00.0"), comm.size());
  EXPECT_EQ(ranks_with_equal(comm, std::to_string(comm.rank())), 1);
  place.memory_bytes = 1e9;
  const model::Machine job = job_machine(std::nullopt, comm, place);
  EXPECT_EQ(job.planning.direct_bytes, place.planning.direct_bytes);
  EXPECT_LT(job.memory_bytes, 1e9) << "besides the buffers there are libraries and batches";
  EXPECT_GT(job.memory_bytes, 0.9e9);
}

TEST(MachineMeasurement, SumsOverASlowLinkAreShorter) {
  model::Machine machine;
  machine.links[static_cast<std::size_t>(model::LinkKind::within_node)].seconds_per_byte = 1e-10;
  auto& between = machine.links[static_cast<std::size_t>(model::LinkKind::between_nodes)].seconds_per_byte;
  EXPECT_EQ(largest_measured_bytes(machine, {}), 32u << 20);
  EXPECT_EQ(largest_measured_bytes(machine, quick_measurement()), 4u << 20);
  between = 8e-9;  // 1 Gbit/s
  EXPECT_EQ(largest_measured_bytes(machine, {}), 8u << 20);
  EXPECT_EQ(largest_measured_bytes(machine, quick_measurement()), 128u << 10);
  between = 8e-7;
  EXPECT_EQ(largest_measured_bytes(machine, quick_measurement()), 64u << 10);
  EXPECT_EQ(largest_measured_bytes(machine, {.largest_sum_bytes = 4096}), 4096u);
}

TEST(MachineMeasurement, AJobTakesTheSizesOfTransfersFromItsFile) {
  const auto comm = aloni::test::make_communicator();
  KernelPlace place = kernel_place(comm);
  place.planning.consolidate_below = default_consolidate_below;
  model::Machine file;
  file.planning.direct_bytes = 5;
  file.planning.consolidate_below = 6;
  const model::Machine job = job_machine(file, comm, place);
  EXPECT_EQ(job.planning.direct_bytes, place.planning.direct_bytes == unlimited_bytes ? unlimited_bytes : 5);
  EXPECT_EQ(job.planning.consolidate_below, 6);
  place.planning.direct_bytes = unlimited_bytes;  // of messages with checksums
  place.planning.consolidate_below = 0;
  const model::Machine checked = job_machine(file, comm, place);
  EXPECT_EQ(checked.planning.direct_bytes, unlimited_bytes);
  EXPECT_EQ(checked.planning.consolidate_below, 0);
}

TEST(MachineMeasurement, IsEqualOnAllRanks) {
  const auto comm = aloni::test::make_communicator();
  const model::Machine& machine = machine_of(comm);
  const auto expect_equal = [&](double value) {
    EXPECT_EQ(comm.all_reduce(value, comm::Reduction::min), comm.all_reduce(value, comm::Reduction::max));
  };
  const model::Processor& p = machine.processor;
  for (const double value :
       {p.float32_flops, p.float64_flops, p.bfloat16_flops, p.float16_flops, p.core_bandwidth, p.node_bandwidth,
        p.core_cache_bandwidth, p.node_cache_bandwidth, p.host_bandwidth, p.kernel_seconds, machine.memory_bytes,
        machine.exchange_seconds, machine.combine_seconds_per_byte, static_cast<double>(machine.planning.direct_bytes)})
    expect_equal(value);
  for (const model::LinkCosts& link : machine.links)
    for (const double value : {link.latency, link.seconds_per_byte, link.seconds_per_message}) expect_equal(value);
}

/// The number of calls; each names the next time, of equally many.
class Calls {
 public:
  std::function<void(std::size_t, std::size_t)> counting() {
    return [this](std::size_t done, std::size_t all) {
      EXPECT_EQ(done, ++calls_);
      EXPECT_TRUE(all_ == 0 || all == all_) << all;
      all_ = all;
    };
  }
  void expect_all_of(const std::vector<CommunicationTimes>& rows) const {
    std::size_t sizes = 0;
    for (const CommunicationTimes& row : rows) sizes += row.times.size();
    EXPECT_EQ(calls_, 2 * sizes);
    EXPECT_EQ(all_, 2 * sizes);
  }

 private:
  std::size_t calls_ = 0, all_ = 0;
};

TEST(CollectiveMeasurement, GivesConstantsOfEveryMethodInBothMemories) {
  const auto comm = aloni::test::make_communicator();
  model::Machine machine = machine_of(comm);
  Calls calls;
  const CollectiveMeasurementOptions options{
      .largest_bytes = 1 << 18, .seconds_per_case = 1e-4, .progress = calls.counting()};
  std::vector<CommunicationTimes> all = measure_collectives(comm, machine, options);
  calls.expect_all_of(all);
  fit_collectives(all, machine, comm.size());
  if (comm.size() == 1) {
    EXPECT_TRUE(all.empty());
    EXPECT_TRUE(machine.collectives.empty());
    return;
  }
  for (const comm::CollectiveVariant& variant : comm::collective_variants) {
    if (comm.unsupported_reason(comm::AllReduceAlgorithm::direct)) continue;
    const auto count = std::ranges::count_if(machine.collectives, [&](const model::CollectiveFit& fit) {
      return fit.operation == variant.operation && fit.method == variant.method;
    });
    const bool has_one_level = variant.method == comm::CollectiveMethod::hierarchical;
    EXPECT_EQ(count, has_one_level ? 0 : 2) << name(variant.operation) << " by " << name(variant.method);
  }
  for (const CommunicationTimes& row : all) {
    ASSERT_FALSE(row.times.empty());
    EXPECT_GE(row.error(), 0) << row.operation;  // 96 KiB is left out
    for (const CommunicationTimes::Time& time : row.times) {
      expect_within(time.seconds, 1e-9, 10, row.operation.c_str());
      expect_within(time.predicted, 0, 10, row.operation.c_str());
      EXPECT_EQ(comm.all_reduce(time.seconds, comm::Reduction::min), time.seconds);
      EXPECT_EQ(comm.all_reduce(time.predicted, comm::Reduction::min), time.predicted);
    }
  }
  // A second measurement replaces the first.
  const std::size_t fits = machine.collectives.size();
  fit_collectives(all, machine, comm.size());
  EXPECT_EQ(machine.collectives.size(), fits);
  EXPECT_EQ(model::parse_machine(model::to_json_text(machine), "again"), machine);
}

TEST(TransferMeasurement, GivesConstantsOfMessagesAndHaloExchanges) {
  const auto comm = aloni::test::make_communicator();
  model::Machine machine = machine_of(comm);
  EXPECT_EQ(has_transfers(comm, machine), comm.size() == 1);
  Calls calls;
  std::vector<CommunicationTimes> all = measure_transfers(
      comm, machine, {.largest_bytes = 1 << 18, .seconds_per_case = 1e-4, .progress = calls.counting()});
  calls.expect_all_of(all);
  fit_transfers(all, machine);
  EXPECT_TRUE(has_transfers(comm, machine));
  EXPECT_EQ(machine.transfers.size(), all.size());
  EXPECT_GE(all.size(), comm.size() > 1 ? 2U : 0U);
  for (const CommunicationTimes& row : all) {
    EXPECT_GE(row.error(), 0) << row.operation;  // 96 KiB is left out
    for (const CommunicationTimes::Time& time : row.times) {
      expect_within(time.seconds, 1e-9, 10, row.operation.c_str());
      expect_within(time.by_links, 1e-9, 10, row.operation.c_str());
      EXPECT_EQ(comm.all_reduce(time.seconds, comm::Reduction::min), time.seconds);
      EXPECT_EQ(comm.all_reduce(time.predicted, comm::Reduction::min), time.predicted);
      model::PairTransfer sized = row.transfer.value();
      sized.bytes = time.bytes;
      EXPECT_EQ(time.predicted, transfer_seconds(sized, machine));
    }
  }
  // A second measurement replaces the first.
  fit_transfers(all, machine);
  EXPECT_EQ(machine.transfers.size(), all.size());
  EXPECT_EQ(model::parse_machine(model::to_json_text(machine), "again"), machine);
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

TEST(KernelsInSteps, HaveTimesForAllKernelsOfTheSamples) {
  const auto comm = aloni::test::make_communicator();
  model::Machine machine = machine_of(comm);
  if (!machine.planning.on_host) GTEST_SKIP() << "on a device kernels are measured alone";
  const model::Machine planned = model::machine_of_samples(machine);
  int tried = 0, split = 0, accumulating = 0;
  for (const model::PlannedNetwork& sample :
       model::sample_networks(24, 1, {.most_flops = 1e7, .most_bytes = 1e6, .pairs = comm.size() % 2 == 0})) {
    EXPECT_EQ(has_ranks_for(comm, sample), comm.size() % sample.ranks == 0);
    if (!has_ranks_for(comm, sample)) continue;
    const std::vector<model::KernelTask> tasks = model::kernel_tasks({sample}, planned, {});
    // A micro-batch accumulates gradients, and updates nothing.
    std::size_t expected = 0;
    bool copies = false;
    for (const model::KernelTask& task : tasks) {
      const nn::PlanNode& node = task.plan->nodes[static_cast<std::size_t>(task.node)];
      expected += sample.step.accumulates && node.phase == nn::StepPhase::update ? 0 : 1;
      copies = copies || node.accumulates();
    }
    EXPECT_EQ(copies, sample.step.accumulates);
    accumulating += sample.step.accumulates;
    model::KernelTable table{.ranks_per_node = comm.size()};
    measure_in_steps(comm, sample, tasks, table);
    EXPECT_EQ(table.times.size(), expected);
    for (const auto& [key, time] : table.times) {
      expect_within(time.seconds, 1e-8, 10, key.c_str());
      EXPECT_GE(time.spread, 0);
      EXPECT_GE(time.runs, 5);
      EXPECT_EQ(comm.all_reduce(time.seconds, comm::Reduction::min), time.seconds);
    }
    ++tried;
    split += sample.ranks > 1;
    if (tried >= 6 && (split > 0 || comm.size() % 2 == 1)) break;
  }
  EXPECT_GE(tried, 3);
  EXPECT_GE(accumulating, comm.size() % 2 == 0 ? 1 : 0);  // the sixth one
}

}  // namespace test_machine_measurement
}  // namespace aloni::tools
