// Nodes measured alone: every kernel of every network can be, and its time is one of that kernel.
#include "all_operations.hpp"
#include "random_network.hpp"
#include "support/transport.hpp"

#include <aloni/core/comm/running_machine.hpp>
#include <aloni/core/error.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/operation.hpp>
#include <aloni/nn/plan/isolated_node.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/run/measure_node.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace aloni::nn::test {
namespace test_measure_node {

constexpr MeasureOptions once{
    .runs = 1, .least_seconds = 0, .most_runs = 1, .warm_up_runs = 1, .cache_bytes = 4096, .longest_wait = 0};

template <class T>
struct Measured {
  using Exec = execution_space_t<T>;
  static constexpr bool on_host =
      Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible;

  comm::Communicator comm = aloni::test::make_communicator();
  MachineDescription machine = local::machine_of_this_build(on_host);

  StepPlan plan(const NetworkDescription& net, const Strategy& strategy, int ranks, int rank, StepKind kind,
                StepOptions options = {}) const {
    options.activations = element_type<T>;
    return plan_step(net, plan_network(net, resolve(strategy, net, ranks), ranks, 2 * ranks), rank, kind, machine,
                     options);
  }
  NodeTime time(const StepPlan& p, int n, const MeasureOptions& options = once) const {
    return measure_node<T, Exec>(comm, {}, p, lay_out_memory({&p}, machine), n, machine, options);
  }
  /// Kinds of the kernels.
  std::set<std::string> measure_all(const StepPlan& p) const {
    std::set<std::string> kinds;
    for (int n = 0; n < static_cast<int>(p.nodes.size()); ++n) {
      const PlanNode& node = p.nodes[static_cast<std::size_t>(n)];
      if (node.kind() != NodeKind::kernel) continue;
      kinds.insert(kind(node.work));
      const NodeTime t = time(p, n);
      EXPECT_TRUE(std::isfinite(t.seconds) && t.seconds > 0 && t.seconds < 1) << node.label << ": " << t.seconds;
      EXPECT_GE(t.runs, 1) << node.label;
    }
    return kinds;
  }
};

template <class T>
void measure_all_operations() {
  const Measured<T> measured;
  for (const Operation& op : all_operations()) {
    NetworkDescription net = alone(op);
    net.layers[0].inputs.resize(static_cast<std::size_t>(properties_of(op).least_inputs), "input");
    for (const StepKind kind : {StepKind::training, StepKind::inference})
      measured.measure_all(measured.plan(net, Strategy::uniform({}), 1, 0, kind));
  }
}

TEST(MeasureNode, EveryOperationCanBeMeasured) {
  measure_all_operations<float>();
  measure_all_operations<double>();
}

TEST(MeasureNode, NodesOfRanksThatDoNotExistCanBeMeasured) {
  const Measured<float> measured;
  std::set<std::string> kinds;
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    Dice dice(seed);
    const NetworkDescription net = random_network(dice, Kinds::all);
    constexpr int ranks = 4;
    std::vector<LayerSplit> splits;
    for (std::size_t l = 0; l < net.layers.size(); ++l) splits.push_back(random_split(dice, ranks, net.spatial_rank));
    const Strategy strategy = strategy_of(net, splits);
    SCOPED_TRACE("seed " + std::to_string(seed));
    kinds.merge(
        measured.measure_all(measured.plan(net, strategy, ranks, static_cast<int>(dice(0, 3)), StepKind::training)));
  }
  for (const char* const wanted : {"convolution", "filter_gradient", "weights", "normalisation", "optimiser", "loss"})
    EXPECT_TRUE(kinds.contains(wanted)) << wanted;
}

TEST(MeasureNode, UpdatesWithNormsCanBeMeasured) {
  const Measured<float> measured;
  const NetworkDescription net = lenet5(views::make_extents(1, {28, 28}, 1), 10);
  for (const OptimiserKind optimiser : {OptimiserKind::sgd, OptimiserKind::adam, OptimiserKind::lars}) {
    const StepPlan p = measured.plan(net, Strategy::uniform(LayerSplit::parse("f2")), 2, 1, StepKind::training,
                                     {.optimiser = optimiser, .update_options = {.max_norm = 1.0}});
    const auto kinds = measured.measure_all(p);
    EXPECT_TRUE(kinds.contains("norms") && kinds.contains("optimiser"));
  }
}

TEST(MeasureNode, AccumulationCanBeMeasured) {
  const Measured<float> measured;
  const NetworkDescription net = lenet5(views::make_extents(1, {28, 28}, 1), 10);
  for (const char* const split : {"n2", "f2"}) {
    const StepPlan p = measured.plan(net, Strategy::uniform(LayerSplit::parse(split)), 2, 1, StepKind::training,
                                     {.accumulates = true});
    EXPECT_TRUE(measured.measure_all(p).contains("accumulation"));
  }
}

TEST(MeasureNode, EveryLossCanBeMeasured) {
  const Measured<float> measured;
  for (const Loss loss : {Loss::softmax_cross_entropy, Loss::binary_cross_entropy, Loss::mean_squared_error,
                          Loss::pixel_cross_entropy, Loss::dice}) {
    NetworkDescription net = alone(Convolution{6, square_window(2, 3, 1, 1)});
    if (loss == Loss::softmax_cross_entropy)
      net.layers.push_back({"mean", GlobalAveragePooling{}, {net.layers[0].name}});
    net.loss = loss;
    for (const StepKind kind : {StepKind::training, StepKind::inference})
      measured.measure_all(measured.plan(net, Strategy::uniform({}), 1, 0, kind));
  }
}

// A kernel with 64 times the arithmetic takes longer, on any machine. One that fills a device needs more of it.
TEST(MeasureNode, LargeKernelsTakeLonger) {
  const Measured<float> measured;
  const auto seconds = [&](Index side) {
    NetworkDescription net = alone(Convolution{16, square_window(2, 3, 1, 1)});
    net.input = views::make_extents(1, {side, side}, 16);
    const StepPlan p = measured.plan(net, Strategy::uniform({}), 1, 0, StepKind::training);
    for (int n = 0; n < static_cast<int>(p.nodes.size()); ++n)
      if (std::holds_alternative<ConvolutionWork>(p.nodes[static_cast<std::size_t>(n)].work))
        return measured.time(p, n, {.runs = 5, .least_seconds = 0}).seconds;
    return 0.0;
  };
  if constexpr (Kokkos::SpaceAccessibility<Kokkos::HostSpace, execution_space_t<float>::memory_space>::accessible)
    EXPECT_GT(seconds(96), 4 * seconds(12));
  else
    EXPECT_GT(seconds(6000), 2 * seconds(12));
}

TEST(MeasureNode, RefusesCommunication) {
  const Measured<float> measured;
  const NetworkDescription net = lenet5(views::make_extents(1, {28, 28}, 1), 10);
  const StepPlan p = measured.plan(net, Strategy::uniform(LayerSplit::parse("h2")), 2, 0, StepKind::training);
  int refused = 0;
  for (int n = 0; n < static_cast<int>(p.nodes.size()); ++n) {
    if (p.nodes[static_cast<std::size_t>(n)].kind() == NodeKind::kernel) continue;
    EXPECT_THROW(isolate(p, n, {}), InvalidArgument);
    ++refused;
  }
  EXPECT_GT(refused, 1);
}

TEST(MeasureNode, RefusesOptionsOutOfRange) {
  const Measured<float> measured;
  const StepPlan p = measured.plan(alone(Relu{}), Strategy::uniform({}), 1, 0, StepKind::training);
  EXPECT_THROW(measured.time(p, 0, {.runs = 0}), InvalidArgument);
}

}  // namespace test_measure_node
}  // namespace aloni::nn::test
