#pragma once
// The schedule of a link measurement: which ranks exchange in which round.
#include <vector>

namespace aloni::halo::detail {

enum class BetweenNodes {
  all_pairs,     ///< any two ranks meet once
  one_per_node,  ///< any two nodes meet once, with as many pairs of ranks as the smaller node has ranks
};

/// For each round the partner of each rank; a rank without partner has itself. The pairs of a round are all within
/// nodes, or all between nodes. Within nodes any two ranks meet once. Between nodes, nodes meet in pairs with all their
/// ranks, so that every measured link between nodes carries the same load.
/// nodes: the ranks of each node, each rank once.
std::vector<std::vector<int>> link_rounds(const std::vector<std::vector<int>>& nodes, BetweenNodes between);

}  // namespace aloni::halo::detail
