#pragma once
// The places of ranks on nodes, as lines for people.
#include <string>
#include <vector>

namespace aloni::tools {

/// One line with the reason. If ranks are placed, another line with the ranks of the first nodes. At most 100 columns,
/// line breaks included. `nodes`: of each rank; empty: all ranks are on one node.
std::string placement_text(const std::string& reason, const std::vector<int>& rank_of, const std::vector<int>& nodes);

}  // namespace aloni::tools
