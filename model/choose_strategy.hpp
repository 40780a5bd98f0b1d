#pragma once
// Chooses split and overlap of every layer of a network for a machine, so that a step takes least time by the cost
// model.
//
//   const Machine machine = read_machine("machine.json");
//   const StrategyChoice choice = choose_strategy(net, machine, 1024, {.samples = 4096});
//   choice.strategy;                                      // a rule per layer; to_string() gives a strategy file
//   choice.seconds, choice.uniform.seconds;               // of a step; of the best strategy with one split for all
//   choice.savings.apply(step);                           // recomputation and offloading, if it fits only with them
//   choice.rank_of;                                       // the place of each rank on the nodes
//   for (const LayerChoice& layer : choice.layers) layer.split, layer.runner_up, layer.reason;
//
// Three stages:
//   1. candidates.hpp lists splits for each layer. layer_costs.hpp prices them, and the redistributions between them.
//      Layers that only visit elements have the candidates of the layers that they read.
//   2. assignment.hpp finds the splits with the least sum. It does so for several weights of sums of gradients, which
//      kernels of other layers may hide, and of redistributions.
//   3. simulate() prices the few best strategies as a whole: those of stage 2, and those with one split for all layers.
//      The fastest one is the result. So by the model it is never slower than the best of the latter. The ranks of the
//      best three are also placed on the nodes in the order that rank_placement.hpp finds. A strategy keeps that order
//      if its simulated step is faster then.
// A strategy whose plans take more memory than a rank has is never the result (PlanMemoryUse::peak, on the rank that
// takes most). Where the memory is limited, the fastest strategies above the limit compete too. Stage 3 recomputes
// their activations, moves them to host memory, or both, until they fit (nn/plan/memory_savings.hpp). It prices these
// steps. So saving memory is an alternative to wider splits.
//
// Source: spatial-parallel-cnn, section V.C. The paper adds the costs of layers and edges as stage 2 does, on a path.
// Pure; no communication. Equal arguments give equal results on all ranks.
#include <aloni/model/assignment.hpp>
#include <aloni/model/candidates.hpp>
#include <aloni/model/kernel_times.hpp>
#include <aloni/model/layer_costs.hpp>
#include <aloni/model/machine.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/plan/memory_savings.hpp>
#include <aloni/nn/plan/memory_wish.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/strategy.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace aloni::model {

enum class Objective : std::uint8_t {
  training_step,      ///< least seconds of a training step with `samples` samples
  inference_latency,  ///< least seconds of an inference step with `samples` samples
  /// Most samples per second of inference. The mini-batch may be up to 32 times `samples` (StrategyChoice::samples).
  throughput
};

/// Replaces prices of the model; empty functions: those of layer_costs.hpp, simulate() and memory_of(). For tests.
struct StrategyPrices {
  std::function<LayerPrice(const LayerFacts&, const nn::LayerSplit&)> layer = {};
  /// From the split of layer `from` to that of its reader `to`; `from` is -1 for the network's input.
  std::function<double(int from, const nn::LayerSplit&, int to, const nn::LayerSplit&)> edge = {};
  std::function<double(const std::vector<nn::LayerSplit>&)> seconds = {};  ///< of a whole step
  std::function<double(const std::vector<nn::LayerSplit>&)> bytes = {};    ///< of the rank that takes most
};

struct ChooseOptions {
  Index samples = 1;  ///< of the mini-batch, or of a micro-batch, on all ranks together
  /// Of a training step, as SimulationOptions::micro_batches.
  int micro_batches = 1;
  /// Without a limit Machine::memory_bytes is the limit; unlimited if that is 0 too. Of training steps: patterns select
  /// layers of every strategy. With "auto" stage 3 may save memory in this way where it is limited. "auto" for offload
  /// counts on devices only, and with Processor::host_bandwidth.
  nn::MemoryWish memory = {.recompute = "auto", .offload = "auto"};
  Objective objective = Objective::training_step;
  nn::StepOptions step = {};  ///< without recomputation and offloading, which do not count
  CandidateOptions candidates = {};
  AssignmentLimits limits = {};
  /// Strategies with one split for all layers that stage 3 simulates, and two more of stage 2. 0: stage 3 is left out,
  /// and the seconds are the sums of stage 2.
  int simulated = 3;
  bool place_ranks = true;               ///< whether stage 3 may place ranks in another order
  const KernelTimes* kernels = nullptr;  ///< null: MachineKernels of the machine's own layout of processes
  StrategyPrices prices = {};
};

struct LayerChoice {
  nn::LayerSplit split;
  double seconds = 0;  ///< LayerPrice::seconds and the redistributions of its inputs
  double bytes = 0;    ///< LayerPrice::bytes
  /// The best other split if all other layers stay as they are; empty if there is no other candidate.
  std::optional<nn::LayerSplit> runner_up = {};
  double runner_up_seconds = 0;  ///< by which the step would be longer, by stage 2; negative if stage 3 decided
  std::string reason = {};       ///< one line: why this split, and not the runner-up
  int candidates = 0;            ///< position in StrategyChoice::candidates
  /// False if the splits are those of the layers that it reads. Then Candidates::rejected is not of this layer.
  bool own_candidates = true;
};

/// Error::argument() of the error if no strategy fits into the memory.
inline constexpr const char* memory_argument = "memory of a rank";

struct UniformChoice {
  nn::LayerSplit split;
  double seconds = 0;
};

/// A strategy that stage 3 has priced as a whole.
struct Finalist {
  nn::Strategy strategy = {};  ///< source: the grid, if all layers have one, or "by layer"
  double seconds = 0;          ///< of a step
  double bytes = 0;            ///< of the rank that takes most
  /// memory_savings_for() gives `savings` for it. Its limit is empty if the strategy fits as ChooseOptions has it.
  nn::MemoryWish wish = {};
  nn::MemorySavings savings = {};  ///< those that ChooseOptions selects by patterns have no prices
  /// The place of each rank, for SimulationOptions::rank_of and halo::place_ranks(); empty: its own.
  std::vector<int> rank_of = {};
  /// One line: why these places; of the best three strategies with stage 3, otherwise empty.
  std::string placement_reason = {};
};

struct StrategyChoice {
  nn::Strategy strategy = {};
  std::vector<nn::LayerSplit> splits = {};  ///< resolve() of the strategy
  Index samples = 1;                        ///< as ChooseOptions::samples
  double seconds = 0;                       ///< of a step
  /// Of the plans, on the rank that takes most. Without stage 3, and with far more memory than needed: the sum of stage
  /// 2, which has no gradients of activations and no workspace.
  double bytes = 0;
  nn::MemoryWish wish = {};         ///< as Finalist::wish
  nn::MemorySavings savings = {};   ///< as Finalist::savings
  std::string savings_reason = {};  ///< one line: why stage 3 saves memory; empty if it does not
  /// One line: how many ranks compute the same blocks, and why. Only of layers without a grid that has a block for each
  /// rank, if these take at least a tenth of the time of layers; otherwise empty.
  std::string repeats_reason = {};
  std::vector<int> rank_of = {};      ///< as Finalist::rank_of
  std::string placement_reason = {};  ///< as Finalist::placement_reason
  /// Whether stage 2 has the least sum of all candidates. Never where the memory limits the choice, because its bytes
  /// are a sum over layers too.
  bool exact = false;
  bool simulated = false;  ///< whether `seconds` is of simulate()
  std::vector<LayerChoice> layers = {};
  std::vector<Candidates> candidates = {};    ///< of all layers, each list once
  std::vector<Finalist> finalists = {};       ///< that fit into the memory, the fastest first: it is the result
  std::optional<UniformChoice> uniform = {};  ///< the fastest that fits into the memory; empty: none does
};

/// Throws InvalidArgument
/// * if samples, micro-batches or ranks are below 1, or the machine has fewer ranks;
/// * for several micro-batches with an objective of inference;
/// * if no strategy fits into the memory: the text names the least bytes, the bytes above the limit, the layer at the
///   peak, a number of ranks that would do without saving memory, and the ways that are left to need less memory. The
///   number is the least one that a bisection finds among multiples of a quarter of `ranks`, in whole nodes if the
///   ranks fill nodes. For ranks that are no multiple of 4, or have a prime factor above 7, it is a quarter of the next
///   power of two;
/// * as infer_extents(), MachineKernels, nn::recomputed_blocks() and nn::offloaded_layers() do.
StrategyChoice choose_strategy(const nn::NetworkDescription& network, const Machine& machine, int ranks,
                               const ChooseOptions& options = {});

}  // namespace aloni::model
