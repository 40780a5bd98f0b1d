#pragma once
// Fills a table of measured kernels: the distinct kernel problems of the plans of some networks, each measured once.
// The table is the state of the work: with a table from a file, only the missing problems are measured.
//
//   const std::vector<KernelTask> tasks = kernel_tasks({{net, strategy, 2, 64}}, machine, table);
//   measure_kernels(tasks, measure, table, [](const KernelProgress& p) { report(p.done, p.all); return true; });
//
// Measuring is handed in: tools/measure_kernels.hpp runs kernels of this process, tests make up times. Pure.
#include <aloni/model/kernel.hpp>
#include <aloni/model/machine.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/strategy.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace aloni::model {

/// A step of a network on some ranks.
struct PlannedNetwork {
  nn::NetworkDescription network;
  nn::Strategy strategy;
  int ranks = 1;
  Index samples = 1;  ///< of all ranks together
  nn::StepKind kind = nn::StepKind::training;
  nn::StepOptions step = {};
};

/// A kernel problem to measure, by a node that has it.
struct KernelTask {
  std::string key;
  std::shared_ptr<const nn::StepPlan> plan;
  int node = 0;
  double bytes = 0, flops = 0;
  nn::Reuse reuse = {};  ///< of the node

  KernelProblem problem() const { return kernel_of(*plan, plan->nodes[static_cast<std::size_t>(node)], reuse); }
};

/// The distinct problems of all ranks of all networks that `known` does not have, in the order of the networks and
/// their nodes. Ranks whose plans differ by position only are planned once (nn/plan/representatives.hpp).
/// Throws InvalidArgument as description_of() and plan_step() do.
std::vector<KernelTask> kernel_tasks(const std::vector<PlannedNetwork>& networks, const Machine& machine,
                                     const KernelTable& known);

using MeasureKernel = std::function<MeasuredKernel(const nn::StepPlan& plan, int node)>;

struct KernelProgress {
  std::size_t done = 0, all = 0;
  const KernelTask* next = nullptr;  ///< null after the last one
};

/// Measures the tasks in their order and adds the results to `table`. Tasks that the table has are skipped.
/// `proceed` is called before each task and after the last one; false ends the work, and the table has all results so
/// far. If `measure` is collective, `proceed` returns the same value on all ranks.
/// Throws the exceptions of `measure`; the table then has the results before. Throws InvalidArgument for a time that is
/// not above 0.
void measure_kernels(const std::vector<KernelTask>& tasks, const MeasureKernel& measure, KernelTable& table,
                     const std::function<bool(const KernelProgress&)>& proceed);

}  // namespace aloni::model
