#include <aloni/nn/models.hpp>
#include <aloni/nn/plan/cost.hpp>
#include <aloni/nn/plan/detail/reduction_members.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/strategy.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::nn {
namespace test_plan_cost {

using views::Box;

Box flat(Index elements) { return {{0, 0, 0, 0, 0}, {1, 1, 1, 1, elements}}; }

NetworkDescription digits() { return lenet5(views::make_extents(1, {28, 28}, 1), 10); }

StepPlan step_of(const NetworkDescription& net, const std::string& split, int ranks, int rank, Index samples,
                 const MachineDescription& machine = {}, const StepOptions& options = {}) {
  const auto splits = resolve(Strategy::uniform(LayerSplit::parse(split)), net, ranks);
  return plan_step(net, plan_network(net, splits, ranks, samples), rank, StepKind::training, machine, options);
}

/// A plan of rank 1 of 4 with a float buffer, a double buffer and workspace.
StepPlan small_plan() {
  StepPlan plan{.rank = 1, .ranks = 4};
  plan.buffers = {
      {.name = "x", .type = ElementType::float32, .box = flat(100)},
      {.name = "y", .type = ElementType::float64, .box = flat(100)},
      {.name = "w", .role = BufferRole::workspace, .type = ElementType::float32, .box = flat(30)},
      {.name = "part of w", .role = BufferRole::workspace, .type = ElementType::float32, .box = flat(10), .alias = 2}};
  return plan;
}

TEST(PlanCost, CountsRegionsInBytesOfTheirTypes) {
  const StepPlan plan = small_plan();
  const PlanNode node{.label = {},
                      .work = PointwiseWork{PointwiseFunction::add, {{0, flat(7)}, {0, flat(7)}}, {1, flat(7)}},
                      .reads = {{0, flat(7)}, {2, flat(3)}},
                      .writes = {{1, flat(7)}, {3, flat(10)}}};
  const NodeCost c = cost(plan, node);
  EXPECT_EQ(c.flops, 7);
  EXPECT_EQ(c.bytes_read, 7 * 4 + 3 * 4);
  EXPECT_EQ(c.bytes_written, 7 * 8 + 10 * 4);
  EXPECT_EQ(c.workspace, 30 * 4);  // an alias counts with its root, once
  EXPECT_EQ(c.bytes_sent, 0);
  EXPECT_EQ(c.messages_sent, 0);
}

PlanNode node_of(Work work) {
  PlanNode node;
  node.work = std::move(work);
  return node;
}

halo::Message message(int peer, Index elements) { return {peer, {}, elements}; }

TransferWork two_tensors() {
  TransferWork work;
  TransferItemPlan x, y;
  x.source = x.destination = 0;
  y.source = y.destination = 1;
  x.plan.sends = {message(0, 5), message(2, 6)};
  x.plan.receives = {message(2, 10)};
  x.plan.local = {{.destination = flat(4), .source = flat(4)}};
  y.plan.sends = {message(2, 1)};
  work.items = {x, y};
  return work;
}

TEST(PlanCost, SendsOneMessageToEachRankForAllTensorsOfATransfer) {
  const StepPlan plan = small_plan();
  const NodeCost c = cost(plan, node_of(two_tensors()));
  EXPECT_EQ(c.messages_sent, 2);
  EXPECT_EQ(c.messages_received, 1);
  EXPECT_EQ(c.bytes_sent, (5 + 6) * 4 + 1 * 8);
  EXPECT_EQ(c.bytes_received, 10 * 4);
  EXPECT_EQ(c.flops, 0);
  EXPECT_EQ(c.workspace, 0);  // all ranks read each other's memory
  const MachineDescription pairs = machine_of_nodes(4, 2);
  EXPECT_EQ(cost(plan, node_of(two_tensors()), pairs).workspace, (6 + 10) * 4 + 1 * 8);  // rank 2 is on another node
}

TEST(PlanCost, SwapsSendsAndReceivesOfAdjointsAndCountsTheirSums) {
  TransferWork work = two_tensors();
  work.adjoint = true;
  const NodeCost c = cost(small_plan(), node_of(work));
  EXPECT_EQ(c.messages_sent, 1);
  EXPECT_EQ(c.messages_received, 2);
  EXPECT_EQ(c.bytes_sent, 10 * 4);
  EXPECT_EQ(c.bytes_received, (5 + 6) * 4 + 1 * 8);
  EXPECT_EQ(c.flops, 5 + 6 + 1 + 4);
}

/// A sum with the algorithm of the machine.
ReductionWork sum_over(const std::vector<int>& members, Index elements, ElementType type,
                       const MachineDescription& machine = {}) {
  const comm::AllReduceChooser choose(detail::positions_by_node(members, machine), machine.shared_memory);
  const auto bytes = static_cast<int>(bytes_of(type));
  return {.members = members, .elements = elements, .type = type, .plan = choose(elements, bytes)};
}

/// The words between rank 0 and the others, and one element more: the number of contributions.
TEST(PlanCost, OfAPartialAllReduceHasWordsOfRankZero) {
  StepPlan plan = small_plan();
  const std::vector<int> ranks{0, 1, 2, 3};
  for (plan.rank = 0; plan.rank < 4; ++plan.rank) {
    ReductionWork sum = sum_over(ranks, 11, ElementType::float32);
    const NodeCost whole = cost(plan, node_of(sum));
    sum.elements = 10;
    sum.partial = true;
    const NodeCost partial = cost(plan, node_of(sum));
    const Index words = plan.rank == 0 ? 3 : 1;
    EXPECT_EQ(partial.messages_sent, whole.messages_sent + words);
    EXPECT_EQ(partial.messages_received, whole.messages_received + words);
    EXPECT_EQ(partial.bytes_sent, whole.bytes_sent + 4 * words);
    EXPECT_EQ(partial.bytes_received, whole.bytes_received + 4 * words);
  }
}

TEST(PlanCost, TakesTheAlgorithmOfAReductionFromTheNodesOfItsMembers) {
  const StepPlan plan = small_plan();
  const PlanNode few = node_of(sum_over({0, 1, 2, 3}, 10, ElementType::float64));
  EXPECT_EQ(cost(plan, few).messages_sent, 2);  // recursive doubling
  EXPECT_EQ(cost(plan, few).bytes_sent, 2 * 10 * 8);
  const Index n = 1 << 16;
  const auto many = [&](const MachineDescription& machine) {
    return cost(plan, node_of(sum_over({0, 1, 2, 3}, n, ElementType::float32, machine)), machine);
  };
  EXPECT_EQ(many({}).messages_sent, 2 * 3);  // in shared memory
  EXPECT_EQ(many({}).bytes_sent, 2 * n * 3 / 4 * 4);
  MachineDescription apart;
  apart.shared_memory = false;
  EXPECT_EQ(many(apart).messages_sent, 4);  // Rabenseifner
  EXPECT_EQ(many(apart).bytes_sent, 2 * n * 3 / 4 * 4);
  // Within a node half of the data, between nodes a quarter, and the same back.
  EXPECT_EQ(many(machine_of_nodes(4, 2)).bytes_sent, 2 * (n / 2 + n / 4) * 4);
  const PlanNode pair = node_of(sum_over({1, 3}, 10, ElementType::float64));
  EXPECT_EQ(cost(plan, pair).messages_sent, 1);
}

TEST(PlanCost, CountsTheConvolutionsOfLenet5) {
  const NetworkDescription net = digits();
  const Index samples = 8;
  const StepCost c = cost(step_of(net, "1", 1, 0, samples));
  const double conv1 = 2.0 * samples * 28 * 28 * 25 * 1 * 6, conv2 = 2.0 * samples * 10 * 10 * 25 * 6 * 16;
  EXPECT_EQ(c.of(0).kernels.flops, 2 * conv1);  // no gradient of the input
  EXPECT_EQ(c.of(3).kernels.flops, 3 * conv2);
  EXPECT_EQ(c.of(3, StepPhase::forward).kernels.flops, conv2);
  EXPECT_EQ(c.of(7).kernels.flops, 3 * 2.0 * samples * 400 * 120);
  EXPECT_EQ(c.of(2, StepPhase::forward).kernels.flops, samples * 14.0 * 14 * 6 * 4);
  EXPECT_EQ(c.of(StepPhase::update).flops, 6 * 61706);
  EXPECT_EQ(c.total().bytes_sent, 0);
  EXPECT_EQ(c.total().messages_sent, 0);
  EXPECT_GT(c.of(StepPhase::loss).flops, 0);
  EXPECT_EQ(c.total().flops, c.of(StepPhase::forward).flops + c.of(StepPhase::loss).flops +
                                 c.of(StepPhase::backward).flops + c.of(StepPhase::update).flops);
}

TEST(PlanCost, CountsTheUpdateByTheOptimiser) {
  const NetworkDescription net = digits();
  const NodeCost sgd = cost(step_of(net, "1", 1, 0, 8)).of(StepPhase::update);
  const NodeCost adam = cost(step_of(net, "1", 1, 0, 8, {}, {.optimiser = OptimiserKind::adam})).of(StepPhase::update);
  EXPECT_EQ(sgd.bytes_read, 3 * 61706 * 4);  // value, gradient, momentum
  EXPECT_EQ(sgd.bytes_written, 2 * 61706 * 4);
  EXPECT_EQ(adam.flops, 15 * 61706);
  EXPECT_EQ(adam.bytes_read, 4 * 61706 * 4);
  EXPECT_EQ(adam.bytes_written, 3 * 61706 * 4);
  EXPECT_EQ(cost(step_of(net, "1", 1, 0, 8, {}, {.update = false})).of(StepPhase::update), NodeCost{});
}

TEST(PlanCost, CountsTheNormsOfAnUpdate) {
  const NetworkDescription net = digits();
  const auto update = [&](const char* split, int ranks, int rank, const StepOptions& options) {
    return cost(step_of(net, split, ranks, rank, 8, {}, options)).of(StepPhase::update);
  };
  const NodeCost sgd = update("1", 1, 0, {}), clipped = update("1", 1, 0, {.update_options = {.max_norm = 1}});
  EXPECT_EQ(clipped.flops - sgd.flops, 2 * 61706 + 4 * 10);  // a square and a sum each; ten tensors
  EXPECT_GE(clipped.bytes_read - sgd.bytes_read, 61706 * 4);
  EXPECT_EQ(clipped.messages_sent, 0);
  EXPECT_EQ(update("h4", 4, 1, {.update_options = {.max_norm = 1}}).messages_sent, 0);  // replicas need no message
  double elements = 0;
  for (int r = 0; r < 4; ++r) {
    const NodeCost plain = update("f4", 4, r, {}), split = update("f4", 4, r, {.update_options = {.max_norm = 1}});
    EXPECT_EQ(plain.messages_sent, 0);
    EXPECT_GT(split.messages_sent, 0);
    elements += split.flops - plain.flops;
  }
  EXPECT_LT(elements, 4 * (2 * 61706 + 500));  // split weights are squared once, not on each rank
}

TEST(PlanCost, SplitsTheConvolutionsOfLenet5AmongRanks) {
  const NetworkDescription net = digits();
  const StepCost one = cost(step_of(net, "1", 1, 0, 8));
  for (const std::string split : {"n4", "h4", "h2w2", "c4", "f4", "n2f2"}) {
    SCOPED_TRACE(split);
    for (const int layer : {0, 3}) {
      double forward = 0, backward = 0;
      for (int r = 0; r < 4; ++r) {
        const StepCost c = cost(step_of(net, split, 4, r, 8));
        forward += c.of(layer, StepPhase::forward).kernels.flops;
        backward += c.of(layer, StepPhase::backward).kernels.flops;
      }
      // A bias after partial sums, or beside split filters, is a node of its own.
      EXPECT_GE(forward, one.of(layer, StepPhase::forward).kernels.flops);
      EXPECT_LE(forward, 1.02 * one.of(layer, StepPhase::forward).kernels.flops);
      // Between split rows and columns, dx is gathered: 14 x 14 pixels with all taps instead of 10 x 10. A border is
      // computed again.
      EXPECT_GE(backward, one.of(layer, StepPhase::backward).kernels.flops);
      EXPECT_LE(backward, 1.6 * one.of(layer, StepPhase::backward).kernels.flops);
    }
  }
}

TEST(PlanCost, CountsTheHalosOfLenet5) {
  const NetworkDescription net = digits();
  const Index samples = 8;
  const StepCost c = cost(step_of(net, "h2", 2, 0, samples));
  // Two rows of the input; two rows of pool1 where the windows of conv2's outputs of the other rank need them, and
  // their gradients.
  EXPECT_EQ(c.of(0, StepPhase::forward).transfers.bytes_sent, samples * 2 * 28 * 4);
  EXPECT_EQ(c.of(0, StepPhase::forward).transfers.messages_sent, 1);
  EXPECT_EQ(c.of(0, StepPhase::backward).transfers.bytes_sent, 0);
  EXPECT_EQ(c.gradient_sums.bytes_sent, (61706 * 4 + 2 * 4));
  EXPECT_EQ(c.total().bytes_sent, c.gradient_sums.bytes_sent + c.of(0).transfers.bytes_sent +
                                      c.of(3).transfers.bytes_sent + c.of(5).transfers.bytes_sent +
                                      c.of(6).transfers.bytes_sent + c.of(2).transfers.bytes_sent);
}

/// Largest part of the sums of gradients in bytes.
Index largest_part(const StepPlan& plan) {
  Index most = 0;
  for (const PlanNode& node : plan.nodes)
    if (const auto* sum = std::get_if<ReductionWork>(&node.work); sum && sum->segment >= 0)
      most = std::max(most, sum->plan.part_elements * bytes_of(sum->type));
  return most;
}

TEST(PlanCost, PartsOfSumsBetweenNodesTakeTwoMillisecondsOfTheLink) {
  const NetworkDescription net = make_model("resnet18", {.input = views::make_extents(1, {32, 32}, 3)});
  MachineDescription machine = machine_of_nodes(4, 2);
  const auto part = [&](const char* split = "n4") { return largest_part(step_of(net, split, 4, 1, 8, machine)); };
  const Index by_size = part();
  EXPECT_GE(by_size, 512 * 1024);
  const auto measure = [&](double seconds_per_byte) {
    machine.tuning = comm::Tuning{.ranks = 4, .nodes = 2, .latency = 1e-5, .seconds_per_byte = seconds_per_byte};
    machine.tuning->measurements = {{comm::AllReduceAlgorithm::rabenseifner, 1024, 1e-5, 4 << 20}};
  };
  measure(1e-10);  // 20 MB in that time: the part of the tuning
  EXPECT_EQ(part(), 4 << 20);
  measure(2e-9);
  EXPECT_EQ(part(), 1'000'000);
  EXPECT_EQ(part("f4"), 1'000'000);  // of the tensors that all ranks keep
  measure(1e-7);
  EXPECT_EQ(part(), 256 * 1024);  // the least part
  machine.on_host = false;        // NCCL has parts of its own
  EXPECT_EQ(part(), 4 << 20);
  machine.on_host = true;
  machine.nodes = {};
  machine.tuning->nodes = 1;
  EXPECT_EQ(part(), 4 << 20);
}

TEST(PlanCost, SendsAsManyBytesAsAllRanksReceive) {
  const NetworkDescription net = digits();
  for (const std::string split : {"h2w3", "c2f3", "n2h3", "f6", "n6"}) {
    for (const int per_node : {0, 2}) {
      const MachineDescription machine = machine_of_nodes(6, per_node);
      for (const ElementType type : {ElementType::float32, ElementType::float64, ElementType::bfloat16}) {
        SCOPED_TRACE(split + " " + name(type));
        NodeCost sum;
        for (int r = 0; r < 6; ++r)
          sum += cost(step_of(net, split, 6, r, 12, machine, {.activations = type}), machine).total();
        EXPECT_GT(sum.bytes_sent, 0);
        EXPECT_EQ(sum.bytes_sent, sum.bytes_received);
        EXPECT_EQ(sum.messages_sent, sum.messages_received);
      }
    }
  }
}

}  // namespace test_plan_cost
}  // namespace aloni::nn
