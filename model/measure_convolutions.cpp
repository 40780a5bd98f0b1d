#include <aloni/model/measure_convolutions.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/convolution_cases.hpp>
#include <aloni/nn/plan/representatives.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

namespace aloni::model {

using nn::local::ConvolutionBackend;
using nn::local::ConvolutionCase;
using nn::local::ConvolutionImplementation;

class PlansByImplementation {
 public:
  PlansByImplementation(const PlannedNetwork& network, std::shared_ptr<const nn::NetworkPlan> layers, int rank,
                        const MachineDescription& machine)
      : network_(network), layers_(std::move(layers)), rank_(rank), machine_(machine) {}

  nn::StepPlan planned(ConvolutionBackend backend) const {
    nn::StepOptions step = network_.step;
    step.backend = backend;
    return nn::plan_step(network_.network, *layers_, rank_, network_.kind, machine_, step);
  }

  /// The plan whose node has this implementation. Its address stays, and it has the buffers of all plans of the
  /// backend.
  const nn::StepPlan& of(const ConvolutionImplementation& implementation, int node) {
    const auto [place, is_new] = plans_.try_emplace(implementation.backend);
    if (is_new) place->second = planned(implementation.backend);
    nn::Work& work = place->second.nodes[static_cast<std::size_t>(node)].work;
    std::vector<nn::ConvolutionCall>* calls = nullptr;
    if (auto* region = std::get_if<nn::ConvolutionWork>(&work)) calls = &region->calls;
    if (auto* gradient = std::get_if<nn::FilterGradientWork>(&work)) calls = &gradient->calls;
    if (calls)
      for (nn::ConvolutionCall& call : *calls) call.engine = implementation.engine;
    return place->second;
  }

 private:
  PlannedNetwork network_;
  std::shared_ptr<const nn::NetworkPlan> layers_;
  int rank_;
  MachineDescription machine_;
  std::map<ConvolutionBackend, nn::StepPlan> plans_ = {};
};

namespace {

/// The convolution of a node; none if it has none or several.
std::optional<std::pair<ConvolutionCase, int>> only_convolution_of(const nn::StepPlan& plan, const nn::PlanNode& node) {
  const std::vector<nn::ConvolutionInPlan> all = nn::convolutions_of(plan, node);
  const auto is_first = [&](const nn::ConvolutionInPlan& c) { return c.convolution == all.front().convolution; };
  if (all.empty() || !std::ranges::all_of(all, is_first)) return std::nullopt;
  return std::pair(all.front().convolution, static_cast<int>(all.size()));
}

ConvolutionTable& own_convolutions(Machine& machine) {
  const int device = machine.planning.compute_capability;
  for (ConvolutionTable& table : machine.convolutions)
    if (table.ranks_per_node == machine.ranks_per_node && table.threads_per_rank == machine.threads_per_rank &&
        table.compute_capability == device)
      return table;
  machine.convolutions.push_back({machine.ranks_per_node, machine.threads_per_rank, device, {}});
  return machine.convolutions.back();
}

/// Of a copy of the input of each output pixel.
Index patches_bytes(const ConvolutionCase& c) {
  Index elements = c.problem.samples * c.problem.channels_per_group();
  for (std::size_t d = 0; d < 3; ++d) elements *= c.problem.output[d] * c.problem.kernel[d];
  return elements * nn::bytes_of(c.type);
}

}  // namespace

std::vector<ConvolutionTask> convolution_tasks(const std::vector<PlannedNetwork>& networks, const Machine& machine) {
  std::vector<ConvolutionTask> tasks;
  std::set<MeasuredImplementations::Problem> seen;
  for (const PlannedNetwork& n : networks) {
    const MachineDescription description = description_of(machine, n.ranks);
    const auto layers = std::make_shared<const nn::NetworkPlan>(
        nn::plan_network(n.network, nn::resolve(n.strategy, n.network, n.ranks), n.ranks, n.samples));
    for (const int rank : nn::find_representatives(n.network, *layers, description).ranks) {
      const auto plans = std::make_shared<PlansByImplementation>(n, layers, rank, description);
      const nn::StepPlan plan = plans->planned(ConvolutionBackend::automatic);
      for (int i = 0; i < static_cast<int>(plan.nodes.size()); ++i) {
        const auto found = only_convolution_of(plan, plan.nodes[static_cast<std::size_t>(i)]);
        if (!found || nn::local::implementations_to_measure(found->first, description).size() < 2) continue;
        if (!seen.insert(numbers_of(found->first)).second) continue;
        tasks.push_back({.convolution = found->first, .plans = plans, .node = i, .calls = found->second});
      }
    }
  }
  return tasks;
}

std::vector<ImplementationToMeasure> list_implementations(const ConvolutionCase& c, const MachineDescription& machine) {
  std::vector<ImplementationToMeasure> all;
  const int bytes = static_cast<int>(nn::bytes_of(c.type));
  for (const ConvolutionBackend backend : nn::local::implementations_to_measure(c, machine)) {
    Index workspace = 0;
    if (backend == ConvolutionBackend::onednn)
      workspace = nn::local::scratch_bytes(c.problem,
                                           {.forward = c.pass == nn::local::ConvolutionPass::forward,
                                            .backward_data = c.pass == nn::local::ConvolutionPass::backward_data,
                                            .backward_filter = c.pass == nn::local::ConvolutionPass::backward_filter,
                                            .dense_input = !c.input_gaps,
                                            .dense_output = !c.output_gaps},
                                           bytes, static_cast<int>(std::max<Index>(4, bytes)));
    // The patches of as many pixels as fit into local::workspace_limit.
    if (backend == ConvolutionBackend::kokkos_kernels) workspace = std::min(patches_bytes(c), Index{32} << 20);
    all.push_back({{.backend = backend}, workspace});
  }
  return all;
}

void measure_convolutions(const std::vector<ConvolutionTask>& tasks, Machine& machine, const MeasureKernel& measure,
                          const MeasureConvolutionsOptions& options,
                          const std::function<bool(const ConvolutionProgress&)>& proceed) {
  const ListImplementations list =
      options.list ? options.list : [&](const ConvolutionCase& c) { return list_implementations(c, machine.planning); };
  KernelTable& kernels = own_kernels(machine);
  ConvolutionTable& table = own_convolutions(machine);
  MeasuredImplementations::Times times = table.measured.times();
  // The table is set after each task, also if one throws: an interruption then loses one task.
  const auto keep = [&] { table.measured = MeasuredImplementations(times, options.most_workspace_bytes); };
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const ConvolutionTask& task = tasks[i];
    std::vector<ImplementationTime> all;
    if (const auto known = times.find(numbers_of(task.convolution)); known != times.end()) all = known->second;
    std::vector<ImplementationToMeasure> missing = list(task.convolution);
    std::erase_if(missing, [&](const ImplementationToMeasure& m) {
      return m.workspace_bytes > options.most_workspace_bytes ||
             std::ranges::find(all, to_string(m.implementation), &ImplementationTime::implementation) != all.end();
    });
    if (missing.empty()) continue;
    if (!proceed({.done = i, .all = tasks.size(), .next = &task})) return keep();
    for (const ImplementationToMeasure& m : missing) {
      const nn::StepPlan& plan = task.plans->of(m.implementation, task.node);
      const std::string key = kernel_of(plan, plan.nodes[static_cast<std::size_t>(task.node)]).key;
      auto whole = kernels.times.find(key);
      if (whole == kernels.times.end()) {
        const MeasuredKernel measured = measure(plan, task.node);
        if (!(measured.seconds > 0))
          throw InvalidArgument("aloni::model::measure_convolutions", "seconds of " + key,
                                std::to_string(measured.seconds), "a time above 0");
        whole = kernels.times.emplace(key, measured).first;
      }
      all.push_back({.implementation = to_string(m.implementation),
                     .seconds = whole->second.seconds / task.calls,
                     .spread = whole->second.spread,
                     .runs = whole->second.runs,
                     .workspace_bytes = m.workspace_bytes});
    }
    times[numbers_of(task.convolution)] = std::move(all);
    keep();
  }
  keep();
  proceed({.done = tasks.size(), .all = tasks.size()});
}

}  // namespace aloni::model
