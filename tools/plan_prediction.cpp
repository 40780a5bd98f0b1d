#include <aloni/tools/plan_prediction.hpp>

#include <aloni/model/kernel_times.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/strategy.hpp>
#include <aloni/tools/memory_arguments.hpp>
#include <aloni/tools/objective_argument.hpp>
#include <aloni/tools/placement_text.hpp>
#include <aloni/tools/plan_summary.hpp>
#include <aloni/tools/quantity_text.hpp>
#include <aloni/tools/text_table.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace aloni::tools {

namespace {

constexpr std::size_t most_columns = 100;

nn::StepOptions step_options_of(const PlanRequest& request) {
  return {
      .activations = request.activations, .optimiser = request.optimiser, .largest_overhead = request.largest_overhead};
}

/// Few ranks do not share their node with absent ones.
model::MachineKernels kernels_for(const PlanRequest& request, const model::Machine& machine) {
  return {machine, std::min(request.ranks, machine.ranks_per_node), machine.threads_per_rank};
}

std::vector<std::string> cells_of(const std::string& layer, const model::KernelSeconds& kernels,
                                  const PredictedTime& time) {
  return {layer,
          source_text(kernels),
          seconds_text(time.seconds()),
          seconds_text(time.compute),
          seconds_text(time.communication.halos),
          seconds_text(time.communication.redistributions),
          seconds_text(time.communication.sums),
          seconds_text(time.exposed)};
}

std::string text_of_reasons(const PlanPrediction& prediction, const nn::NetworkDescription& network) {
  std::size_t name = 0, reason = 0;
  for (std::size_t i = 0; i < prediction.reasons.size(); ++i) {
    name = std::max(name, network.layers[i].name.size());
    reason = std::max(reason, prediction.reasons[i].text.size());
  }
  const bool beside = name + 2 + reason <= most_columns;
  std::string text;
  for (std::size_t i = 0; i < prediction.reasons.size(); ++i) {
    const std::string& layer = network.layers[i].name;
    text += beside ? fmt::format("{:<{}}  {}\n", layer, name, prediction.reasons[i].text)
                   : fmt::format("{}\n    {}\n", layer, prediction.reasons[i].text);
  }
  return text;
}

}  // namespace

PredictedTime& PredictedTime::operator+=(const PredictedTime& other) {
  compute += other.compute;
  communication += other.communication;
  exposed += other.exposed;
  return *this;
}

PlanChoice choose(PlanRequest& request, const model::Machine& machine) {
  const model::MachineKernels kernels = kernels_for(request, machine);
  model::StrategyChoice choice = choose_strategy(request.network, machine, request.ranks,
                                                 {.samples = request.batch,
                                                  .memory = for_search(request.memory),
                                                  .objective = request.objective,
                                                  .step = step_options_of(request),
                                                  .kernels = &kernels});
  request.strategy = choice.strategy;
  if (choice.samples != request.batch) request.requested_batch = std::exchange(request.batch, choice.samples);
  request.machine = description_of(machine, request.ranks, choice.rank_of);
  if (choice.wish.limit) request.memory = choice.wish;  // the plan has the same savings then
  const nn::NetworkPlan layers = nn::plan_network(request.network, choice.splits, request.ranks, request.batch);
  model::SimulationOptions options{
      .kind = step_kind_of(request.objective), .step = step_options_of(request), .rank_of = choice.rank_of};
  choice.savings.apply(options.step);
  model::StepLimits limits = choose_step_limits(request.network, layers, machine, kernels, options);
  request.machine->bucket_bytes = limits.bucket_bytes;
  request.machine->chunk_bytes = static_cast<double>(limits.chunk_bytes);
  request.largest_overhead = limits.largest_overhead;
  return {std::move(choice), std::move(limits)};
}

PlanPrediction predict(const PlanRequest& request, const PlanSummary& summary, const model::Machine& machine,
                       const std::optional<PlanChoice>& choice) {
  const auto splits = nn::resolve(request.strategy, request.network, request.ranks);
  const nn::NetworkPlan layers = nn::plan_network(request.network, splits, request.ranks, request.batch);
  model::SimulationOptions options{.kind = step_kind_of(request.objective), .step = step_options_of(request)};
  summary.savings.apply(options.step);
  model::Machine planned = machine;
  if (choice) {
    options.rank_of = choice->strategy.rank_of;
    planned.planning.bucket_bytes = choice->limits.bucket_bytes;
    planned.planning.chunk_bytes = static_cast<double>(choice->limits.chunk_bytes);
  }
  const model::SimulatedStep step = simulate(request.network, layers, planned, kernels_for(request, machine), options);

  PlanPrediction prediction{.machine = machine.name, .step_seconds = step.seconds};
  prediction.sources = sources_of(step);
  for (std::size_t i = 0; i < step.layers.size(); ++i) {
    const model::RankTime& time = step.layers[i];
    prediction.layers.push_back({time.kernels, step.communication[i], time.copies + time.waits});
    prediction.total += prediction.layers.back();
  }
  for (std::size_t i = 0; i < request.network.layers.size(); ++i) {
    SplitReason& reason = prediction.reasons.emplace_back();
    if (!choice) {
      reason.text = "given: " + request.strategy.source;
      continue;
    }
    const model::LayerChoice& layer = choice->strategy.layers[i];
    reason.text = layer.reason;
    if (layer.runner_up) reason.runner_up = to_string(*layer.runner_up);
    reason.runner_up_seconds = layer.runner_up_seconds;
    reason.candidates = layer.candidates;
    reason.own_candidates = layer.own_candidates;
  }
  prediction.ranks = request.ranks;
  prediction.chosen = choice.has_value();
  prediction.rank_of = options.rank_of;
  prediction.nodes = description_of(machine, request.ranks, options.rank_of).nodes;
  prediction.placement_reason = choice ? choice->strategy.placement_reason : "in order: the strategy is given";
  if (choice) prediction.savings_reason = choice->strategy.savings_reason;
  if (choice) prediction.repeats_reason = choice->strategy.repeats_reason;
  if (choice) prediction.uniform = choice->strategy.uniform;
  if (choice) prediction.candidates = choice->strategy.candidates;
  prediction.limits = {.bucket_bytes = planned.planning.bucket_bytes,
                       .chunk_bytes = static_cast<Index>(planned.planning.chunk_bytes),
                       .largest_overhead = request.largest_overhead,
                       .reason = choice ? choice->limits.reason : "those of its file"};
  prediction.direct_bytes = planned.planning.direct_bytes;
  prediction.consolidate_below = planned.planning.consolidate_below;
  prediction.memory_bytes = summary.peak_bytes;
  prediction.machine_memory_bytes = static_cast<Index>(machine.memory_bytes);
  return prediction;
}

std::string to_text(const PlanPrediction& prediction, const nn::NetworkDescription& network) {
  std::string text = fmt::format("Predicted seconds of the slowest rank on machine {}:\n\n", prediction.machine);
  std::vector<std::vector<std::string>> rows{
      {"layer", "source", "time", "compute", "halo", "redistribution", "collective", "exposed"}};
  for (std::size_t i = 0; i < prediction.layers.size(); ++i)
    rows.push_back(cells_of(i < network.layers.size() ? network.layers[i].name : "no layer",
                            prediction.sources.kernels[i], prediction.layers[i]));
  rows.push_back(cells_of("total", prediction.sources.all_kernels(), prediction.total));
  constexpr std::size_t left = 2, source = 1;
  text += text_table(std::move(rows), left, source);
  text += "\nThe time is compute and exposed. Communication counts by itself, also the part that kernels hide.\n";
  text += fmt::format("step       {}\n", seconds_text(prediction.step_seconds));
  if (prediction.uniform)
    text += fmt::format("           {} with the best grid for all layers, {}\n",
                        seconds_text(prediction.uniform->seconds), to_string(prediction.uniform->split));
  text += to_text(prediction.sources);
  text += savings_text(prediction.savings_reason);
  text += repeats_text(prediction.repeats_reason);
  if (prediction.chosen) text += placement_text(prediction.placement_reason, prediction.rank_of, prediction.nodes);
  text += limits_text(prediction.machine, prediction.limits.reason) + "\n";
  text += transfers_text(prediction.direct_bytes, prediction.consolidate_below, prediction.ranks,
                         number_of_nodes({.nodes = prediction.nodes}));
  if (!prediction.feasible())
    text += fmt::format("infeasible {} more memory than the {} of a rank\n",
                        bytes_text(prediction.memory_bytes - prediction.machine_memory_bytes),
                        bytes_text(prediction.machine_memory_bytes));
  if (prediction.chosen)
    text += "\nThe best other split of each layer, and why it lost:\n\n" + text_of_reasons(prediction, network);
  return text;
}

}  // namespace aloni::tools
