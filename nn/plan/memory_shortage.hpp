#pragma once
// The text of an error if a step takes more memory than a rank has: the shortage, a number of ranks that works, and the
// other ways out. All errors of this kind use it. Pure.
//
//   const MoreRanks more = find_more_ranks(32, {.step = 8}, 2.5, [&](int ranks) { return fits(ranks); });
//   to_string(MemoryShortage{.needed = 2500, .limit = 1000, .layer = "conv1"}) + ". " + to_string(more)
//   // "at least 2500 bytes, 1500 bytes more than the limit; most are in use at layer conv1. 96 ranks would do: …"
#include <aloni/core/index.hpp>
#include <aloni/core/machine.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/memory_savings.hpp>
#include <aloni/nn/plan/memory_wish.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/strategy.hpp>

#include <functional>
#include <string>
#include <vector>

namespace aloni::nn {

/// Error::argument() of the errors of memory_savings_for() and choose_recomputation() about the limit.
inline constexpr const char* memory_limit_argument = "memory limit";

struct MemoryShortage {
  Index needed = 0, limit = 0;  ///< bytes of the rank that takes most, and of a rank
  std::string layer = {};       ///< at the peak; empty: of no layer
};
/// "at least 2500 bytes, 1500 bytes more than the limit; most are in use at layer conv1".
std::string to_string(const MemoryShortage& shortage);

/// The ways to need less memory that are left, besides a smaller mini-batch.
struct WaysToNeedLess {
  bool recompute = false, offload = false;  ///< "auto" of MemoryWish
  bool micro_batches = false;
  bool ranks_and_strategy = true;  ///< false if a search has tried them
};
/// "Recomputation "auto", a smaller mini-batch, more ranks, or another strategy would help".
std::string to_string(const WaysToNeedLess& ways);
/// Those that a wish leaves. @pre `wish` is of a training step
WaysToNeedLess ways_beside(const MemoryWish& wish, const MachineDescription& machine);

/// The numbers of ranks that a search tries: multiples of `step`.
struct RankNumbers {
  int step = 1;
  int most = 0;   ///< 0: no limit
  int tries = 6;  ///< of doubled numbers
};

struct MoreRanks {
  int ranks = 0;  ///< that fit; 0: none was found
  int step = 1;   ///< RankNumbers::step
  int most = 0;   ///< the largest number that was considered; 0: none
  std::string note = {};
};
/// "96 ranks would do: the least multiple of 8 that was found", or "No multiple of 8 up to 2048 ranks was found that
/// would do", with the note in parentheses. Empty if no number was considered.
std::string to_string(const MoreRanks& more);

/// Doubles the number of ranks until it fits, then bisects between the last number that does not fit and the first one
/// that does. So the multiple of `step` just below the result does not fit. A smaller one might, if more ranks need
/// more memory somewhere. Doubled numbers below ranks · factor count as numbers that do not fit, without a try.
/// @pre ranks, step ≥ 1; `ranks` ranks do not fit
MoreRanks find_more_ranks(int ranks, const RankNumbers& numbers, double factor, const std::function<bool(int)>& fits);

/// A step with a given strategy.
struct GivenStep {
  const NetworkDescription& network;
  const std::vector<LayerSplit>& splits;
  int ranks = 1;
  Index samples = 1;
  StepOptions options = {};  ///< recomputation and offloading do not count
  MemoryWish wish = {};
  StepKind kind = StepKind::training;
};
/// Numbers of ranks with the same grids and more blocks of samples: multiples of the ranks of the step, each with at
/// least one sample per block. Nodes are as full as those of `machine`. The limit of the wish does not count. `needed`:
/// bytes of the step on its own ranks; 0: not known.
MoreRanks find_more_sample_blocks(const GivenStep& step, const MachineDescription& machine, Index limit,
                                  Index needed = 0);

/// memory_savings_for() of a training step. Its error about the limit also has find_more_sample_blocks().
/// @pre `layers` was made from the step; as memory_savings_for()
MemorySavings savings_or_ways_out(const GivenStep& step, const NetworkPlan& layers, const MachineDescription& machine);

/// to_string() of find_more_sample_blocks() and of ways_beside(), as two sentences. A step of inference has neither
/// recomputation nor micro-batches. `needed`: as above.
std::string ways_out(const GivenStep& step, const MachineDescription& machine, Index limit, Index needed = 0);

}  // namespace aloni::nn
