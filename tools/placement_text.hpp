#pragma once
// The choices of a machine besides splits, as lines for people: the places of ranks on nodes, savings of memory, limits
// of a step. The limits are JSON too.
#include <aloni/core/index.hpp>
#include <aloni/model/step_limits.hpp>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace aloni::tools {

/// One line with the reason. If ranks are placed, another line with the ranks of the first nodes. At most 100 columns,
/// line breaks included. `nodes`: of each rank; empty: all ranks are on one node.
std::string placement_text(const std::string& reason, const std::vector<int>& rank_of, const std::vector<int>& nodes);

/// Lines of at most 100 columns, line breaks included. Empty if the reason is.
std::string savings_text(const std::string& reason);

/// As savings_text(), for StrategyChoice::repeats_reason.
std::string repeats_text(const std::string& reason);

/// One line, or two if it would have more than 100 columns: the machine, and the reason for its limits. Without a line
/// break at the end.
std::string limits_text(const std::string& machine, const std::string& reason);

/// The sizes by which a transfer chooses between its ways: MachineDescription::direct_bytes within a node, and
/// consolidate_below between nodes if one of them has several ranks. A line for each; empty for one rank.
/// @pre 1 ≤ nodes ≤ ranks
std::string transfers_text(Index direct_bytes, Index consolidate_below, int ranks, int nodes);

/// Sets "limits" of an object: {"reason", "bucket_bytes", "chunk_bytes", "direct_bytes", "consolidate_below",
/// "largest_overhead" (null: the limits of the machine)}.
void add_limits(const model::StepLimits& limits, Index direct_bytes, Index consolidate_below,
                nlohmann::ordered_json& json);

}  // namespace aloni::tools
