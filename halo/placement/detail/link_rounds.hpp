#pragma once
// Who measures a link with whom, round after round.
#include <vector>

namespace aloni::halo::detail {

enum class BetweenNodes {
  all_pairs,     ///< any two ranks meet once
  one_per_node,  ///< any two nodes meet once, with as many pairs as the smaller has ranks
};

/// For each round the partner of each rank, or itself. All pairs of a round are within nodes, or all between nodes; and then nodes
/// meet in pairs, with all their ranks, so that every link between nodes carries the same load when it is measured. Within
/// nodes any two ranks meet once. `nodes`: the ranks of each, each rank once.
std::vector<std::vector<int>> link_rounds(const std::vector<std::vector<int>>& nodes, BetweenNodes between);

}  // namespace aloni::halo::detail
