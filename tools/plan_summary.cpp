#include <aloni/core/version.hpp>
#include <aloni/model/candidates.hpp>
#include <aloni/nn/plan/cost.hpp>
#include <aloni/nn/plan/largest_memory.hpp>
#include <aloni/nn/plan/memory_shortage.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/plan/representatives.hpp>
#include <aloni/tools/convolution_report.hpp>
#include <aloni/tools/objective_argument.hpp>
#include <aloni/tools/placement_text.hpp>
#include <aloni/tools/plan_summary.hpp>
#include <aloni/tools/quantity_text.hpp>
#include <aloni/tools/step_sources.hpp>
#include <aloni/tools/text_table.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace aloni::tools {

using views::Dim;
using views::Extents;

namespace {

using Json = nlohmann::ordered_json;

void add_times(const PredictedTime& time, Json& json) {
  json["seconds"] = time.seconds();
  json["compute_seconds"] = time.compute;
  json["halo_seconds"] = time.communication.halos;
  json["redistribution_seconds"] = time.communication.redistributions;
  json["collective_seconds"] = time.communication.sums;
  json["exposed_seconds"] = time.exposed;
}

void add_layer(const PlanPrediction& prediction, std::size_t layer, const std::string& split, Json& json) {
  const SplitReason& reason = prediction.reasons[layer];
  json["split"] = split;
  add_times(prediction.layers[layer], json);
  json["reason"] = reason.text;
  json["runner_up"] = reason.runner_up ? Json(*reason.runner_up) : Json();
  json["runner_up_seconds"] = reason.runner_up ? Json(reason.runner_up_seconds) : Json();
  add_sources(prediction.sources.kernels[layer], json);
  if (!prediction.chosen) return;
  json["candidates"] = reason.candidates;
  json["rejected"] = reason.own_candidates ? Json(reason.candidates) : Json();
}

/// The lists of candidates, and those of rejected splits at the same positions.
void add_candidates(const std::vector<model::Candidates>& lists, Json& json) {
  json["candidates"] = json["rejected"] = Json::array();
  for (const model::Candidates& list : lists) {
    Json splits = Json::array(), rejected = Json::array();
    for (const nn::LayerSplit& split : list.splits) splits.push_back(to_string(split));
    for (const model::Rejection& r : list.rejected)
      rejected.push_back({{"split", to_string(r.split)}, {"reason", model::reason(r)}});
    json["candidates"].push_back(std::move(splits));
    json["rejected"].push_back(std::move(rejected));
  }
}

void add_totals(const PlanPrediction& prediction, Json& json) {
  json["step_seconds"] = prediction.step_seconds;
  add_times(prediction.total, json["total"]);
  add_times(prediction.layers.back(), json["no_layer"]);
  json["uniform"] = Json();
  if (const auto& uniform = prediction.uniform)
    json["uniform"] = {{"split", to_string(uniform->split)}, {"step_seconds", uniform->seconds}};
  json["savings_reason"] = prediction.savings_reason;
  json["repeats_reason"] = prediction.repeats_reason;
  json["placement"] = {
      {"reason", prediction.placement_reason}, {"rank_of", prediction.rank_of}, {"node_of_rank", prediction.nodes}};
  add_limits(prediction.limits, prediction.direct_bytes, prediction.consolidate_below, json);
  json["feasible"] = prediction.feasible();
  add_sources(prediction.sources, json);
  if (prediction.chosen) add_candidates(prediction.candidates, json);
}

}  // namespace

std::string extents_text(const Extents& e, int spatial_rank) {
  std::string text = std::to_string(e[Dim::sample]);
  for (int i = 4 - spatial_rank; i < 5; ++i) text += "x" + std::to_string(e.values[static_cast<std::size_t>(i)]);
  return text;
}

std::string heading(const PlanRequest& request, const PlanSummary& summary) {
  return fmt::format("{}, {} parameters, {}, {}, strategy {}, batch {}", request.model, summary.parameters,
                     name(request.activations), ranks_text(request.ranks, request.ranks_per_node),
                     request.strategy.source, request.batch) +
         (request.requested_batch > 0 ? enlarged_text(request.batch, request.requested_batch) : "");
}

MachineDescription machine_of(const PlanRequest& request) {
  return request.machine ? *request.machine : machine_of_nodes(request.ranks, request.ranks_per_node);
}

namespace {

nn::SegmentCounts segments_of(const nn::StepPlan& plan, const MachineDescription& machine) {
  const nn::StepGraph graph = nn::graph_of(plan);
  const auto actions = nn::schedule(graph, {.kernels_ahead = machine.kernels_ahead()});
  return nn::count_segments(nn::split_into_segments(graph, actions, nn::streams_of(graph, actions, plan.streams)),
                            actions);
}

}  // namespace

PlanSummary summarise(const PlanRequest& request) {
  const nn::NetworkDescription& network = request.network;
  const MachineDescription machine = machine_of(request);
  const auto splits = nn::resolve(request.strategy, network, request.ranks);
  const nn::NetworkPlan layers = nn::plan_network(network, splits, request.ranks, request.batch);
  nn::StepOptions options{
      .activations = request.activations, .optimiser = request.optimiser, .largest_overhead = request.largest_overhead};
  PlanSummary summary;
  const nn::StepKind kind_of_step = step_kind_of(request.objective);
  if (!request.memory.empty() && kind_of_step == nn::StepKind::training)  // inference keeps no activations
    summary.savings = nn::savings_or_ways_out({network, splits, request.ranks, request.batch, options, request.memory},
                                              layers, machine);
  if (request.memory.saves())
    summary.peak_bytes_without = nn::price_recomputation(network, layers, machine, options).peak_bytes;
  summary.savings.apply(options);
  summary.parameters = nn::count_parameters(network);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < network.layers.size(); ++i) {
    names.push_back(network.layers[i].name);
    summary.layers.push_back(
        {.name = names.back(), .operation = kind(network.layers[i].operation), .grid = to_string(splits[i])});
  }
  std::vector<Index> most_read(names.size(), -1);
  // The plan of a representative stands for those of many ranks. Their reductions differ by position.
  const nn::Representatives few = nn::find_representatives(network, layers, machine);
  nn::ReductionCosts reductions(network, layers, machine);
  nn::LargestMemory most;
  std::set<std::string> known;  // convolutions
  nn::KfacPlan kfac;
  if (request.kfac) {
    kfac = plan_kfac(network, splits, request.ranks);
    summary.kfac.emplace();
  }
  for (std::size_t k = 0; k < few.ranks.size(); ++k) {
    const int rank = few.ranks[k];
    const nn::StepPlan plan = nn::plan_step(network, layers, rank, kind_of_step, machine, options);
    if (k == 0 && !machine.on_host) summary.segments = segments_of(plan, machine);
    const nn::StepCost step = nn::cost_without_reductions(plan, machine);
    const std::vector<Index> memory = nn::memory_by_layer(plan, names, machine);
    for (std::size_t i = 0; i < names.size(); ++i) {
      LayerSummary& layer = summary.layers[i];
      const nn::CostByKind c = step.of(static_cast<int>(i));
      layer.flops = std::max(layer.flops, c.kernels.flops);
      layer.halo_bytes = std::max(layer.halo_bytes, c.transfers.bytes_sent);
      layer.messages = std::max(layer.messages, c.transfers.messages_sent);
      layer.memory_bytes = std::max(layer.memory_bytes, memory[i]);
      const views::Box reads = layers.layers[i].input_needed(rank);
      if (reads.size() <= most_read[i]) continue;
      most_read[i] = reads.size();
      layer.ghosted = extents_of(reads);
      layer.owned = extents_of(layers.layers[i].input.owned(rank));
    }
    const nn::NodeCost local = step.total();
    for (const nn::ReductionCost& sums : reductions.of(plan, few.members[k])) {
      summary.flops = std::max(summary.flops, local.flops + sums.all.flops);
      summary.bytes_sent = std::max(summary.bytes_sent, local.bytes_sent + sums.all.bytes_sent);
      summary.messages = std::max(summary.messages, local.messages_sent + sums.all.messages_sent);
      summary.gradient_bytes = std::max(summary.gradient_bytes, sums.gradients.bytes_sent);
    }
    if (summary.kfac)
      summary.kfac = largest_cost(*summary.kfac, largest_cost_of_kfac(plan, few.members[k], kfac, machine));
    most.add(plan, machine);
    for (nn::ExplainedChoice& c : explain_convolutions(network, plan, machine))
      if (known.insert(c.convolution).second) summary.convolutions.push_back(std::move(c));
  }
  summary.memory = most.separate;
  summary.memory_rank = most.separate_rank;
  summary.peak_bytes = most.peak;
  summary.peak_rank = most.peak_rank;
  summary.peak_node = most.peak_node;
  return summary;
}

namespace {

/// What the layer reads, where it is more than the rank owns: height and width with ghosts, "115x115".
std::string ghosted_text(const LayerSummary& layer, int spatial_rank) {
  if (layer.ghosted == layer.owned) return "";
  std::string text = extents_text(layer.ghosted, spatial_rank);
  if (layer.ghosted[Dim::sample] != layer.owned[Dim::sample] ||
      layer.ghosted[Dim::channel] != layer.owned[Dim::channel])
    return text;
  const std::size_t first = text.find('x') + 1;
  return text.substr(first, text.rfind('x') - first);
}

}  // namespace

std::string to_text(const PlanRequest& request, const PlanSummary& summary) {
  std::string text = heading(request, summary) + "\n\n";
  std::vector<std::vector<std::string>> rows{
      {"layer", "operation", "grid", "input", "reads", "messages", "bytes", "flops", "memory"}};
  const int spatial = request.network.spatial_rank;
  for (const LayerSummary& layer : summary.layers) {
    rows.push_back({layer.name, layer.operation, layer.grid, extents_text(layer.owned, spatial),
                    ghosted_text(layer, spatial), std::to_string(layer.messages), bytes_text(layer.halo_bytes),
                    number_text(layer.flops), bytes_text(layer.memory_bytes)});
  }
  constexpr std::size_t left = 5, operation = 1;  // most names of layers tell their operation
  text += text_table(std::move(rows), left, operation);
  text += fmt::format("\nEach number is that of the rank with the largest number, in one {}.\n",
                      step_text(request.objective));
  text += fmt::format("flops      {}\n", number_text(summary.flops));
  text += fmt::format("sent       {} in {} messages; {} of it are sums of gradients\n", bytes_text(summary.bytes_sent),
                      summary.messages, bytes_text(summary.gradient_bytes));
  text += fmt::format("memory     {} on rank {}; most of it is in use at \"{}\"\n", bytes_text(summary.peak_bytes),
                      summary.peak_rank, summary.peak_node);
  if (!request.memory.recompute.empty()) {
    const nn::PricedRecomputation& again = summary.savings.recomputation;
    text += fmt::format("           {} without recomputation{}; it takes {} flops more ({:.1f} %)\n",
                        bytes_text(summary.peak_bytes_without), request.memory.offload.empty() ? "" : " and offloading",
                        number_text(again.extra_flops), 100 * again.extra_flops / (again.flops - again.extra_flops));
    text += fmt::format("           recomputed: {}\n", to_string(again.blocks, request.network));
  } else if (!request.memory.offload.empty()) {
    text += fmt::format("           {} without offloading\n", bytes_text(summary.peak_bytes_without));
  }
  if (!request.memory.offload.empty()) {
    text += fmt::format("           offloaded: {}; {} to host memory and back in a step, {} there\n",
                        offloading_text(summary.savings.offload, request.network),
                        bytes_text(summary.savings.moved_bytes), bytes_text(summary.savings.host_bytes));
  }
  text += fmt::format("           {} if buffers did not share memory over time (rank {}):\n",
                      bytes_text(summary.memory.separate), summary.memory_rank);
  for (std::size_t i = 0; i < nn::PlanMemoryUse::roles; ++i) {
    const auto role = static_cast<nn::BufferRole>(i);
    if (summary.memory.of(role) == 0) continue;
    std::string label = name(role);
    std::ranges::replace(label, '_', ' ');
    text += fmt::format("           {:<20}{:>12}\n", label, bytes_text(summary.memory.of(role)));
  }
  if (summary.kfac) {
    const nn::KfacCost& kfac = *summary.kfac;
    text += fmt::format(
        "K-FAC      when a mini-batch enters the factors: {} flops of products, {} of averages; {} sent in {} "
        "messages\n"
        "           when inversions start: {} flops\n"
        "           in every step: {} flops of directions; {} of them received\n"
        "           {} of memory. Other numbers do not include K-FAC.\n",
        number_text(kfac.product_flops), number_text(kfac.average_flops), bytes_text(kfac.factor_sum.bytes_sent),
        kfac.factor_sum.messages_sent, number_text(kfac.inversion_flops), number_text(kfac.direction_flops),
        bytes_text(kfac.directions_received), bytes_text(kfac.memory));
  }
  if (summary.segments) {
    const nn::SegmentCounts& counts = *summary.segments;
    text += fmt::format("graphs     {} of {} segments are recorded, with {} of {} kernels; the others are not:\n",
                        counts.recorded_segments, counts.segments, counts.recorded_kernels, counts.kernels);
    for (const auto& [reason, segments] : counts.reasons) text += fmt::format("           {}: {}\n", segments, reason);
  }
  if (!summary.prediction) text += "limits     constants, no machine\n";
  if (summary.prediction) {
    const bool measured = request.machine && !request.machine->convolutions.empty();
    const ConvolutionReport convolutions = report_of(summary.convolutions, measured ? summary.prediction->machine : "");
    text += convolutions.summary + "\n";
    if (measured) text += "\n" + convolutions.table;
  }
  if (summary.prediction) text += "\n" + to_text(*summary.prediction, request.network);
  return text;
}

std::string to_json(const PlanRequest& request, const PlanSummary& summary) {
  nlohmann::ordered_json json;
  json["layers"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < summary.layers.size(); ++i) {
    const LayerSummary& layer = summary.layers[i];
    json["layers"].push_back({{"name", layer.name},
                              {"operation", layer.operation},
                              {"grid", layer.grid},
                              {"flops", layer.flops},
                              {"halo_bytes", layer.halo_bytes},
                              {"messages", layer.messages}});
    if (summary.prediction) add_layer(*summary.prediction, i, layer.grid, json["layers"].back());
  }
  if (summary.prediction) add_totals(*summary.prediction, json);
  json["convolutions"] = nlohmann::ordered_json::array();
  for (const nn::ExplainedChoice& c : summary.convolutions)
    json["convolutions"].push_back({{"layer", c.layer},
                                    {"convolution", c.convolution},
                                    {"implementation", c.implementation},
                                    {"source", std::string(name(c.source))},
                                    {"reason", c.reason}});
  json["parameters"] = summary.parameters;
  json["memory_bytes_per_rank"] = summary.peak_bytes;
  json["separate_bytes_per_rank"] = summary.memory.separate;
  json["bytes_sent"] = summary.bytes_sent;
  json["messages"] = summary.messages;
  json["recomputed"] = nlohmann::ordered_json::array();
  const auto name_of = [&](int layer) { return request.network.layers[static_cast<std::size_t>(layer)].name; };
  for (const nn::RecomputedBlock& block : summary.savings.recomputation.blocks)
    json["recomputed"].push_back({name_of(block.first), name_of(block.last)});
  json["extra_flops"] = summary.savings.recomputation.extra_flops;
  json["offloaded"] = nlohmann::ordered_json::array();
  for (const int layer : summary.savings.offload) json["offloaded"].push_back(name_of(layer));
  json["offloaded_bytes"] = summary.savings.moved_bytes;
  json["host_bytes_per_rank"] = summary.savings.host_bytes;
  if (summary.kfac) {
    const nn::KfacCost& kfac = *summary.kfac;
    json["kfac"] = {{"product_flops", kfac.product_flops},
                    {"average_flops", kfac.average_flops},
                    {"factor_bytes_sent", kfac.factor_sum.bytes_sent},
                    {"factor_messages", kfac.factor_sum.messages_sent},
                    {"inversion_flops", kfac.inversion_flops},
                    {"direction_flops", kfac.direction_flops},
                    {"direction_bytes_received", kfac.directions_received},
                    {"memory_bytes", kfac.memory}};
  }
  if (summary.segments) {
    const nn::SegmentCounts& counts = *summary.segments;
    json["graphs"] = {{"segments", counts.segments},
                      {"recorded_segments", counts.recorded_segments},
                      {"kernels", counts.kernels},
                      {"recorded_kernels", counts.recorded_kernels},
                      {"not_recorded", nlohmann::ordered_json::array()}};
    for (const auto& [reason, segments] : counts.reasons)
      json["graphs"]["not_recorded"].push_back({{"reason", reason}, {"segments", segments}});
  }
  json["run"] = {{"version", version()},
                 {"model", request.model},
                 {"batch", request.batch},
                 {"ranks", request.ranks},
                 {"ranks_per_node", request.ranks_per_node},
                 {"strategy", request.strategy.source},
                 {"precision", name(request.activations)},
                 {"optimiser", request.kfac ? "kfac" : nn::name(request.optimiser)},
                 {"recompute", request.memory.recompute},
                 {"offload", request.memory.offload},
                 {"memory_limit", request.memory.limit.value_or(0)}};
  json["run"]["objective"] = objective_name(request.objective);
  if (request.requested_batch > 0) json["run"]["requested_batch"] = request.requested_batch;
  if (summary.prediction) json["run"]["machine"] = summary.prediction->machine;
  // A path may contain bytes that are not UTF-8.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace aloni::tools
