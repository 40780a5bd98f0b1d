#include <aloni/core/error.hpp>
#include <aloni/model/measure_kernels.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/network_plan.hpp>

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace aloni::model {
namespace test_measure_kernels {

PlannedNetwork lenet(const std::string& split, int ranks) {
  return {nn::lenet5(views::make_extents(1, {28, 28}, 1), 10), nn::Strategy::uniform(nn::LayerSplit::parse(split)),
          ranks, 16};
}

MeasuredKernel one_second(const nn::StepPlan&, int) { return {.seconds = 1, .runs = 1}; }
bool always(const KernelProgress&) { return true; }

TEST(MeasureKernels, TasksAreTheProblemsOfAllRanksOnceEach) {
  const Machine machine = generic_machine();
  const std::vector<PlannedNetwork> networks{lenet("h4", 4), lenet("n2", 2), lenet("h4", 4)};
  std::set<std::string> expected;
  for (const PlannedNetwork& n : networks) {
    const auto layers = nn::plan_network(n.network, nn::resolve(n.strategy, n.network, n.ranks), n.ranks, n.samples);
    for (int rank = 0; rank < n.ranks; ++rank) {
      const nn::StepPlan plan =
          nn::plan_step(n.network, layers, rank, n.kind, description_of(machine, n.ranks), n.step);
      for (const nn::PlanNode& node : plan.nodes)
        if (node.kind() == nn::NodeKind::kernel) expected.insert(kernel_of(plan, node).key);
    }
  }
  std::vector<std::string> keys;
  for (const KernelTask& task : kernel_tasks(networks, machine, {})) {
    keys.push_back(task.key);
    EXPECT_EQ(kernel_of(*task.plan, task.plan->nodes[static_cast<std::size_t>(task.node)]).key, task.key);
  }
  EXPECT_EQ(keys.size(), expected.size());
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()), expected);
}

TEST(MeasureKernels, ResumesWithTheTable) {
  const Machine machine = generic_machine();
  const auto tasks = kernel_tasks({lenet("h2", 2)}, machine, {});
  KernelTable table;
  measure_kernels(tasks, one_second, table, [](const KernelProgress& p) { return p.done < 5; });
  EXPECT_EQ(table.times.size(), 5u);
  EXPECT_EQ(kernel_tasks({lenet("h2", 2)}, machine, table).size(), tasks.size() - 5);
  int calls = 0;
  measure_kernels(
      tasks,
      [&](const nn::StepPlan& plan, int node) {
        ++calls;
        return one_second(plan, node);
      },
      table, always);
  EXPECT_EQ(static_cast<std::size_t>(calls), tasks.size() - 5);
  EXPECT_EQ(table.times.size(), tasks.size());
  EXPECT_TRUE(kernel_tasks({lenet("h2", 2)}, machine, table).empty());
}

TEST(MeasureKernels, ProgressEndsWithAllTasks) {
  const auto tasks = kernel_tasks({lenet("n1", 1)}, generic_machine(), {});
  KernelTable table;
  KernelProgress last;
  measure_kernels(tasks, one_second, table, [&](const KernelProgress& p) {
    last = p;
    return true;
  });
  EXPECT_EQ(last.done, tasks.size());
  EXPECT_EQ(last.next, nullptr);
}

TEST(MeasureKernels, RefusesTimesThatAreNone) {
  const auto tasks = kernel_tasks({lenet("n1", 1)}, generic_machine(), {});
  KernelTable table;
  EXPECT_THROW(measure_kernels(
                   tasks, [](const nn::StepPlan&, int) { return MeasuredKernel{}; }, table, always),
               InvalidArgument);
  EXPECT_TRUE(table.times.empty());
}

}  // namespace test_measure_kernels
}  // namespace aloni::model
