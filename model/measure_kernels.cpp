#include <aloni/model/measure_kernels.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/memory_layout.hpp>
#include <aloni/nn/plan/representatives.hpp>

#include <set>
#include <utility>

namespace aloni::model {

std::vector<KernelTask> kernel_tasks(const std::vector<PlannedNetwork>& networks, const Machine& machine,
                                     const KernelTable& known) {
  std::vector<KernelTask> tasks;
  std::set<std::string> seen;
  for (const PlannedNetwork& n : networks) {
    const MachineDescription description = description_of(machine, n.ranks);
    const nn::NetworkPlan layers =
        nn::plan_network(n.network, nn::resolve(n.strategy, n.network, n.ranks), n.ranks, n.samples);
    for (const int rank : nn::find_representatives(n.network, layers, description).ranks) {
      const auto plan =
          std::make_shared<const nn::StepPlan>(nn::plan_step(n.network, layers, rank, n.kind, description, n.step));
      const std::vector<nn::Reuse> reuse = nn::reuse_of(*plan, nn::lay_out_memory({plan.get()}, description));
      for (int i = 0; i < static_cast<int>(plan->nodes.size()); ++i) {
        const nn::PlanNode& node = plan->nodes[static_cast<std::size_t>(i)];
        if (node.kind() != nn::NodeKind::kernel) continue;
        KernelProblem problem = kernel_of(*plan, node);
        if (known.times.contains(problem.key) || !seen.insert(problem.key).second) continue;
        tasks.push_back({.key = problem.key,
                         .plan = plan,
                         .node = i,
                         .bytes = problem.bytes(),
                         .flops = problem.flops(),
                         .reuse = reuse[static_cast<std::size_t>(i)]});
      }
    }
  }
  return tasks;
}

void measure_kernels(const std::vector<KernelTask>& tasks, const MeasureKernel& measure, KernelTable& table,
                     const std::function<bool(const KernelProgress&)>& proceed) {
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const KernelTask& task = tasks[i];
    if (table.times.contains(task.key)) continue;
    if (!proceed({.done = i, .all = tasks.size(), .next = &task})) return;
    const MeasuredKernel measured = measure(*task.plan, task.node);
    if (!(measured.seconds > 0)) {
      throw InvalidArgument("aloni::model::measure_kernels", "seconds of " + task.key, std::to_string(measured.seconds),
                            "a time above 0");
    }
    table.times.emplace(task.key, measured);
  }
  proceed({.done = tasks.size(), .all = tasks.size()});
}

}  // namespace aloni::model
