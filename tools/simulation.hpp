#pragma once
// Simulated steps of a network on a machine, for several numbers of ranks, sizes of mini-batches and factors: as a
// table for people and as JSON. Needs no MPI, allocates no tensor.
#include <aloni/core/trace.hpp>
#include <aloni/model/choose_strategy.hpp>
#include <aloni/model/scaled_machine.hpp>
#include <aloni/model/simulate.hpp>
#include <aloni/model/step_limits.hpp>
#include <aloni/model/variation.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/optimiser.hpp>
#include <aloni/nn/strategy.hpp>

#include <optional>
#include <string>
#include <vector>

namespace aloni::tools {

/// One point of a sweep.
struct SimulationCase {
  int ranks = 1;
  Index batch = 64;
  std::optional<nn::Strategy> strategy = {};  ///< empty: that of model::choose_strategy()
  model::MachineFactors factors = {};
};

/// The request of the user.
struct SimulationRequest {
  std::string model;
  nn::NetworkDescription network;
  model::Machine machine;
  nn::ElementType activations = nn::ElementType::float32;
  nn::OptimiserKind optimiser = nn::OptimiserKind::sgd;
  nn::MemoryWish memory = {};  ///< without a limit: the memory of the machine
  int accumulate = 1;          ///< micro-batches of a step; divides the batch of each case
  /// Of strategies that model::choose_strategy() finds. The steps are of inference for latency and throughput.
  /// @pre training_step with strategies that are given, and with several micro-batches
  model::Objective objective = model::Objective::training_step;
  std::optional<model::Variation> variation = {};  ///< empty: all ranks and links are equally fast
  std::vector<SimulationCase> cases = {};
  bool timeline = false;  ///< SimulatedCase::traces are wanted
  bool messages = false;  ///< SimulatedCase::messages are wanted
};

/// Messages of one step from a rank to another one.
struct MessagesBetween {
  int from = 0, to = 0;
  Index messages = 0, bytes = 0;  ///< payload, as nn::PeerMessages counts it
};
/// Largest number of ranks for which a case lists its messages.
inline constexpr int most_ranks_with_messages = 8;

struct SimulatedCase {
  model::SimulatedStep step;            ///< without variation
  model::VariedSteps varied = {};       ///< if the request has a variation
  Index batch = 0;                      ///< simulated; for throughput up to 32 times that of the case
  std::string strategy = {};            ///< name of the strategy: its grid, its file, or "auto"
  std::vector<std::string> grids = {};  ///< of the layers
  Index memory_bytes = 0;               ///< of the rank that takes most: planned buffers, which share memory over time
  Index separate_bytes = 0;             ///< the same if they did not
  std::string reason = {};              ///< why the step cannot run; empty if it can
  std::string savings_reason = {};      ///< StrategyChoice::savings_reason, if the model chose the strategy
  std::string repeats_reason = {};      ///< StrategyChoice::repeats_reason, likewise
  std::vector<int> rank_of = {};        ///< StrategyChoice::rank_of, likewise
  std::vector<int> nodes = {};          ///< of each rank; empty: all ranks are on one node
  std::string placement_reason = {};    ///< StrategyChoice::placement_reason, or that the strategy is given
  model::StepLimits limits = {};        ///< of model::choose_step_limits() if the model chose the strategy
  /// With SimulationRequest::messages, on at most most_ranks_with_messages ranks: of the transfers of a step, without
  /// sums over ranks (nn::messages_of_ranks()).
  std::vector<MessagesBetween> messages = {};
  /// With SimulationRequest::timeline: of each rank that was walked, as nn::trace_of() makes it. Time 0 is the end of
  /// the step before.
  std::vector<Trace> traces = {};

  /// False if there is no strategy to simulate.
  bool was_simulated() const { return !grids.empty(); }
};

/// Throws InvalidArgument for a strategy that does not fit the network or the ranks, and for more ranks than the
/// machine has. Too little memory is no error but a reason: the step is simulated as if there were enough. If no
/// strategy fits into the memory, nothing is simulated.
SimulatedCase simulate_case(const SimulationRequest& request, const SimulationCase& which);

/// One case: a row for each layer, then totals. Several: one row for each case. At most 100 columns, unless names of
/// layers are long.
std::string to_text(const SimulationRequest& request, const std::vector<SimulatedCase>& results);

/// A trace file (core/trace.hpp) with one process for each walked rank, in the form of `aloni train --trace`.
/// @pre request.timeline, and `result` was simulated
std::string trace_text(const SimulationRequest& request, const SimulationCase& which, const SimulatedCase& result);

/// {"cases": [{"ranks", "batch", "strategy", "flops_factor", "memory_bandwidth_factor", "link_bandwidth_factor",
/// "step_seconds", "forward_seconds", "backward_seconds", "update_seconds", "exposed_communication_seconds",
/// "samples_per_second", "memory_bytes_per_rank", "separate_bytes_per_rank", "feasible", "reason", "savings_reason",
/// "repeats_reason", "placement": {"reason", "rank_of", "node_of_rank"}, "limits": {"reason", "bucket_bytes",
/// "chunk_bytes", "direct_bytes", "consolidate_below", "largest_overhead"}, "kernel_sources", "kernel_error",
/// "sum_sources", "transfer_sources", "layers": [{"name", "grid", "kernels", "copies", "waits", "kernel_source",
/// "kernel_source_share", "kernel_error"}], "messages": [{"from", "to", "messages", "bytes"}]}], "run"}.
///
/// The members of a single case are at the top too. Sources and errors are those of step_sources.hpp. The list of
/// messages is null without SimulationRequest::messages, and for too many ranks. For throughput "requested_batch" is
/// the batch of the case. With a variation "step_seconds_mean", "step_seconds_median" and "step_seconds_p95" follow
/// "step_seconds", which is without it as all others are. Numbers are null if nothing was simulated. "forward_seconds"
/// includes the loss. Times of phases and layers are those of the slowest rank.
std::string to_json(const SimulationRequest& request, const std::vector<SimulatedCase>& results);

}  // namespace aloni::tools
