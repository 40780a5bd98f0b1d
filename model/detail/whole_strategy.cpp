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
      description_(description_of(machine, ranks)) {}

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
  const nn::LargestMemory most = nn::largest_memory(network_, plan(splits), description_, kind_, options_.step, limit);
  return {static_cast<double>(most.peak),
          most.peak_layer < 0 ? "" : network_.layers[static_cast<std::size_t>(most.peak_layer)].name};
}

double WholeStrategies::bytes_of_first_rank(const Splits& splits) const {
  const nn::StepPlan first = plan_step(network_, plan(splits), 0, kind_, description_, options_.step);
  return static_cast<double>(memory_of(first, description_).peak);
}

double WholeStrategies::seconds(const Splits& splits, const nn::Recomputation& recompute,
                                const std::vector<int>& rank_of) const {
  if (options_.prices.seconds) return options_.prices.seconds(splits);
  SimulationOptions simulation{.kind = kind_, .step = options_.step, .rank_of = rank_of};
  simulation.step.recompute = recompute;
  return simulate(network_, plan(splits), machine_, kernels_, simulation).seconds;
}

RankPlacement WholeStrategies::place(const Splits& splits, const nn::Recomputation& recompute) const {
  nn::StepOptions step = options_.step;
  step.recompute = recompute;
  return place_ranks_of_step(network_, plan(splits), machine_, kind_, step);
}

double WholeStrategies::placed_bytes(const Splits& splits, const nn::Recomputation& recompute,
                                     const std::vector<int>& rank_of) const {
  nn::StepOptions step = options_.step;
  step.recompute = recompute;
  const MachineDescription placed = description_of(machine_, ranks_, rank_of);
  const auto limit = std::isinf(limit_) ? std::nullopt : std::optional(static_cast<Index>(limit_));
  return static_cast<double>(nn::largest_memory(network_, plan(splits), placed, kind_, step, limit).peak);
}

std::optional<nn::PricedRecomputation> WholeStrategies::recompute(const Splits& splits) const {
  try {
    return nn::choose_recomputation(network_, plan(splits), description_, options_.step, static_cast<Index>(limit_));
  } catch (const InvalidArgument&) {
    return std::nullopt;  // no blocks save enough
  }
}

}  // namespace aloni::model::detail
