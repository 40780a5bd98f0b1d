#include <aloni/tools/step_comparison.hpp>

#include <aloni/core/error.hpp>
#include <aloni/model/kernel.hpp>
#include <aloni/model/kernel_times.hpp>
#include <aloni/model/simulate.hpp>
#include <aloni/tools/median.hpp>
#include <aloni/tools/quantity_text.hpp>
#include <aloni/tools/text_table.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <variant>

namespace aloni::tools {

namespace {

constexpr std::size_t other_kernels = model::kernel_kinds, halo_kind = other_kernels + 1,
                      redistribution_kind = halo_kind + 1, collective_kind = redistribution_kind + 1;
constexpr std::size_t number_of_phases = 4;
constexpr double nanosecond = 1e-9;

std::size_t kind_of_work(const nn::StepPlan& plan, const nn::PlanNode& node) {
  if (std::holds_alternative<nn::ReductionWork>(node.work)) return collective_kind;
  if (const auto* transfer = std::get_if<nn::TransferWork>(&node.work)) {
    switch (transfer->purpose) {
      case nn::TransferPurpose::ghosts:
        return halo_kind;
      case nn::TransferPurpose::redistribution:
        return redistribution_kind;
      case nn::TransferPurpose::partial_sums:
        return collective_kind;
    }
  }
  const model::KernelProblem problem = model::kernel_of(plan, node);
  return problem.calls.empty() ? other_kernels : static_cast<std::size_t>(problem.calls.front().kind);
}

/// The rows whose times are means over ranks.
std::vector<std::vector<ComparedTime>*> means_of(StepComparison& c) { return {&c.phases, &c.kinds, &c.layers}; }

double measured_sum(const std::vector<ComparedTime>& times) {
  double sum = 0;
  for (const ComparedTime& time : times) sum += time.measured;
  return sum;
}

std::string error_text(const ComparedTime& time) {
  return time.measured > 0 ? fmt::format("{:+.1f} %", 100 * time.error()) : "-";
}

}  // namespace

const std::vector<std::string>& kinds_of_work() {
  static const std::vector<std::string> kinds = [] {
    std::vector<std::string> names;
    for (int k = 0; k < model::kernel_kinds; ++k) names.emplace_back(name(static_cast<model::KernelKind>(k)));
    for (const char* other : {"other kernels", "halo", "redistribution", "collective"}) names.emplace_back(other);
    return names;
  }();
  return kinds;
}

StepPrediction predict_step(const nn::NetworkDescription& network, const nn::NetworkPlan& layers,
                            const model::Machine& machine, const nn::StepOptions& options, int rank) {
  const int ranks = layers.input.ranks();
  const model::MachineKernels kernels(machine, machine.ranks_per_node, machine.threads_per_rank);
  const model::SimulatedStep step = simulate(network, layers, machine, kernels, {.step = options, .timeline = true});
  const nn::StepPlan plan =
      plan_step(network, layers, rank, nn::StepKind::training, description_of(machine, ranks), options);
  StepPrediction prediction{.machine = machine.name, .seconds = step.seconds};
  for (const nn::LayerDescription& layer : network.layers) prediction.layers.push_back(layer.name);
  for (const nn::PlanNode& node : plan.nodes)
    prediction.nodes.push_back({node.label, node.layer, node.phase, kind_of_work(plan, node)});
  const int walked = step.walked[static_cast<std::size_t>(rank)];
  for (const model::SimulatedAction& a : step.actions)
    if (a.rank == walked) prediction.nodes[static_cast<std::size_t>(a.node)].seconds += a.end - a.start;
  return prediction;
}

std::vector<double> flops_of_steps(const nn::StepTimes& times) {
  std::vector<double> flops;
  for (const nn::StepTimes::Execution& step : times.executions()) {
    flops.push_back(0);
    for (const nn::TimedNode& node : *step.nodes) flops.back() += node.cost.flops;
  }
  return flops;
}

MeasuredStep measure_step(const nn::StepTimes& times, const std::vector<double>& flops) {
  const double most = *std::ranges::max_element(flops);
  MeasuredStep measured;
  std::vector<std::vector<double>> samples;
  for (std::size_t s = 0; s < flops.size(); ++s) {
    if (flops[s] < most) continue;
    const nn::StepTimes::Execution& step = times.executions()[s];
    std::vector<double> nodes(step.nodes->size(), 0.0);
    for (const nn::StepTimes::Action& a : times.actions(step))
      nodes[static_cast<std::size_t>(a.node)] += nanosecond * static_cast<double>(a.end - a.start);
    samples.resize(nodes.size());
    for (std::size_t n = 0; n < nodes.size(); ++n) samples[n].push_back(nodes[n]);
    if (measured.labels.empty())
      for (const nn::TimedNode& node : *step.nodes) measured.labels.push_back(node.label);
    ++measured.steps;
  }
  for (std::vector<double>& of_node : samples) measured.nodes.push_back(median(std::move(of_node)));
  std::vector<double> input;
  for (const nn::StepTimes::Span& span : times.spans())
    if (span.row == nn::StepTimes::Row::input) input.push_back(nanosecond * static_cast<double>(span.end - span.start));
  measured.input = median(std::move(input));
  return measured;
}

double StepComparison::mean_error() const {
  double difference = 0;
  for (const ComparedTime& layer : layers) difference += std::abs(layer.predicted - layer.measured);
  const double sum = measured_sum(layers);
  return sum > 0 ? difference / sum : 0;
}

const ComparedTime* StepComparison::worst_layer() const {
  constexpr double least_share = 0.01;
  const double sum = measured_sum(layers);
  const ComparedTime* worst = nullptr;
  for (const ComparedTime& layer : layers) {
    if (layer.measured <= 0 || layer.measured < least_share * sum) continue;
    if (!worst || std::abs(layer.error()) > std::abs(worst->error())) worst = &layer;
  }
  return worst;
}

StepComparison compare(const StepPrediction& predicted, const MeasuredStep& measured, double step_seconds) {
  const bool same = std::ranges::equal(predicted.nodes, measured.labels, {}, &PredictedNode::label);
  if (!same)
    throw InvalidArgument("aloni train --compare", "nodes",
                          std::to_string(measured.labels.size()) + " in the steps of the training",
                          std::to_string(predicted.nodes.size()) + " as in the plan for machine " + predicted.machine);
  StepComparison c{.machine = predicted.machine, .steps = measured.steps, .input = measured.input};
  c.step = {"step", predicted.seconds, step_seconds - measured.input};
  for (std::size_t p = 0; p < number_of_phases; ++p) c.phases.push_back({name(static_cast<nn::StepPhase>(p))});
  for (const std::string& kind : kinds_of_work()) c.kinds.push_back({kind});
  for (const std::string& layer : predicted.layers) c.layers.push_back({layer});
  c.layers.push_back({"no layer"});
  for (std::size_t n = 0; n < predicted.nodes.size(); ++n) {
    const PredictedNode& node = predicted.nodes[n];
    const ComparedTime time{node.label, node.seconds, measured.nodes[n]};
    const std::size_t layer = node.layer < 0 ? predicted.layers.size() : static_cast<std::size_t>(node.layer);
    for (ComparedTime* sum : {&c.phases[static_cast<std::size_t>(node.phase)], &c.kinds[node.kind], &c.layers[layer]}) {
      sum->predicted += time.predicted;
      sum->measured += time.measured;
    }
    c.nodes.push_back(time);
  }
  return c;
}

std::optional<StepComparison> compare_over_ranks(const comm::Communicator& comm, const StepPrediction& predicted,
                                                 const nn::TrainReport& report) {
  std::vector<double> flops = flops_of_steps(*report.times);
  if (flops.empty()) return std::nullopt;
  comm.all_reduce(std::span(flops), comm::Reduction::sum);
  StepComparison c = comm::collectively(comm, "aloni train --compare", [&] {
    return compare(predicted, measure_step(*report.times, flops), report.step_seconds);
  });
  std::vector<double> sums{c.input};
  for (const auto* times : means_of(c))
    for (const ComparedTime& time : *times) sums.insert(sums.end(), {time.predicted, time.measured});
  comm.all_reduce(std::span(sums), comm::Reduction::sum);
  std::size_t next = 0;
  const auto mean = [&] { return sums[next++] / comm.size(); };
  c.ranks = comm.size();
  c.input = mean();
  for (auto* times : means_of(c)) {
    for (ComparedTime& time : *times) {
      time.predicted = mean();
      time.measured = mean();
    }
  }
  c.step.measured = comm.all_reduce(c.step.measured, comm::Reduction::max);
  return c;
}

std::string to_text(const StepComparison& comparison) {
  const auto table = [](const char* heading, const std::vector<ComparedTime>& times) {
    std::vector<std::vector<std::string>> rows{{heading, "predicted", "measured", "error"}};
    for (const ComparedTime& time : times)
      if (time.predicted > 0 || time.measured > 0)
        rows.push_back({time.name, seconds_text(time.predicted), seconds_text(time.measured), error_text(time)});
    return text_table(rows, 1);
  };
  std::vector<ComparedTime> kinds = comparison.kinds;
  for (ComparedTime& kind : kinds) std::ranges::replace(kind.name, '_', ' ');
  std::vector<ComparedTime> totals{comparison.step};
  totals.insert(totals.end(), comparison.phases.begin(), comparison.phases.end());
  std::vector<ComparedTime> layers = comparison.layers;
  std::ranges::stable_sort(layers, std::ranges::greater{},
                           [](const ComparedTime& t) { return std::abs(t.predicted - t.measured); });
  constexpr std::size_t shown = 5;
  layers.resize(std::min(layers.size(), shown));

  std::string text = fmt::format("\nMachine {} beside {} on {}, without the input ({} per step)\n\n",
                                 comparison.machine, count_text(comparison.steps, "timed step"),
                                 count_text(comparison.ranks, "rank"), seconds_text(comparison.input));
  text += table("whole step", totals) + "\n" + table("kind of work", kinds) + "\n" +
          table("layers that differ most", layers);
  text += fmt::format("\nerror       {:.1f} % of the time of layers", 100 * comparison.mean_error());
  if (const ComparedTime* worst = comparison.worst_layer())
    text += fmt::format("; worst of layers above 1 % of it: {} ({})", worst->name, error_text(*worst));
  return text + "\n";
}

}  // namespace aloni::tools
