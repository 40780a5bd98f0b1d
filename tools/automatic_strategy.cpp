#include <aloni/tools/automatic_strategy.hpp>

#include <aloni/core/bfloat16.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/float16.hpp>
#include <aloni/core/version.hpp>
#include <aloni/halo/placement/place_ranks.hpp>
#include <aloni/model/choose_strategy.hpp>
#include <aloni/model/machine_file.hpp>
#include <aloni/nn/compiled_activations.hpp>
#include <aloni/nn/local/element_type.hpp>
#include <aloni/nn/model_file.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/largest_memory.hpp>
#include <aloni/tools/job_machine.hpp>
#include <aloni/tools/machine_measurement.hpp>
#include <aloni/tools/memory_arguments.hpp>
#include <aloni/tools/placement_text.hpp>
#include <aloni/tools/quantity_text.hpp>
#include <aloni/tools/strategy_cache.hpp>
#include <aloni/tools/text_table.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <sstream>
#include <utility>

namespace aloni::tools {

namespace {

using model::Finalist;
using nn::Strategy;

constexpr const char* choice_operation = "aloni train: the strategy";

/// The training chooses blocks and layers again, from the same plans.
nn::MemoryWish memory_for(const Finalist& finalist, const nn::TrainOptions& options) {
  return finalist.wish.limit ? finalist.wish : options.memory;
}

/// ", recomputes, offloads, placed"; empty: nothing of it.
std::string additions_text(const Finalist& finalist) {
  std::string text;
  if (finalist.wish.limit && !finalist.savings.recomputation.blocks.empty()) text += ", recomputes";
  if (finalist.wish.limit && !finalist.savings.offload.empty()) text += ", offloads";
  if (!finalist.rank_of.empty()) text += ", placed";
  return text;
}

/// A short training on made-up data. Its losses do not matter.
nn::TrainOptions timing_options(const nn::TrainOptions& options, const Finalist& finalist) {
  nn::TrainOptions timing;
  timing.batch = options.batch;
  timing.accumulate = options.accumulate;
  timing.optimiser = options.optimiser;
  timing.update = options.update;
  timing.backend = options.backend;
  timing.tf32 = options.tf32;
  timing.record = options.record;
  timing.convolutions = options.convolutions;
  timing.work_per_copied_byte = options.work_per_copied_byte;
  timing.memory = memory_for(finalist, options);
  timing.seed = options.seed;
  timing.allow_nonfinite = true;
  // Half a second of steps. The first one is slower, so that three are the least for a median.
  timing.steps = std::clamp<std::int64_t>(std::llround(0.5 / finalist.seconds), 3, 50);
  return timing;
}

struct TimedFinalist {
  Finalist finalist;
  double seconds = 0;        ///< measured; 0: not
  std::string refusal = {};  ///< why it could not run
  bool is_late = false;      ///< its steps would have ended after the time for all
};

/// The fastest one by the model, the fastest one with one grid for all layers, and then the others in their order:
/// strategies that differ little by the model differ little when timed.
std::vector<Finalist> strategies_to_time(std::vector<Finalist> finalists, int most) {
  std::set<std::string> seen;  // the best strategy by layer may have one grid
  std::erase_if(finalists,
                [&](const Finalist& f) { return !seen.insert(to_string(f.strategy) + additions_text(f)).second; });
  const auto is_uniform = [](const Finalist& f) { return f.strategy.source != "by layer"; };
  const auto first = finalists.begin() + (finalists.empty() ? 0 : 1);
  if (!finalists.empty() && !is_uniform(finalists.front()))
    if (const auto uniform = std::find_if(first, finalists.end(), is_uniform); uniform != finalists.end())
      std::rotate(first, uniform, uniform + 1);
  finalists.resize(std::min(finalists.size(), static_cast<std::size_t>(std::max(1, most))));
  return finalists;
}

/// `begin`: of the whole choice. Steps of one strategy tell how much slower than predicted the next one is.
template <class T>
void time_finalists(const comm::Communicator& comm, const AutomaticStrategyRequest& request,
                    std::chrono::steady_clock::time_point begin, std::vector<TimedFinalist>& finalists) {
  double measured_per_predicted = 1;
  for (TimedFinalist& f : finalists) {
    const nn::TrainOptions timing = timing_options(request.options, f.finalist);
    const std::chrono::duration<double> past = std::chrono::steady_clock::now() - begin;
    const double needed = measured_per_predicted * f.finalist.seconds * static_cast<double>(timing.steps);
    // The clocks of ranks differ, so one of them decides.
    const bool is_late = comm.rank() == 0 && past.count() + needed > request.most_seconds;
    f.is_late = comm.all_reduce(is_late ? 1 : 0, comm::Reduction::max) > 0;
    if (f.is_late) continue;
    try {
      const nn::TrainReport report = nn::train_on_synthetic_data<T>(placed_ranks(comm, f.finalist.rank_of),
                                                                    request.network, f.finalist.strategy, timing);
      f.seconds = comm.all_reduce(report.step_seconds, comm::Reduction::max);
      measured_per_predicted = f.seconds / f.finalist.seconds;
    } catch (const InvalidArgument& error) {  // on all ranks: the plans exceed the limit of memory
      f.refusal = error.what();
    }
  }
}

/// The wish of rank 0 on all ranks.
void share(const comm::Communicator& comm, nn::MemoryWish& memory) {
  comm.broadcast(memory.recompute, 0);
  comm.broadcast(memory.offload, 0);
  const Index limit = comm.all_reduce(comm.rank() == 0 ? memory.limit.value_or(0) : Index{0}, comm::Reduction::max);
  memory.limit = limit > 0 ? std::optional(limit) : std::nullopt;
}

/// The order of rank 0 on all ranks.
void share(const comm::Communicator& comm, std::vector<int>& rank_of) {
  std::string text;
  for (const int rank : rank_of) text += std::to_string(rank) + ' ';
  comm.broadcast(text, 0);
  std::istringstream stream(text);
  rank_of.clear();
  for (int rank = 0; stream >> rank;) rank_of.push_back(rank);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// `machine`: of the prices. `has_file`: it is that of a machine file, and not one that ships.
std::vector<std::string> explain(const std::vector<TimedFinalist>& finalists, std::size_t best,
                                 const std::string& machine, bool has_file) {
  std::vector<std::vector<std::string>> rows{{"", "strategy", "predicted", "measured", "memory"}};
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    const TimedFinalist& f = finalists[i];
    const std::string name = f.finalist.strategy.source + additions_text(f.finalist);
    rows.push_back({i == best ? "  *" : "", name, seconds_text(f.finalist.seconds),
                    f.seconds > 0 ? seconds_text(f.seconds) : "-",
                    bytes_text(static_cast<Index>(std::llround(f.finalist.bytes)))});
  }
  std::vector<std::string> lines{
      fmt::format("strategy    the best by the {}; * is chosen. A step takes",
                  has_file ? "cost model on machine " + machine : "roofline of " + machine + ", without calibration")};
  for (std::string& line : lines_of(text_table(rows, 2))) lines.push_back(std::move(line));
  if (std::ranges::any_of(finalists, &TimedFinalist::is_late))
    lines.emplace_back("     -: not timed, because its steps would take too long; the cost model decides about it");
  if (const Strategy& chosen = finalists[best].finalist.strategy; chosen.source == "by layer") {
    std::map<std::string, int> layers;
    for (const nn::StrategyRule& rule : chosen.rules) ++layers[to_string(rule.split)];
    std::string text = "     layers by grid:";
    for (const auto& [grid, count] : layers)
      text += fmt::format("{} {} for {}", text.ends_with(':') ? "" : ",", grid, count);
    lines.push_back(text.substr(0, 100));
  }
  // The reasons of the cost model; it places the ranks of its best strategies only.
  if (const Finalist& chosen = finalists[best].finalist; !chosen.rank_of.empty())
    lines.push_back("     ranks " + chosen.placement_reason);
  return lines;
}

model::ChooseOptions choose_options(const AutomaticStrategyRequest& request, nn::ElementType activations) {
  const nn::TrainOptions& o = request.options;
  const model::SimulationOptions simulation = simulation_of(o, activations);
  return {.samples = o.batch / o.accumulate,
          .micro_batches = simulation.micro_batches,
          .memory = for_search(o.memory),
          .step = simulation.step,
          .simulated = request.timed};
}

/// One rank has one strategy. If its step takes more than the limit of memory, the cost model chooses what it saves.
AutomaticStrategy choose_for_one_rank(const AutomaticStrategyRequest& request, const model::Machine& machine,
                                      nn::ElementType activations) {
  const nn::TrainOptions& o = request.options;
  AutomaticStrategy chosen{.strategy = Strategy::uniform({}), .memory = o.memory};
  const Index limit = o.memory.limit.value_or(static_cast<Index>(machine.memory_bytes));
  if (limit == 0) return chosen;
  const model::ChooseOptions options = choose_options(request, activations);
  const nn::NetworkPlan layers =
      plan_network(request.network, resolve(chosen.strategy, request.network, 1), 1, options.samples);
  nn::TrainOptions least = o;  // "auto" saves as much as it can
  least.memory.limit = std::nullopt;
  if (memory_of_training(request.network, layers, machine.planning, least, activations).peak <= limit) return chosen;
  model::StrategyChoice choice = model::choose_strategy(request.network, machine, 1, options);
  chosen.memory = std::move(choice.wish);
  chosen.explanation = lines_of(savings_text(choice.savings_reason));
  return chosen;
}

}  // namespace

ChoiceKey facts_of_choice(const comm::Communicator& comm, const AutomaticStrategyRequest& request,
                          const model::Machine& machine, nn::ElementType activations) {
  const nn::TrainOptions& o = request.options;
  std::string places;  // none: consecutive ranks fill the nodes
  for (const int node : machine.planning.nodes) places += fmt::format(" {}", node);
  return {.training = fmt::format(
              "{} ranks on {} nodes{}, machine {}, batch {} in {} parts, {}, optimiser {}, clip {}, recompute {}, "
              "offload {}, memory limit {}, backend {}{}\n{}",
              comm.size(), comm.ranks_by_node().size(), places, request.machine ? machine.name : "none", o.batch,
              o.accumulate, nn::name(activations), nn::name(nn::kind_of(o.optimiser)), o.update.max_norm.value_or(0),
              o.memory.recompute, o.memory.offload, o.memory.limit.value_or(0), static_cast<int>(o.backend),
              (o.tf32 ? std::string(" in TF32") : "") + (o.record ? " recorded" : ""), nn::to_json(request.network)),
          .conditions = {{"version", std::string(version())},
                         {"processor", processor_name()},
                         {"contents of the machine file",
                          request.machine ? fmt::format("{:016x}", model::fingerprint(*request.machine)) : "none"},
                         {"threads per rank", std::to_string(machine.threads_per_rank)},
                         {"shared memory", machine.planning.shared_memory ? "yes" : "no"},
                         {"bytes of memory of a rank", fmt::format("{:.0f}", machine.memory_bytes)}}};
}

comm::Communicator placed_ranks(const comm::Communicator& comm, const std::vector<int>& rank_of) {
  if (rank_of.empty()) return comm;
  const comm::Communicator placed = halo::place_ranks(comm, {.rank_of = rank_of});
  if (comm.tuning()) placed.set_tuning(*comm.tuning());  // it is of these ranks and nodes in any order
  return placed;
}

template <class T>
AutomaticStrategy choose_automatically(const comm::Communicator& comm, const AutomaticStrategyRequest& request) {
  constexpr nn::ElementType type = nn::element_type<T>;
  const auto begin = std::chrono::steady_clock::now();
  const model::Machine machine = job_machine(request.machine, comm, kernel_place(comm));
  if (comm.size() == 1) return choose_for_one_rank(request, machine, type);

  const ChoiceKey key = facts_of_choice(comm, request, machine, type);
  const StrategyCache cache(request.cache_folder.empty() ? StrategyCache::default_folder() : request.cache_folder);
  AutomaticStrategy chosen;
  std::string kept, source;
  std::string damage;
  if (comm.rank() == 0) {
    if (const auto known = cache.find(key, &damage)) {
      kept = to_string(known->strategy);
      chosen.memory = known->memory;
      chosen.rank_of = known->rank_of;
      source = known->strategy.source;
      chosen.explanation = {fmt::format("strategy    {}, chosen before ({})", source, cache.path_of(key))};
    }
  }
  comm.broadcast(kept, 0);
  comm.broadcast(source, 0);
  share(comm, chosen.memory);
  if (!kept.empty()) {
    share(comm, chosen.rank_of);
    chosen.strategy = Strategy::parse(kept, source);
    chosen.from_cache = true;
    return chosen;
  }

  const model::StrategyChoice choice =
      model::choose_strategy(request.network, machine, comm.size(), choose_options(request, type));
  std::vector<TimedFinalist> finalists;
  for (const Finalist& finalist : strategies_to_time(choice.finalists, request.timed)) finalists.push_back({finalist});
  time_finalists<T>(comm, request, begin, finalists);

  std::size_t best = 0;
  for (std::size_t i = 1; i < finalists.size(); ++i)
    if (finalists[i].seconds > 0 && (finalists[best].seconds <= 0 || finalists[i].seconds < finalists[best].seconds))
      best = i;
  if (finalists[best].seconds <= 0 && !finalists[best].refusal.empty())
    throw InvalidArgument(choice_operation, "strategies", std::to_string(finalists.size()) + " tried",
                          "one that can run; the first error: " + finalists[best].refusal);
  chosen.strategy = finalists[best].finalist.strategy;
  chosen.memory = memory_for(finalists[best].finalist, request.options);
  chosen.rank_of = finalists[best].finalist.rank_of;
  if (comm.rank() == 0) {
    chosen.explanation = explain(finalists, best, machine.name, request.machine.has_value());
    if (best == 0)  // the choice of the model
      for (std::string& line : lines_of(repeats_text(choice.repeats_reason)))
        chosen.explanation.push_back(std::move(line));
    if (!damage.empty()) chosen.explanation.push_back("            " + damage + "; chosen anew");
    try {
      cache.keep(key, {chosen.strategy, finalists[best].seconds, chosen.memory, chosen.rank_of});
    } catch (const FileError& error) {
      chosen.explanation.push_back(std::string("            not kept: ") + error.what());
    }
  }
  return chosen;
}

#define INSTANTIATE(T) \
  template AutomaticStrategy choose_automatically<T>(const comm::Communicator&, const AutomaticStrategyRequest&);
INSTANTIATE(float)
ALONI_WITH_DOUBLE(INSTANTIATE(double))
ALONI_WITH_BFLOAT16(INSTANTIATE(comm::bfloat16))
ALONI_WITH_FLOAT16(INSTANTIATE(comm::float16))
#undef INSTANTIATE

}  // namespace aloni::tools
