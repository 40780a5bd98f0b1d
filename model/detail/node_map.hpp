#pragma once
// The ranks of each node of a machine, for prices of layers and redistributions. Private to layer_costs.cpp and
// layer_pricer.cpp.
//
//   const NodeMap nodes(description_of(machine, 1024), 1024, 4);
//   nodes.company(17);                  // {{16, 20}}: the ranks of its node
//   nodes.of_group(8, 4);               // nodes of ranks 0, 4, 8, …, 28
#include <aloni/core/machine.hpp>
#include <aloni/model/redistribution_traffic.hpp>

#include <vector>

namespace aloni::model::detail {

class NodeMap {
 public:
  /// `consecutive_per_node`: each node has as many consecutive ranks, but for the last one; 0: any others.
  NodeMap(const MachineDescription& description, int ranks, int consecutive_per_node);

  /// The ranks of the node of a rank, ascending, itself included.
  const std::vector<RankRange>& company(int rank) const { return of_node_[static_cast<std::size_t>(node_of(rank))]; }
  /// False for a rank outside the machine.
  bool share_node(int rank, int other) const;
  /// Nodes of `members` ranks at a distance of `stride`, from rank 0 on.
  int of_group(int members, int stride) const;

 private:
  int node_of(int rank) const { return nodes_.empty() ? 0 : nodes_[static_cast<std::size_t>(rank)]; }

  std::vector<int> nodes_;  ///< of each rank, numbered from 0; empty: one node
  int ranks_, consecutive_per_node_;
  std::vector<std::vector<RankRange>> of_node_;
};

}  // namespace aloni::model::detail
