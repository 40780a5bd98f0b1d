#include <aloni/core/comm/running_machine.hpp>
#include <aloni/core/core_speed.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/core/random.hpp>
#include <aloni/model/kernel.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/network.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/run/measure_node.hpp>
#include <aloni/nn/step_times.hpp>
#include <aloni/tools/kernels_in_steps.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace aloni::tools {

namespace {

using Exec = Kokkos::DefaultExecutionSpace;
constexpr bool steps_on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Exec::memory_space>::accessible;

/// Steps at less than the full speed of a core are repeated, and do not count if enough others follow.
constexpr int warm_up_steps = 2, counted_steps = 5, most_steps = warm_up_steps + 2 * counted_steps;

template <class View>
void fill_input(const Queue<>& queue, const View& input) {
  Kokkos::parallel_for(
      "aloni::tools::fill_input", Kokkos::RangePolicy<Exec>(queue.space(), 0, static_cast<Index>(input.span())),
      KOKKOS_LAMBDA(Index i) {
        input.data()[i] = 2 * random::uniform<float>(1, 0, static_cast<std::uint64_t>(i)) - 1;
      });
}

/// For each node of the plan the seconds of its kernel in the steps that count. `all`: the ranks of all groups.
std::vector<std::vector<double>> run_steps(const comm::Communicator& all, const comm::Communicator& group,
                                           const model::PlannedNetwork& sample, const nn::StepPlan& plan) {
  const Queue<> queue;
  nn::Parameters<float> parameters(
      group, queue, sample.network, resolve(sample.strategy, sample.network, group.size()), 1,
      sample.step.accumulates ? nn::ParameterUse::accumulation : nn::ParameterUse::training);
  nn::Network<float> network(
      group, queue, sample.network, sample.strategy, sample.samples, parameters,
      {.update = true, .input_gradient = sample.step.input_gradient, .largest_overhead = sample.step.largest_overhead});
  fill_input(queue, network.input());
  Kokkos::deep_copy(network.labels(), 0);
  std::vector<std::vector<double>> seconds(plan.nodes.size()), slow(plan.nodes.size());
  CoreSpeed speed;
  int counted = 0;
  for (int step = 0; step < most_steps; ++step) {
    nn::StepTimes times;
    network.record_times(&times);
    const bool full_before = speed.is_full();
    if (sample.step.accumulates) {
      network.add_gradients(queue);
    } else {
      network.train_step(queue, nn::SgdOptions{.learning_rate = 1e-6}, step + 1);
    }
    network.record_times(nullptr);
    if (step < warm_up_steps) continue;
    const bool is_full = full_before && speed.is_full();
    counted += is_full;
    for (const nn::StepTimes::Execution& execution : times.executions()) {
      for (const nn::StepTimes::Action& a : times.actions(execution)) {
        const auto n = static_cast<std::size_t>(a.node);
        if ((*execution.nodes)[n].label != plan.nodes.at(n).label) {
          throw Error("aloni::tools::measure_in_steps", "node " + std::to_string(n), (*execution.nodes)[n].label,
                      plan.nodes[n].label + ", as the plan of the step has it");
        }
        (is_full ? seconds : slow)[n].push_back(static_cast<double>(a.end - a.start) * 1e-9);
      }
    }
    // All ranks compute until the last one has enough steps.
    if (all.all_reduce(std::int64_t{counted}, comm::Reduction::min) >= counted_steps) break;
  }
  if (counted < counted_steps)
    for (std::size_t n = 0; n < seconds.size(); ++n)
      seconds[n].insert(seconds[n].end(), slow[n].begin(), slow[n].end());
  return seconds;
}

}  // namespace

bool has_ranks_for(const comm::Communicator& comm, const model::PlannedNetwork& sample) {
  return steps_on_host && comm.size() % sample.ranks == 0;
}

void measure_in_steps(const comm::Communicator& comm, const model::PlannedNetwork& sample,
                      const std::vector<model::KernelTask>& tasks, model::KernelTable& table) {
  const comm::Communicator group = comm.split(comm.rank() / sample.ranks, comm.rank());
  const MachineDescription machine = comm::describe_machine(group, nn::local::machine_of_this_build(steps_on_host));
  const nn::NetworkPlan layers = plan_network(sample.network, resolve(sample.strategy, sample.network, sample.ranks),
                                              sample.ranks, sample.samples);
  const nn::StepPlan plan =
      plan_step(sample.network, layers, group.rank(), nn::StepKind::training, machine, sample.step);
  const std::vector<std::vector<double>> seconds = run_steps(comm, group, sample, plan);
  std::map<std::string, std::size_t> nodes;  // the first one with a problem
  for (std::size_t n = 0; n < plan.nodes.size(); ++n)
    if (plan.nodes[n].kind() == nn::NodeKind::kernel && !seconds[n].empty())
      nodes.emplace(model::kernel_of(plan, plan.nodes[n]).key, n);
  std::vector<double> sums(4 * tasks.size());  // of each task: ranks with it, seconds, spreads, runs
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const auto found = nodes.find(tasks[t].key);
    if (found == nodes.end()) continue;
    const nn::NodeTime time = nn::summary(seconds[found->second]);
    sums[4 * t] = 1;
    sums[4 * t + 1] = time.seconds;
    sums[4 * t + 2] = time.spread;
    sums[4 * t + 3] = time.runs;
  }
  comm.all_reduce(std::span(sums), comm::Reduction::sum);
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const double ranks = sums[4 * t], mean = sums[4 * t + 1] / std::max(1.0, ranks);
    if (!(mean > 0)) continue;
    table.times.emplace(tasks[t].key, model::MeasuredKernel{.seconds = mean,
                                                            .spread = sums[4 * t + 2] / ranks,
                                                            .runs = static_cast<int>(sums[4 * t + 3] / ranks)});
  }
}

}  // namespace aloni::tools
