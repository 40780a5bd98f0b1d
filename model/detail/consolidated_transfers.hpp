#pragma once
// The messages between nodes that the transfers of a step join (halo/node_pairs.hpp), from the plans of classes of
// ranks. Private to model/.
//
// Which messages are joined depends on the plans of all ranks of a node. Ranks of a class have the plan of its lowest
// rank, with peers at the same distance. So the pairs are exact if each rank is a class of its own. They are exact too
// if all ranks of a class have their peers at the same distances, as in the exchange of a regular grid.
#include <aloni/core/machine.hpp>
#include <aloni/halo/node_pairs.hpp>
#include <aloni/nn/plan/step_plan.hpp>

#include <map>
#include <utility>
#include <vector>

namespace aloni::model::detail {

class ConsolidatedTransfers {
 public:
  /// plans: of the lowest rank of each class. class_of: by rank. The arguments outlive this object.
  /// @pre the plans list the same communications in the same order
  ConsolidatedTransfers(std::vector<const nn::StepPlan*> plans, const std::vector<int>& class_of,
                        const MachineDescription& description);

  /// The pairs of nodes with the node of the class, whose messages a communication joins. Empty: none, or no transfer.
  const std::vector<halo::NodePair>& of(int rank_class, int communication);

 private:
  /// The values of a transfer between a rank and one of another node, in its forward direction.
  struct FarParcel {
    int peer = 0;
    std::size_t bytes = 0;
    bool leaves = false;
  };
  int node_of(int rank) const { return description_.nodes[static_cast<std::size_t>(rank)]; }
  void add_parcels(int rank, int communication, std::vector<halo::Parcel>& parcels) const;

  std::vector<const nn::StepPlan*> plans_;
  const std::vector<int>& class_of_;
  const MachineDescription& description_;
  std::vector<std::vector<int>> ranks_of_node_;                       // empty: nothing is joined
  std::vector<std::map<int, std::vector<FarParcel>>> far_parcels_;    // by class, then communication
  std::map<std::pair<int, int>, std::vector<halo::NodePair>> found_;  // by node and communication
};

}  // namespace aloni::model::detail
