#include <aloni/model/detail/whole_strategy.hpp>

#include <aloni/core/error.hpp>
#include <aloni/model/simulate.hpp>
#include <aloni/nn/plan/largest_memory.hpp>

#include <algorithm>
#include <cmath>
#include <tuple>

namespace aloni::model::detail {

using nn::LayerSplit;

WholeStrategies::WholeStrategies(const nn::NetworkDescription& network, const Machine& machine,
                                 const KernelTimes& kernels, int ranks, Index samples, nn::StepKind kind,
                                 const ChooseOptions& options, double limit)
    : network_(network),
      machine_(machine),
      kernels_(kernels),
      ranks_(ranks),
      samples_(samples),
      kind_(kind),
      options_(options),
      limit_(limit),
      description_(description_of(machine, ranks)) {
  if (kind != nn::StepKind::training) return;
  const nn::MemoryWish& wish = options.memory;
  if (!wish.recompute.empty() && wish.recompute != "auto") {
    selected_.wish.recompute = wish.recompute;
    selected_.savings.recomputation.blocks = nn::recomputed_blocks(network, wish.recompute);
  }
  if (!wish.offload.empty() && wish.offload != "auto") {
    selected_.wish.offload = wish.offload;
    nn::check_can_offload(description_, selected_.wish);
    selected_.savings.offload = nn::offloaded_layers(network, wish.offload);
  }
}

nn::StepOptions WholeStrategies::step(const nn::MemorySavings& savings) const {
  nn::StepOptions step = options_.step;
  step.accumulates = options_.micro_batches > 1;
  savings.apply(step);
  return step;
}

bool WholeStrategies::LessSplits::operator()(const Splits& a, const Splits& b) const {
  const auto key = [](const LayerSplit& s) { return std::tuple(s.grid.blocks, s.filters, s.overlap); };
  return std::ranges::lexicographical_compare(
      a, b, [&](const LayerSplit& x, const LayerSplit& y) { return key(x) < key(y); });
}

const MemoryUse& WholeStrategies::memory(const Splits& splits) {
  const auto [known, is_new] = memory_.try_emplace(splits);
  if (is_new)
    known->second = find_memory(splits, std::isinf(limit_) ? std::nullopt : std::optional(static_cast<Index>(limit_)));
  return known->second;
}

MemoryUse WholeStrategies::find_memory(const Splits& splits, std::optional<Index> limit) const {
  if (options_.prices.bytes) return {options_.prices.bytes(splits)};
  const nn::LargestMemory most =
      nn::largest_memory(network_, plan(splits), description_, kind_, step(selected_.savings), limit);
  return {static_cast<double>(most.peak),
          most.peak_layer < 0 ? "" : network_.layers[static_cast<std::size_t>(most.peak_layer)].name};
}

double WholeStrategies::bytes_of_first_rank(const Splits& splits) const {
  const nn::StepPlan first = plan_step(network_, plan(splits), 0, kind_, description_, step(selected_.savings));
  return static_cast<double>(memory_of(first, description_).peak);
}

double WholeStrategies::seconds(const Splits& splits, const nn::MemorySavings& savings,
                                const std::vector<int>& rank_of) const {
  if (options_.prices.seconds) return options_.prices.seconds(splits);
  const SimulationOptions simulation{
      .kind = kind_, .step = step(savings), .micro_batches = options_.micro_batches, .rank_of = rank_of};
  return simulate(network_, plan(splits), machine_, kernels_, simulation).seconds;
}

RankPlacement WholeStrategies::place(const Splits& splits, const nn::MemorySavings& savings) const {
  return place_ranks_of_step(network_, plan(splits), machine_, kind_, step(savings));
}

double WholeStrategies::placed_bytes(const Splits& splits, const nn::MemorySavings& savings,
                                     const std::vector<int>& rank_of) const {
  const MachineDescription placed = description_of(machine_, ranks_, rank_of);
  const auto limit = std::isinf(limit_) ? std::nullopt : std::optional(static_cast<Index>(limit_));
  return static_cast<double>(nn::largest_memory(network_, plan(splits), placed, kind_, step(savings), limit).peak);
}

bool WholeStrategies::may_offload() const {
  return options_.memory.offload == "auto" && !description_.on_host && machine_.processor.host_bandwidth > 0;
}

std::vector<nn::MemoryWish> WholeStrategies::ways_to_save(Index limit) const {
  const bool recomputes = options_.memory.recompute == "auto";
  nn::MemoryWish wish = selected_.wish;
  wish.limit = limit;
  std::vector<nn::MemoryWish> ways;
  const auto add = [&](bool recompute, bool offload) {
    ways.push_back(wish);
    if (recompute) ways.back().recompute = "auto";
    if (offload) ways.back().offload = "auto";
  };
  if (recomputes) add(true, false);
  if (may_offload()) add(false, true);
  if (recomputes && may_offload()) add(true, true);
  return ways;
}

std::optional<Saving> WholeStrategies::saving(const Splits& splits) const {
  std::optional<Saving> best;
  for (nn::MemoryWish& way : ways_to_save(static_cast<Index>(limit_))) {
    nn::MemorySavings savings;
    try {
      savings = memory_savings_for(network_, plan(splits), description_, step({}), way);
    } catch (const InvalidArgument&) {
      continue;  // it does not save enough
    }
    const double time = seconds(splits, savings);
    if (best && time >= best->seconds) continue;
    const auto bytes = static_cast<double>(savings.recomputation.peak_bytes);
    best = {std::move(way), std::move(savings), time, bytes};
  }
  return best;
}

}  // namespace aloni::model::detail
