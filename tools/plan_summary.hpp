#pragma once
// The plan of a network on any number of ranks, as a table for people and as JSON. Needs no MPI, allocates no tensor.
#include <aloni/core/machine.hpp>
#include <aloni/model/choose_strategy.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/optimiser.hpp>
#include <aloni/nn/plan/convolution_cases.hpp>
#include <aloni/nn/plan/kfac_cost.hpp>
#include <aloni/nn/plan/memory.hpp>
#include <aloni/nn/plan/memory_savings.hpp>
#include <aloni/nn/plan/step_plan.hpp>
#include <aloni/nn/step_segments.hpp>
#include <aloni/nn/strategy.hpp>
#include <aloni/tools/plan_prediction.hpp>

#include <optional>
#include <string>
#include <vector>

namespace aloni::tools {

/// The request of the user.
struct PlanRequest {
  std::string model;
  nn::NetworkDescription network;
  nn::Strategy strategy;
  Index batch = 64;
  Index requested_batch = 0;  ///< before choose() has enlarged `batch`; 0: as `batch`
  model::Objective objective = model::Objective::training_step;  ///< the step that is planned, and the aim of choose()
  int ranks = 1;
  int ranks_per_node = 0;                          ///< 0: all ranks on one node
  std::optional<MachineDescription> machine = {};  ///< for its planners; empty: ranks and nodes alone are known
  nn::ElementType activations = nn::ElementType::float32;
  nn::OptimiserKind optimiser = nn::OptimiserKind::sgd;
  bool kfac = false;  ///< K-FAC before the optimiser
  nn::MemoryWish memory = {};
  std::optional<double> largest_overhead = {};  ///< StepOptions::largest_overhead
};

/// One layer in one step. Each number is the largest one of all ranks.
struct LayerSummary {
  std::string name, operation, grid;
  /// The input that a rank owns, and the input that it reads, on the rank that reads most.
  views::Extents owned = {}, ghosted = {};
  double flops = 0;
  Index halo_bytes = 0, messages = 0;  ///< sent by the transfers of the layer
  Index memory_bytes = 0;              ///< of its buffers and messages
};

/// One step. Each number is the largest one of all ranks.
struct PlanSummary {
  std::vector<LayerSummary> layers;
  Index parameters = 0;  ///< of the network
  double flops = 0;
  Index bytes_sent = 0, messages = 0;  ///< by transfers and sums over ranks
  Index gradient_bytes = 0;            ///< sent by sums of gradients
  nn::PlanMemoryUse memory;            ///< of the rank that takes most memory, each buffer with its own
  int memory_rank = 0;
  Index peak_bytes = 0;  ///< as a Network takes them: buffers share memory over time
  int peak_rank = 0;
  std::string peak_node;  ///< label of the node where the peak stands
  /// Of the first rank, on a device: the segments that a network with NetworkOptions::record repeats as graphs.
  std::optional<nn::SegmentCounts> segments = {};
  nn::MemorySavings savings = {};
  Index peak_bytes_without = 0;  ///< without savings; 0: there are none
  /// With PlanRequest::kfac: its work and memory, which the numbers above do not include. Of the owners of layers, and
  /// of one other rank of each kind.
  std::optional<nn::KfacCost> kfac = {};
  /// Of the representatives of all ranks, each convolution once.
  std::vector<nn::ExplainedChoice> convolutions = {};
  std::optional<PlanPrediction> prediction = {};  ///< by predict(); summarise() leaves it empty
};

/// The machine for which the request is planned.
MachineDescription machine_of(const PlanRequest& request);

/// Plans the representatives of all ranks (nn/plan/representatives.hpp). Throws InvalidArgument, also if the peak is
/// above the limit of memory, and the exceptions of plan_kfac().
PlanSummary summarise(const PlanRequest& request);

/// "8x28x28x1": samples, the spatial dimensions of the network, channels.
std::string extents_text(const views::Extents& extents, int spatial_rank);

/// One line: the model, its parameters, the ranks, the strategy, the mini-batch.
std::string heading(const PlanRequest& request, const PlanSummary& summary);

/// Several lines: one row for each layer, then totals, then the prediction, if there is one.
std::string to_text(const PlanRequest& request, const PlanSummary& summary);

/// {"layers": [{"name", "operation", "grid", "flops", "halo_bytes", "messages"}], "parameters",
/// "memory_bytes_per_rank", "separate_bytes_per_rank", "bytes_sent", "messages", "recomputed", "extra_flops",
/// "offloaded", "offloaded_bytes", "host_bytes_per_rank", "run": {version, members of PlanRequest}}.
/// "separate_bytes_per_rank": if buffers did not share memory. "bytes_sent" and "messages" are those of one training
/// step. "recomputed": names of the first and the last layer of each block. "extra_flops": of repeated nodes.
/// "offloaded": names of layers. "offloaded_bytes": that leave for host memory in a step. All numbers are the largest
/// over ranks. "convolutions": each convolution with "layer", "convolution", "implementation", "source" ("rule",
/// "near", "measured") and "reason".
/// With K-FAC there is also "kfac": {"product_flops", "average_flops", "factor_bytes_sent", "factor_messages",
/// "inversion_flops", "direction_flops", "direction_bytes_received", "memory_bytes"} (nn/plan/kfac_cost.hpp).
/// On a device there are also "graphs": {"segments", "recorded_segments", "kernels", "recorded_kernels",
/// "not_recorded": [{"reason", "segments"}]}, of rank 0.
///
/// With a prediction a layer also has "split" (equal to "grid"), "seconds", "compute_seconds", "halo_seconds",
/// "redistribution_seconds", "collective_seconds", "exposed_seconds", "reason", "runner_up" and "runner_up_seconds",
/// "kernel_source", "kernel_source_share" and "kernel_error" (step_sources.hpp).
/// Then there are "step_seconds", "total" and "no_layer" with the same seconds, "uniform", "savings_reason",
/// "repeats_reason", "placement" with "reason", "rank_of" (empty: ranks in order) and "node_of_rank" (empty: one node),
/// "limits" with "reason", "bucket_bytes", "chunk_bytes", "direct_bytes", "consolidate_below" and "largest_overhead"
/// (null: by the machine), "feasible", "kernel_sources", "kernel_error", "sum_sources" and "transfer_sources". See
/// PlanPrediction.
///
/// Of a chosen strategy "candidates" is a list of lists of splits, and "rejected" has at the same positions lists of
/// {"split", "reason"}. A layer has its positions "candidates" and "rejected" (null: LayerChoice::own_candidates is
/// false). "run" has "objective", and "requested_batch" if it differs from "batch".
std::string to_json(const PlanRequest& request, const PlanSummary& summary);

}  // namespace aloni::tools
