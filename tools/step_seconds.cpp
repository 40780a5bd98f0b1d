#include <aloni/core/comm/running_machine.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/core/trace.hpp>
#include <aloni/model/kernel.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/network.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/step_times.hpp>
#include <aloni/tools/median.hpp>
#include <aloni/tools/step_seconds.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace aloni::tools {

namespace {

using Exec = Kokkos::DefaultExecutionSpace;
constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Exec::memory_space>::accessible;

/// Steps go on until they have taken this time together, so that the core has its clock under load.
constexpr double least_seconds = 0.1;
constexpr int warm_up_steps = 2, least_steps = 5, most_steps = 50;

/// For each node of the plan the seconds of its kernel in each step.
std::vector<std::vector<double>> run_steps(const comm::Communicator& comm, const comm::Communicator& alone,
                                           const model::PlannedNetwork& sample, const nn::StepPlan& plan) {
  const Queue<> queue;
  nn::Parameters<float> parameters(alone, queue, sample.network, resolve(sample.strategy, sample.network, 1), 1);
  nn::Network<float> network(alone, queue, sample.network, sample.strategy, sample.samples, parameters,
                             {.update = true, .input_gradient = sample.step.input_gradient});
  const auto input = network.input();
  Kokkos::parallel_for(
      "aloni::tools::fill_input", Kokkos::RangePolicy<Exec>(0, static_cast<Index>(input.span())),
      KOKKOS_LAMBDA(Index i) { input.data()[i] = static_cast<float>(i % 17) / 17; });
  Kokkos::deep_copy(network.labels(), 0);
  std::vector<std::vector<double>> seconds(plan.nodes.size());
  double all = 0;
  for (int step = 0; step < most_steps; ++step) {
    nn::StepTimes times;
    network.record_times(&times);
    const std::int64_t start = trace_now();
    network.train_step(queue, nn::SgdOptions{.learning_rate = 1e-6}, step + 1);
    all += static_cast<double>(trace_now() - start) * 1e-9;
    network.record_times(nullptr);
    if (step >= warm_up_steps) {
      for (const nn::StepTimes::Execution& execution : times.executions()) {
        for (const nn::StepTimes::Action& a : times.actions(execution)) {
          const auto n = static_cast<std::size_t>(a.node);
          if ((*execution.nodes)[n].label != plan.nodes.at(n).label) {
            throw Error("aloni::tools::add_step_seconds", "node " + std::to_string(n), (*execution.nodes)[n].label,
                        plan.nodes[n].label + ", as the plan of the step has it");
          }
          seconds[n].push_back(static_cast<double>(a.end - a.start) * 1e-9);
        }
      }
    }
    // The clocks of ranks differ, and all of them compute at the same time.
    const bool goes_on = step + 1 < warm_up_steps + least_steps || all < least_seconds;
    if (comm.all_reduce(std::int64_t{goes_on ? 1 : 0}, comm::Reduction::max) == 0) break;
  }
  return seconds;
}

}  // namespace

void add_step_seconds(const comm::Communicator& comm, const model::PlannedNetwork& sample, model::KernelTable& table) {
  if (!on_host) return;
  const comm::Communicator alone = comm.split(comm.rank(), 0);
  const MachineDescription machine = comm::describe_machine(alone, nn::local::machine_of_this_build(on_host));
  const nn::NetworkPlan layers =
      plan_network(sample.network, resolve(sample.strategy, sample.network, 1), 1, sample.samples);
  const nn::StepPlan plan = plan_step(sample.network, layers, 0, nn::StepKind::training, machine, sample.step);
  const std::vector<std::vector<double>> seconds = run_steps(comm, alone, sample, plan);
  std::map<model::KernelKind, double> in_steps, by_themselves;
  for (std::size_t n = 0; n < plan.nodes.size(); ++n) {
    if (plan.nodes[n].kind() != nn::NodeKind::kernel || seconds[n].empty()) continue;
    const model::KernelProblem problem = model::kernel_of(plan, plan.nodes[n]);
    const auto known = table.times.find(problem.key);
    if (problem.calls.empty() || known == table.times.end()) continue;
    // Gradients of a job come from sums over ranks, which this network has none of: other caches have them.
    if (problem.calls.front().kind == model::KernelKind::optimiser) continue;
    in_steps[problem.calls.front().kind] += median(seconds[n]);
    by_themselves[problem.calls.front().kind] += known->second.seconds;
  }
  for (const auto& [kind, time] : in_steps) {  // all ranks have the same plan
    table.seconds_in_steps[kind] += comm.all_reduce(time, comm::Reduction::sum) / comm.size();
    table.seconds_alone[kind] += by_themselves.at(kind);
  }
}

}  // namespace aloni::tools
