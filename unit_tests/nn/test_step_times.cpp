// Times of the nodes of a step: every node once, in a valid order, and their sum is the step.
#include "support/sanitizer.hpp"
#include "support/transport.hpp"

#include <aloni/core/comm/running_machine.hpp>
#include <aloni/core/random.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/network.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/step_times.hpp>
#include <aloni/nn/train/timed_steps.hpp>
#include <aloni/nn/trainer.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace aloni::nn {
namespace test_step_times {

using Exec = Kokkos::DefaultExecutionSpace;
using Row = StepTimes::Row;
constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Exec::memory_space>::accessible;

/// LeNet-5 split by height. Convolutions compute their interior first, whatever that costs.
struct Fixture {
  static constexpr Index samples = 16;

  comm::Communicator comm = aloni::test::make_communicator();
  Queue<> queue;
  NetworkDescription net = lenet5(views::make_extents(1, {28, 28}, 1), 10);
  Strategy strategy = Strategy::uniform(LayerSplit::parse("h" + std::to_string(comm.size())));
  Parameters<float> parameters{comm, queue, net, 1};
  Network<float> network{comm, queue, net, strategy, samples, parameters, {.largest_overhead = 1000}};

  StepPlan plan() const {
    const NetworkPlan layers = plan_network(net, resolve(strategy, net, comm.size()), comm.size(), samples);
    return plan_step(net, layers, comm.rank(), StepKind::training, machine(),
                     {.split_parameters = parameters.is_split(), .update = false, .largest_overhead = 1000});
  }
  MachineDescription machine() const { return comm::describe_machine(comm, local::machine_of_this_build(on_host)); }

  StepTimes timed_step() {
    StepTimes times;
    network.train_step(queue);
    network.record_times(&times);
    network.train_step(queue);
    network.record_times(nullptr);
    return times;
  }
};

TEST(StepTimes, SayWhichKernelsOfADeviceAGraphRepeats) {
  Fixture f;
  MachineDescription machine = f.machine();
  machine.on_host = true;
  const TimedNodes on_the_host = timed_nodes(f.plan(), f.net, machine);
  for (const TimedNode& node : *on_the_host) EXPECT_EQ(node.graph, "");
  machine.on_host = false;
  const NetworkPlan layers =
      plan_network(f.net, resolve(f.strategy, f.net, f.comm.size()), f.comm.size(), Fixture::samples);
  const StepPlan plan = plan_step(f.net, layers, f.comm.rank(), StepKind::training, machine);
  int repeated = 0;
  const TimedNodes on_a_device = timed_nodes(plan, f.net, machine);
  for (const TimedNode& node : *on_a_device) {
    SCOPED_TRACE(node.label);
    repeated += node.graph.starts_with("segment ") ? 1 : 0;
    if (node.work == "optimiser") {
      EXPECT_EQ(node.graph, "none: arguments change between steps: the options of the optimiser");
    }
    EXPECT_EQ(node.graph.empty(), node.kind != NodeKind::kernel);
  }
  EXPECT_GT(repeated, 10);
}

/// Nanoseconds of all nodes and all work beside them.
std::int64_t sum_of(const StepTimes& times) {
  std::int64_t sum = 0;
  for (const StepTimes::Execution& step : times.executions())
    for (const StepTimes::Action& a : times.actions(step)) sum += a.end - a.start;
  for (const StepTimes::Span& span : times.spans()) sum += span.end - span.start;
  return sum;
}

TEST(StepTimes, HasEachNodeOfThePlanOnce) {
  Fixture f;
  const StepTimes times = f.timed_step();
  const StepPlan plan = f.plan();
  const MachineDescription machine = f.machine();
  ASSERT_EQ(times.executions().size(), 1u);
  const StepTimes::Execution& step = times.executions()[0];
  ASSERT_EQ(step.nodes->size(), plan.nodes.size());
  std::map<int, std::vector<StepActionKind>> actions;
  for (const StepTimes::Action& a : times.actions(step)) actions[a.node].push_back(a.kind);
  for (std::size_t n = 0; n < plan.nodes.size(); ++n) {
    const TimedNode& node = (*step.nodes)[n];
    SCOPED_TRACE(plan.nodes[n].label);
    EXPECT_EQ(node.label, plan.nodes[n].label);
    EXPECT_EQ(node.cost, cost(plan, plan.nodes[n], machine));
    const auto& found = actions[static_cast<int>(n)];
    if (node.kind == NodeKind::kernel) {
      EXPECT_EQ(found, std::vector{StepActionKind::run});
    } else if (node.kind == NodeKind::transfer || on_host) {  // devices may sum gradients beside the nodes
      EXPECT_EQ(found, (std::vector{StepActionKind::start, StepActionKind::finish}));
    }
  }
}

TEST(StepTimes, KeepsTheOrderOfTheDependencies) {
  Fixture f;
  const StepTimes times = f.timed_step();
  std::map<int, std::int64_t> starts, ends;
  std::int64_t last = 0;
  for (const StepTimes::Action& a : times.actions(times.executions().at(0))) {
    EXPECT_LE(last, a.start);
    EXPECT_LE(a.start, a.end);
    last = a.end;
    starts.try_emplace(a.node, a.start);
    ends[a.node] = a.end;
  }
  const auto before = dependencies(graph_of(f.plan()));
  int checked = 0;
  for (int n = 0; n < static_cast<int>(before.size()); ++n) {
    for (const int d : before[static_cast<std::size_t>(n)]) {
      if (!starts.contains(n) || !starts.contains(d)) continue;
      EXPECT_LE(ends[d], starts[n]) << d << " before " << n;
      ++checked;
    }
  }
  EXPECT_GT(checked, 20);
}

// A process that gets the core between two nodes takes its share of a step. The best of many steps has none.
TEST(StepTimes, AddUpToTheStep) {
  Fixture f;
  constexpr double least = aloni::test::sanitized ? 0.5 : 0.97;
  double best = 0;  // the step of this rank with the largest share
  for (int i = 0; i < 500 && f.comm.all_reduce(best, comm::Reduction::min) < least; ++i) {
    StepTimes times;
    f.network.record_times(&times);
    const std::int64_t start = trace_now();
    f.network.train_step(f.queue);
    const std::int64_t total = trace_now() - start;
    f.network.record_times(nullptr);
    EXPECT_LE(sum_of(times), total);
    best = std::max(best, static_cast<double>(sum_of(times)) / static_cast<double>(total));
  }
  EXPECT_GE(best, least);
}

TEST(StepTimes, RecordsEvaluationsWithTheirOwnNodesAndNothingAfterNull) {
  Fixture f;
  StepTimes times;
  f.network.record_times(&times);
  f.network.evaluate(f.queue);
  f.network.record_times(nullptr);
  f.network.train_step(f.queue);
  ASSERT_EQ(times.executions().size(), 2u);  // forward and loss
  for (const StepTimes::Execution& step : times.executions()) {
    EXPECT_GT(step.count, 0u);
    for (const TimedNode& node : *step.nodes) EXPECT_NE(node.phase, StepPhase::backward) << node.label;
  }
}

TEST(StepTimes, ShowsInteriorsBelowTheirHalosInTheTrace) {
  Fixture f;
  StepTimes times = f.timed_step();
  const Trace same = trace_of(times, f.comm.rank());
  times.set_clock_offset(1000);
  const Trace trace = trace_of(times, f.comm.rank());
  EXPECT_EQ(trace.name, "rank " + std::to_string(f.comm.rank()));
  ASSERT_GE(trace.rows.size(), 4u);
  EXPECT_EQ(std::vector(trace.rows.begin(), trace.rows.begin() + 4),
            (std::vector<std::string>{"step", "input", "compute", "communication"}));
  ASSERT_EQ(trace.slices.size(), same.slices.size());
  int starts = 0, in_flight = 0, covered = 0;
  for (std::size_t s = 0; s < trace.slices.size(); ++s) {
    const TraceSlice& slice = trace.slices[s];
    EXPECT_EQ(slice.start, same.slices[s].start + 1000);
    starts += slice.name.starts_with("start ");
    if (slice.row <= static_cast<int>(Row::communication)) continue;
    ++in_flight;
    EXPECT_TRUE(trace.rows[static_cast<std::size_t>(slice.row)].starts_with("in flight"));
    for (std::size_t other = 0; other < trace.slices.size(); ++other) {
      const TraceSlice& o = trace.slices[other];
      if (other != s && o.row == slice.row) {
        EXPECT_TRUE(o.end <= slice.start || slice.end <= o.start);
      }
      covered += o.row == static_cast<int>(Row::compute) && o.name == "forward conv1: interior" &&
                 slice.name == "forward conv1: ghosts of x" && slice.start <= o.start && o.end <= slice.end;
    }
  }
  EXPECT_EQ(in_flight, starts);
  EXPECT_EQ(covered, f.comm.size() > 1 ? 1 : 0);
}

LabelledImages made_up_images(Index count) {
  LabelledImages images;
  images.image = views::make_extents(1, {28, 28}, 1);
  for (Index i = 0; i < count * 28 * 28; ++i)
    images.pixels.push_back(static_cast<std::uint8_t>(random::integer(4, 5, static_cast<std::uint64_t>(i))));
  for (Index i = 0; i < count; ++i) images.labels.push_back(static_cast<std::uint8_t>(i % 10));
  return images;
}

/// Labels of the timed steps of a training of LeNet-5 with mini-batches of 8 and 4 samples.
std::vector<std::string> timed_steps(const TrainOptions& options) {
  const auto comm = aloni::test::make_communicator();
  const LabelledImages images = made_up_images(12);
  const TrainReport report =
      train<float>(comm, lenet5(images.image, 10),
                   Strategy::uniform(LayerSplit::parse("n" + std::to_string(comm.size()))), images, images, options);
  if (!report.times) return {"none"};
  std::vector<std::string> labels;
  std::map<Row, int> spans;
  for (const StepTimes::Span& span : report.times->spans()) {
    if (span.row == Row::step) labels.push_back(span.label);
    ++spans[span.row];
  }
  // Without evaluations. A step whose sums over ranks cannot start beside its kernels has two parts.
  EXPECT_EQ(report.times->executions().size() % labels.size(), 0);
  EXPECT_LE(report.times->executions().size(), (on_host ? 1 : 2) * labels.size());
  EXPECT_EQ(spans[Row::input], static_cast<int>(labels.size()));
  EXPECT_EQ(report.times->clock_offset(), 0);
  return labels;
}

TEST(StepTimes, OfATrainingStartAfterFiveStepsOrWithTheLastSteps) {
  using Labels = std::vector<std::string>;
  EXPECT_EQ(timed_steps({.batch = 8, .steps = 10, .timed_steps = 3}), (Labels{"step 6", "step 7", "step 8"}));
  EXPECT_EQ(timed_steps({.batch = 8, .steps = 6, .timed_steps = 3}), (Labels{"step 4", "step 5", "step 6"}));
  EXPECT_EQ(timed_steps({.batch = 8, .steps = 2, .timed_steps = 3}), (Labels{"step 1", "step 2"}));
  EXPECT_EQ(timed_steps({.batch = 8, .steps = 2}), Labels{"none"});
}

TEST(StepTimes, MedianLeavesOutTheWarmUp) {
  EXPECT_EQ(TimedSteps::median_after_warm_up({9}), 9);
  EXPECT_EQ(TimedSteps::median_after_warm_up({9, 2, 1}), 2);
  EXPECT_EQ(TimedSteps::median_after_warm_up({9, 9, 9, 9, 9, 1, 2, 3, 4, 5, 6}), 4);
}

}  // namespace test_step_times
}  // namespace aloni::nn
