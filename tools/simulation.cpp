#include <aloni/core/error.hpp>
#include <aloni/core/version.hpp>
#include <aloni/model/choose_strategy.hpp>
#include <aloni/model/kernel_times.hpp>
#include <aloni/nn/plan/cost.hpp>
#include <aloni/nn/plan/largest_memory.hpp>
#include <aloni/nn/plan/memory_savings.hpp>
#include <aloni/nn/plan/memory_shortage.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/step_times.hpp>
#include <aloni/tools/memory_arguments.hpp>
#include <aloni/tools/objective_argument.hpp>
#include <aloni/tools/placement_text.hpp>
#include <aloni/tools/quantity_text.hpp>
#include <aloni/tools/simulation.hpp>
#include <aloni/tools/step_sources.hpp>
#include <aloni/tools/text_table.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

namespace aloni::tools {

namespace {

using nn::StepPhase;

double seconds_of(const model::SimulatedStep& step, StepPhase phase) {
  return step.phases[static_cast<std::size_t>(phase)].sum();
}
double forward_seconds(const model::SimulatedStep& step) {
  return seconds_of(step, StepPhase::forward) + seconds_of(step, StepPhase::loss);
}
double samples_per_second(const SimulatedCase& result) {
  return result.step.seconds > 0 ? static_cast<double>(result.batch) / result.step.seconds : 0;
}

/// Bytes that a rank may use; 0: no limit.
Index memory_limit_of(const SimulationRequest& request) {
  return request.memory.limit.value_or(static_cast<Index>(request.machine.memory_bytes));
}

/// Sets the memory of the result, and the reason if it is above the limit.
void add_memory(const SimulationRequest& request, const nn::GivenStep& step, const nn::NetworkPlan& layers,
                const MachineDescription& machine, SimulatedCase& result) {
  const nn::LargestMemory most = nn::largest_memory(request.network, layers, machine, step.kind, step.options);
  result.memory_bytes = most.peak;
  result.separate_bytes = most.separate.separate;
  const Index limit = memory_limit_of(request);
  if (limit == 0 || result.memory_bytes <= limit) return;
  result.reason = fmt::format("rank {} needs {} of memory at \"{}\", {} more than its {}", most.peak_rank,
                              bytes_text(result.memory_bytes), most.peak_node, bytes_text(result.memory_bytes - limit),
                              bytes_text(limit)) +
                  ". " + nn::ways_out(step, machine, limit, result.memory_bytes);
}

nn::MemorySavings savings_of(const SimulationRequest& request, const nn::NetworkPlan& layers,
                             const MachineDescription& machine, const nn::StepOptions& options) {
  const auto with_limit = [&](std::optional<Index> limit) {
    nn::MemoryWish wish = request.memory;
    wish.limit = limit;
    return nn::memory_savings_for(request.network, layers, machine, options, wish);
  };
  const Index limit = memory_limit_of(request);
  const bool chooses = request.memory.recompute == "auto" || request.memory.offload == "auto";
  if (!chooses || limit == 0) return with_limit(std::nullopt);
  try {
    return with_limit(limit);
  } catch (const InvalidArgument&) {
    return with_limit(std::nullopt);  // the least memory; add_memory() says how much is missing
  }
}

bool lists_messages(const SimulationRequest& request, const SimulationCase& which) {
  return request.messages && which.ranks <= most_ranks_with_messages;
}

/// Of all micro-batches, sorted by sender and receiver.
std::vector<MessagesBetween> messages_of(const nn::NetworkDescription& network, const nn::NetworkPlan& layers,
                                         const MachineDescription& machine, const model::SimulationOptions& options,
                                         int ranks) {
  std::vector<nn::StepPlan> plans;
  for (int rank = 0; rank < ranks; ++rank)
    plans.push_back(nn::plan_step(network, layers, rank, options.kind, machine, options.step));
  const std::vector<std::vector<nn::PeerMessages>> of_ranks = nn::messages_of_ranks(plans, machine);
  std::vector<MessagesBetween> messages;
  for (int rank = 0; rank < ranks; ++rank)
    for (const nn::PeerMessages& m : of_ranks[static_cast<std::size_t>(rank)])
      if (m.messages_sent > 0)
        messages.push_back(
            {rank, m.peer, options.micro_batches * m.messages_sent, options.micro_batches * m.bytes_sent});
  return messages;
}

/// The simulated step as if it had been timed.
std::vector<Trace> traces_of(const nn::NetworkDescription& network, const nn::NetworkPlan& layers,
                             const MachineDescription& machine, nn::StepKind kind, const nn::StepOptions& options,
                             const model::SimulatedStep& step) {
  const auto nanoseconds = [](double seconds) { return static_cast<std::int64_t>(std::llround(1e9 * seconds)); };
  std::map<int, nn::StepTimes> times;  // by rank
  for (const model::SimulatedAction& a : step.actions) {
    const auto [found, is_new] = times.try_emplace(a.rank);
    if (is_new) {
      const nn::StepPlan plan = nn::plan_step(network, layers, a.rank, kind, machine, options);
      found->second.begin(timed_nodes(plan, network, machine));
    }
    found->second.add(nn::StepTimes::Action{a.node, a.kind, nanoseconds(a.start), nanoseconds(a.end)});
  }
  std::vector<Trace> traces;
  for (auto& [rank, of_rank] : times) {
    const auto actions = of_rank.actions(of_rank.executions().front());
    const auto end = std::ranges::max_element(actions, {}, &nn::StepTimes::Action::end)->end;
    of_rank.add(nn::StepTimes::Span{nn::StepTimes::Row::step, "step", actions.front().start, end});
    traces.push_back(trace_of(of_rank, rank));
    if (const auto alike = std::ranges::count(step.walked, rank); alike > 1)
      traces.back().name += fmt::format(" and {} like it", alike - 1);
  }
  return traces;
}

/// " in 4 micro-batches"; empty: the mini-batch is whole.
std::string accumulate_text(const SimulationRequest& request) {
  return request.accumulate > 1 ? fmt::format(" in {} micro-batches", request.accumulate) : "";
}

std::string factors_text(const model::MachineFactors& factors) {
  std::string text;
  const auto add = [&](const char* name, double factor) {
    if (factor != 1) text += fmt::format(", {} x {}", name, factor);
  };
  add("flop rate", factors.flops);
  add("memory bandwidth", factors.memory_bandwidth);
  add("link bandwidth", factors.link_bandwidth);
  return text;
}

std::string share_text(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "";
}

std::string variation_text(const model::Variation& variation, const model::VariedSteps& steps) {
  return fmt::format("variation  mean {}, median {}, 95 % of steps within {}; {} draws\n", seconds_text(steps.mean),
                     seconds_text(steps.median), seconds_text(steps.percentile_95), variation.draws);
}

std::string text_of_case(const SimulationRequest& request, const SimulationCase& which, const SimulatedCase& result) {
  const model::SimulatedStep& step = result.step;
  std::string text = fmt::format(
      "{}, {}, {} of {}, strategy {}, batch {}{}{}{}\n\n", request.model, nn::name(request.activations),
      ranks_text(which.ranks, request.machine.ranks_per_node), request.machine.name, result.strategy, result.batch,
      enlarged_text(result.batch, which.batch), accumulate_text(request), factors_text(which.factors));
  if (!result.was_simulated()) return text + paragraph("infeasible " + result.reason, 11) + "\n";
  std::vector<std::vector<std::string>> rows{
      {"layer", "grid", "source", "time", "of step", "kernels", "copies", "waits"}};
  const StepSources sources = sources_of(step);
  for (std::size_t i = 0; i < step.layers.size(); ++i) {
    const model::RankTime& time = step.layers[i];
    const bool is_layer = i < result.grids.size();
    rows.push_back({is_layer ? request.network.layers[i].name : "no layer", is_layer ? result.grids[i] : "",
                    source_text(sources.kernels[i]), seconds_text(time.sum()), share_text(time.sum(), step.seconds),
                    seconds_text(time.kernels), seconds_text(time.copies), seconds_text(time.waits)});
  }
  constexpr std::size_t left = 3, source = 2;
  text += text_table(std::move(rows), left, source);
  text += fmt::format("\nTimes of the slowest rank in one {}.\n", step_text(request.objective));
  text += fmt::format("step       {}: {} samples in a second\n", seconds_text(step.seconds),
                      number_text(samples_per_second(result)));
  if (request.variation) text += variation_text(*request.variation, result.varied);
  if (step_kind_of(request.objective) == nn::StepKind::training)
    text += fmt::format("phases     forward and loss {}, backward {}, update {}\n", seconds_text(forward_seconds(step)),
                        seconds_text(seconds_of(step, StepPhase::backward)),
                        seconds_text(seconds_of(step, StepPhase::update)));
  text += fmt::format("exposed    {} of communication ({})\n", seconds_text(step.exposed_communication),
                      share_text(step.exposed_communication, step.seconds));
  text += to_text(sources);
  text += fmt::format("memory     {}; {} if buffers did not share memory over time\n", bytes_text(result.memory_bytes),
                      bytes_text(result.separate_bytes));
  text += savings_text(result.savings_reason);
  text += repeats_text(result.repeats_reason);
  if (!which.strategy) text += limits_text(request.machine.name, result.limits.reason) + "\n";
  const MachineDescription& planning = request.machine.planning;
  text += transfers_text(planning.direct_bytes, planning.consolidate_below, which.ranks,
                         number_of_nodes({.nodes = result.nodes}));
  if (!which.strategy) text += placement_text(result.placement_reason, result.rank_of, result.nodes);
  if (!result.reason.empty()) text += paragraph("infeasible " + result.reason, 11) + "\n";
  return text;
}

/// Whether the cases differ in a member.
template <class F>
bool varies(const SimulationRequest& request, const F& member) {
  return std::ranges::any_of(request.cases,
                             [&](const SimulationCase& c) { return member(c) != member(request.cases.front()); });
}

std::string text_of_sweep(const SimulationRequest& request, const std::vector<SimulatedCase>& results) {
  std::string text = fmt::format("{}, {}, on {} with {} per node{}\n\n", request.model, nn::name(request.activations),
                                 request.machine.name, count_text(request.machine.ranks_per_node, "rank"),
                                 request.accumulate > 1 ? ", batches" + accumulate_text(request) : "");
  struct Column {
    const char* heading;
    bool shown;
    std::string (*text)(const SimulationCase&);
  };
  const std::vector<Column> columns{
      {"ranks", true, [](const SimulationCase& c) { return std::to_string(c.ranks); }},
      {"batch", true, [](const SimulationCase& c) { return std::to_string(c.batch); }},
      {"x flops", varies(request, [](const SimulationCase& c) { return c.factors.flops; }),
       [](const SimulationCase& c) { return fmt::format("{}", c.factors.flops); }},
      {"x memory", varies(request, [](const SimulationCase& c) { return c.factors.memory_bandwidth; }),
       [](const SimulationCase& c) { return fmt::format("{}", c.factors.memory_bandwidth); }},
      {"x links", varies(request, [](const SimulationCase& c) { return c.factors.link_bandwidth; }),
       [](const SimulationCase& c) { return fmt::format("{}", c.factors.link_bandwidth); }}};
  std::vector<std::vector<std::string>> rows{{"strategy"}};
  for (const Column& column : columns)
    if (column.shown) rows[0].emplace_back(column.heading);
  // Beside factors or a variation there is no room for the phases, and beside both none for the samples per second.
  const bool has_factors = std::ranges::any_of(columns, [](const Column& c) { return c.heading[0] == 'x' && c.shown; });
  const auto add_cells = [&](std::vector<std::string>& row, std::vector<std::string> cells) {
    if (has_factors && request.variation) cells.erase(cells.begin() + 6);
    if (has_factors || request.variation) cells.erase(cells.begin() + 3, cells.begin() + 5);
    if (!request.variation) cells.erase(cells.begin() + 1, cells.begin() + 3);
    row.insert(row.end(), cells.begin(), cells.end());
  };
  add_cells(rows[0], {"step", "mean", "95 %", "forward", "backward", "exposed", "samples/s", "memory  "});
  bool all_fit = true;
  for (std::size_t i = 0; i < results.size(); ++i) {
    SimulationCase which = request.cases[i];
    which.batch = results[i].batch;
    const model::SimulatedStep& step = results[i].step;
    std::vector<std::string> row{results[i].strategy};
    for (const Column& column : columns)
      if (column.shown) row.push_back(column.text(which));
    const bool fits = results[i].reason.empty();
    all_fit = all_fit && fits;
    if (results[i].was_simulated()) {
      add_cells(row, {seconds_text(step.seconds), seconds_text(results[i].varied.mean),
                      seconds_text(results[i].varied.percentile_95), seconds_text(forward_seconds(step)),
                      seconds_text(seconds_of(step, StepPhase::backward)), seconds_text(step.exposed_communication),
                      number_text(samples_per_second(results[i])),
                      bytes_text(results[i].memory_bytes) + (fits ? "  " : " *")});
    } else {
      add_cells(row, {"-", "-", "-", "-", "-", "-", "-", "- *"});
    }
    rows.push_back(std::move(row));
  }
  text += text_table(rows, 1);
  text += fmt::format("\nTimes of the slowest rank in one {}; exposed: communication that no kernel hides.\n",
                      step_text(request.objective));
  if (request.objective == model::Objective::throughput)
    text += "batch: the mini-batch with most samples per second, 1 to 32 times that of --batch.\n";
  if (request.variation)
    text +=
        fmt::format("mean, 95 %: of {} steps with variation; 95 % of them take no longer.\n", request.variation->draws);
  if (!all_fit) text += fmt::format("* needs more than the {} of a rank\n", bytes_text(memory_limit_of(request)));
  return text;
}

nlohmann::ordered_json json_of_case(const SimulationRequest& request, const SimulationCase& which,
                                    const SimulatedCase& result) {
  const model::SimulatedStep& step = result.step;
  const bool known = result.was_simulated();
  const auto number = [&](auto value) { return known ? nlohmann::ordered_json(value) : nlohmann::ordered_json(); };
  nlohmann::ordered_json json{{"ranks", which.ranks},
                              {"batch", result.batch},
                              {"strategy", result.strategy},
                              {"flops_factor", which.factors.flops},
                              {"memory_bandwidth_factor", which.factors.memory_bandwidth},
                              {"link_bandwidth_factor", which.factors.link_bandwidth},
                              {"step_seconds", number(step.seconds)}};
  if (request.objective == model::Objective::throughput) json["requested_batch"] = which.batch;
  if (request.variation) {
    json["step_seconds_mean"] = number(result.varied.mean);
    json["step_seconds_median"] = number(result.varied.median);
    json["step_seconds_p95"] = number(result.varied.percentile_95);
  }
  json.update(nlohmann::ordered_json{{"forward_seconds", number(forward_seconds(step))},
                                     {"backward_seconds", number(seconds_of(step, StepPhase::backward))},
                                     {"update_seconds", number(seconds_of(step, StepPhase::update))},
                                     {"exposed_communication_seconds", number(step.exposed_communication)},
                                     {"samples_per_second", number(samples_per_second(result))},
                                     {"memory_bytes_per_rank", number(result.memory_bytes)},
                                     {"separate_bytes_per_rank", number(result.separate_bytes)},
                                     {"feasible", result.reason.empty()},
                                     {"reason", result.reason},
                                     {"savings_reason", result.savings_reason},
                                     {"repeats_reason", result.repeats_reason}});
  json["placement"] = {
      {"reason", result.placement_reason}, {"rank_of", result.rank_of}, {"node_of_rank", result.nodes}};
  const MachineDescription& planning = request.machine.planning;
  add_limits(result.limits, planning.direct_bytes, planning.consolidate_below, json);
  add_sources(sources_of(step), json);
  json["layers"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < result.grids.size(); ++i) {
    json["layers"].push_back({{"name", request.network.layers[i].name},
                              {"grid", result.grids[i]},
                              {"kernels", step.layers[i].kernels},
                              {"copies", step.layers[i].copies},
                              {"waits", step.layers[i].waits}});
    add_sources(step.kernels[i], json["layers"].back());
  }
  if (known && lists_messages(request, which)) {
    json["messages"] = nlohmann::ordered_json::array();
    for (const MessagesBetween& m : result.messages)
      json["messages"].push_back({{"from", m.from}, {"to", m.to}, {"messages", m.messages}, {"bytes", m.bytes}});
  } else {
    json["messages"] = nullptr;
  }
  return json;
}

}  // namespace

SimulatedCase simulate_case(const SimulationRequest& request, const SimulationCase& which) {
  const nn::NetworkDescription& network = request.network;
  MachineDescription machine = description_of(request.machine, which.ranks);
  model::Machine faster = scaled(request.machine, which.factors);
  const int per_node = std::min(which.ranks, request.machine.ranks_per_node);
  const model::ScaledKernels kernels(request.machine, faster, per_node, request.machine.threads_per_rank);
  model::SimulationOptions options;
  options.step.activations = request.activations;
  options.step.optimiser = request.optimiser;
  options.micro_batches = request.accumulate;
  options.step.accumulates = request.accumulate > 1;
  options.kind = step_kind_of(request.objective);
  Index samples = which.batch / request.accumulate;

  SimulatedCase result;
  result.batch = which.batch;
  result.strategy = which.strategy ? which.strategy->source : "auto";
  nn::Strategy strategy;
  if (which.strategy) {
    strategy = *which.strategy;
    result.placement_reason = "in order: the strategy is given";
  } else {
    try {
      const model::StrategyChoice choice = choose_strategy(network, faster, which.ranks,
                                                           {.samples = samples,
                                                            .micro_batches = request.accumulate,
                                                            .memory = for_search(request.memory),
                                                            .objective = request.objective,
                                                            .step = options.step,
                                                            .kernels = &kernels});
      strategy = choice.strategy;
      samples = choice.samples;
      result.batch = samples * request.accumulate;
      choice.savings.apply(options.step);
      result.savings_reason = choice.savings_reason;
      result.repeats_reason = choice.repeats_reason;
      options.rank_of = choice.rank_of;
      result.placement_reason = choice.placement_reason;
    } catch (const InvalidArgument& e) {
      if (e.argument() != model::memory_argument) throw;
      result.reason = e.value() + " of memory for a rank: expected " + e.expectation();
      return result;
    }
  }
  machine = description_of(request.machine, which.ranks, options.rank_of);
  result.rank_of = options.rank_of;
  result.nodes = machine.nodes;
  const auto splits = nn::resolve(strategy, network, which.ranks);
  const nn::NetworkPlan layers = nn::plan_network(network, splits, which.ranks, samples);
  for (const nn::LayerSplit& split : splits) result.grids.push_back(to_string(split));
  if (which.strategy && request.memory.saves()) savings_of(request, layers, machine, options.step).apply(options.step);
  result.limits = {.bucket_bytes = machine.bucket_bytes,
                   .chunk_bytes = static_cast<Index>(machine.chunk_bytes),
                   .reason = "those of its file"};
  if (!which.strategy) {
    result.limits = choose_step_limits(network, layers, faster, kernels, options);
    machine.bucket_bytes = faster.planning.bucket_bytes = result.limits.bucket_bytes;
    machine.chunk_bytes = faster.planning.chunk_bytes = static_cast<double>(result.limits.chunk_bytes);
    options.step.largest_overhead = result.limits.largest_overhead;
  }
  add_memory(request, {network, splits, which.ranks, samples, options.step, request.memory, options.kind}, layers,
             machine, result);
  if (lists_messages(request, which)) result.messages = messages_of(network, layers, machine, options, which.ranks);
  options.timeline = request.timeline;
  result.step = simulate(network, layers, faster, kernels, options);
  if (request.timeline) result.traces = traces_of(network, layers, machine, options.kind, options.step, result.step);
  if (request.variation)
    result.varied = simulate_variation(network, layers, faster, kernels, *request.variation, options);
  return result;
}

std::string to_text(const SimulationRequest& request, const std::vector<SimulatedCase>& results) {
  if (results.size() == 1) return text_of_case(request, request.cases.front(), results.front());
  return text_of_sweep(request, results);
}

std::string trace_text(const SimulationRequest& request, const SimulationCase& which, const SimulatedCase& result) {
  std::int64_t origin = 0;
  for (const Trace& trace : result.traces)
    for (const TraceSlice& slice : trace.slices) origin = std::min(origin, slice.start);
  std::vector<std::string> events;
  for (const Trace& trace : result.traces) events.push_back(trace_events(trace, origin));
  const std::array<TraceArgument, 8> about{{{"version", std::string(version())},
                                            {"machine", request.machine.name},
                                            {"model", request.model},
                                            {"strategy", result.strategy},
                                            {"precision", std::string(nn::name(request.activations))},
                                            {"ranks", std::int64_t{which.ranks}},
                                            {"batch", std::int64_t{result.batch}},
                                            {"accumulate", std::int64_t{request.accumulate}}}};
  return trace_file(events, about);
}

std::string to_json(const SimulationRequest& request, const std::vector<SimulatedCase>& results) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object(), cases = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < results.size(); ++i) cases.push_back(json_of_case(request, request.cases[i], results[i]));
  if (results.size() == 1) json = cases.front();
  json["cases"] = std::move(cases);
  json["run"] = {{"version", version()},
                 {"machine", request.machine.name},
                 {"model", request.model},
                 {"ranks_per_node", request.machine.ranks_per_node},
                 {"precision", nn::name(request.activations)},
                 {"optimiser", nn::name(request.optimiser)},
                 {"objective", objective_name(request.objective)},
                 {"accumulate", request.accumulate},
                 {"recompute", request.memory.recompute},
                 {"offload", request.memory.offload},
                 {"memory_limit", memory_limit_of(request)}};
  if (request.variation) {
    json["run"]["variation"] = {{"straggler_sigma", request.variation->straggler_sigma},
                                {"slow_link_share", request.variation->slow_link_share},
                                {"slow_link_factor", request.variation->slow_link_factor},
                                {"draws", request.variation->draws},
                                {"seed", request.variation->seed}};
  }
  // A path may contain bytes that are not UTF-8.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace aloni::tools
