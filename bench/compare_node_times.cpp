// Compares the times of kernel nodes measured alone (nn/run/measure_node.hpp) with their times in real training steps.
//
//   compare_node_times MODEL SAMPLES HEIGHT SPLIT [STEPS [GROUP]]
//   scripts/mpirun -n 2 build/host/bin/compare_node_times lenet5 64 28 h2
//
// HEIGHT: of the square input. SPLIT: "n1" on one rank; "n2", "h2", … on two.
//
// A node is measured once for all nodes with equal kernel problems, as a table of times has it. STEPS real steps run
// before each GROUP of measurements; the time of a node in steps is the median over the steps around its measurement.
// Rank 0 prints, for each kind of kernels and each phase: seconds in steps, seconds alone, their ratio, and the
// weighted error: the sum of |alone - step| over the sum of steps. The nodes that differ most follow.
//
// Measurements leave out runs that another program interrupted. Long steps cannot, so nothing else may run beside them.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/comm/running_machine.hpp>
#include <aloni/core/core_speed.hpp>
#include <aloni/core/environment.hpp>
#include <aloni/core/random.hpp>
#include <aloni/model/kernel.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/network.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/run/measure_node.hpp>
#include <aloni/nn/step_times.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>
#include <vector>

namespace aloni::bench {
namespace {

using Exec = Kokkos::DefaultExecutionSpace;
constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Exec::memory_space>::accessible;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t n = values.size();
  return n == 0 ? 0 : n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

struct Sums {
  double step = 0, alone = 0, difference = 0;
  int nodes = 0;

  void add(double s, double a) {
    step += s;
    alone += a;
    difference += std::abs(a - s);
    ++nodes;
  }
};

void print(const std::string& name, const Sums& s) {
  std::printf("%-22s %5d nodes  step %9.3f ms  alone %9.3f ms  ratio %.3f  weighted error %5.1f %%\n", name.c_str(),
              s.nodes, s.step * 1e3, s.alone * 1e3, s.alone / s.step, 100 * s.difference / s.step);
}

template <class View>
void fill_with_labels(const View& labels, Index classes) {
  const auto host = Kokkos::create_mirror_view(labels);
  for (std::size_t i = 0; i < host.extent(0); ++i) host(i) = static_cast<int>(i % static_cast<std::size_t>(classes));
  Kokkos::deep_copy(labels, host);
}

void compare(const comm::Communicator& comm, const std::string& model, Index samples, Index height,
             const std::string& split, int steps, int group) {
  const Queue<> queue;
  nn::ModelOptions options;
  const nn::NetworkDescription given = nn::make_model(model);
  views::Extents input = given.input;
  for (const views::Dim d : {views::Dim::depth, views::Dim::height, views::Dim::width})
    if (input[d] > 1) input[d] = height;
  options.input = input;
  const nn::NetworkDescription net = nn::make_model(model, options);
  const nn::Strategy strategy = nn::Strategy::uniform(nn::LayerSplit::parse(split));
  nn::Parameters<float> parameters(comm, queue, net, resolve(strategy, net, comm.size()), 1);
  nn::Network<float> network(comm, queue, net, strategy, samples, parameters, {.update = true});
  const nn::NetworkPlan layers = plan_network(net, resolve(strategy, net, comm.size()), comm.size(), samples);
  const MachineDescription machine = comm::describe_machine(comm, nn::local::machine_of_this_build(on_host));
  const nn::StepPlan plan =
      plan_step(net, layers, comm.rank(), nn::StepKind::training, machine, {.split_parameters = parameters.is_split()});
  const auto x = network.input();
  Kokkos::parallel_for(
      "aloni::bench::fill", Kokkos::RangePolicy<Exec>(0, static_cast<Index>(x.span())),
      KOKKOS_LAMBDA(Index i) { x.data()[i] = random::normal<float>(1, 2, i); });
  if (network.labels().extent(0) > 0) fill_with_labels(network.labels(), 10);
  if (network.targets().size() > 0) Kokkos::deep_copy(network.targets(), 0.5f);

  std::vector<std::vector<double>> in_steps(plan.nodes.size());
  std::vector<double> whole;
  std::int64_t number = 0;
  CoreSpeed speed;
  const auto run_steps = [&](int count) {
    for (int i = 0, kept = 0; i < 4 * count && kept < count; ++i) {
      const bool before = speed.is_full();
      const std::int64_t switches = preemptions();
      nn::StepTimes times;
      network.record_times(&times);
      comm.barrier();
      const std::int64_t start = trace_now();
      network.train_step(queue, nn::SgdOptions{.learning_rate = 1e-4}, ++number);
      const std::int64_t end = trace_now();
      network.record_times(nullptr);
      const bool good = before && (preemptions() == switches || i >= 2 * count) && speed.is_full();
      if ((i < 2 && whole.empty()) || comm.all_reduce(std::int64_t{good ? 1 : 0}, comm::Reduction::min) == 0) continue;
      ++kept;
      whole.push_back(static_cast<double>(end - start) * 1e-9);
      for (const nn::StepTimes::Execution& e : times.executions())
        for (const nn::StepTimes::Action& a : times.actions(e))
          if (a.kind == nn::StepActionKind::run)
            in_steps[static_cast<std::size_t>(a.node)].push_back(static_cast<double>(a.end - a.start) * 1e-9);
    }
  };
  run_steps(steps);
  const nn::MemoryLayout layout = nn::lay_out_memory({&plan}, machine);
  std::map<std::string, nn::NodeTime> table;
  std::map<std::string, std::size_t> measured_at;  // by key: number of steps before
  std::vector<double> alone(plan.nodes.size(), 0.0);
  const std::int64_t start = trace_now();
  std::vector<int> kernels;
  for (int n = 0; n < static_cast<int>(plan.nodes.size()); ++n)
    if (plan.nodes[static_cast<std::size_t>(n)].kind() == nn::NodeKind::kernel) kernels.push_back(n);
  // Plans of ranks may differ: every rank measures whenever one of them does, a rank without more kernels its last one.
  const auto longest = comm.all_reduce(static_cast<std::int64_t>(kernels.size()), comm::Reduction::max);
  int measured = 0;
  for (std::int64_t k = 0; k < longest; ++k) {
    const int n = kernels.at(std::min(static_cast<std::size_t>(k), kernels.size() - 1));
    const std::string key = model::kernel_of(plan, plan.nodes[static_cast<std::size_t>(n)]).key;
    if (comm.all_reduce(std::int64_t{table.contains(key) ? 1 : 0}, comm::Reduction::min) == 0) {
      if (measured++ % group == 0) run_steps(steps);
      measured_at.emplace(key, whole.size());
      table.emplace(key, nn::measure_node<float, Exec>(comm, queue, plan, layout, n, machine));
    }
    alone[static_cast<std::size_t>(n)] = table.at(key).seconds;
  }
  run_steps(steps);
  const double seconds = static_cast<double>(trace_now() - start) * 1e-9;
  if (comm.rank() != 0) return;

  std::map<std::string, Sums> by_kind, by_phase;
  Sums all;
  struct Line {
    double difference;
    std::string text;
  };
  std::vector<Line> lines;
  for (std::size_t n = 0; n < plan.nodes.size(); ++n) {
    const nn::PlanNode& node = plan.nodes[n];
    if (node.kind() != nn::NodeKind::kernel) continue;
    const model::KernelProblem problem = model::kernel_of(plan, node);
    // The speed of a shared host changes within seconds: the steps around the measurement count.
    const std::size_t at = measured_at.at(problem.key), first = at - std::min(at, std::size_t(steps)),
                      end = std::min(whole.size(), at + steps);
    const double step = median({in_steps[n].begin() + static_cast<std::ptrdiff_t>(first),
                                in_steps[n].begin() + static_cast<std::ptrdiff_t>(end)});
    by_kind[problem.calls.empty() ? "none" : std::string(model::name(problem.calls.front().kind))].add(step, alone[n]);
    by_phase[nn::name(node.phase)].add(step, alone[n]);
    all.add(step, alone[n]);
    char numbers[96];
    std::snprintf(numbers, sizeof numbers, "%9.1f us alone %9.1f us (+-%4.1f %%) %+6.1f %%  ", step * 1e6,
                  alone[n] * 1e6, 100 * table.at(problem.key).spread, 100 * (alone[n] / step - 1));
    lines.push_back({std::abs(alone[n] - step), numbers + node.label + "  " + problem.key});
  }
  std::ranges::sort(lines, std::greater{}, &Line::difference);
  std::printf("%s samples %ld input %ld split %s ranks %d: step %.3f ms, %zu problems measured in %.1f s\n",
              model.c_str(), static_cast<long>(samples), static_cast<long>(height), split.c_str(), comm.size(),
              median(whole) * 1e3, table.size(), seconds);
  for (const auto& [name, sums] : by_kind) print(name, sums);
  for (const auto& [name, sums] : by_phase) print("phase " + name, sums);
  print("all", all);
  for (std::size_t i = 0; i < std::min<std::size_t>(lines.size(), 12); ++i)
    std::printf("  %s\n", lines[i].text.substr(0, 230).c_str());
}

}  // namespace
}  // namespace aloni::bench

int main(int argc, char** argv) {
  aloni::Environment environment(argc, argv);
  if (argc < 5) {
    std::fprintf(stderr, "usage: compare_node_times MODEL SAMPLES HEIGHT SPLIT [STEPS [GROUP]]\n");
    return 2;
  }
  try {
    aloni::bench::compare(aloni::comm::from_mpi(MPI_COMM_WORLD), argv[1], std::atol(argv[2]), std::atol(argv[3]),
                          argv[4], argc > 5 ? std::atoi(argv[5]) : 4, argc > 6 ? std::atoi(argv[6]) : 1);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
