#pragma once
// Adds the nodes that compute the activations of a block of layers again, in the backward pass
// (nn/plan/recomputation.hpp). The nodes are those of the forward pass, with the same buffers. So the contents of these
// buffers are not needed from the forward pass to the repetition, and other buffers take their memory meanwhile
// (PlanBuffer::unused). Only messages have memory of their own: a rank that gets nothing may finish a transfer late.
//
// All decisions follow from the layers, not from the boxes of a rank: all ranks repeat the same transfers.
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/detail/builder.hpp>
#include <aloni/nn/plan/recomputation.hpp>

#include <vector>

namespace aloni::nn::detail {

/// Nodes [begin, end) of the plan.
struct PlannedNodes {
  int begin = 0, end = 0;
};

/// The facts about one layer that decide about its repetition.
struct ForwardNodes {
  BufferId y = no_buffer;
  bool wants_gradient = false;
  std::vector<PlannedNodes> fetches = {};  ///< per input: the transfers that fill it, ghosts included
  PlannedNodes kernels = {};               ///< the others, with the transfers between them
};

class RecomputePlanner {
 public:
  /// `layers`: in the order of the network. The arguments outlive this object.
  RecomputePlanner(PlanBuilder& builder, const NetworkDescription& network, const NetworkPlan& plan,
                   const std::vector<ForwardNodes>& layers)
      : builder_(builder), network_(network), plan_(plan), layers_(layers) {}

  /// Adds the nodes of one block. Call it before the backward nodes of its last layer. Every rank calls it.
  void add(const RecomputedBlock& block);

 private:
  bool keeps_output(const RecomputedBlock& block, int layer) const;
  void find_repeated(const RecomputedBlock& block);
  bool reads_input(int layer) const;
  void repeat(PlannedNodes nodes);
  void repeat(int node);

  PlanBuilder& builder_;
  const NetworkDescription& network_;
  const NetworkPlan& plan_;
  const std::vector<ForwardNodes>& layers_;
  std::vector<bool> repeated_ = {};  ///< per layer: its kernels run again
  BufferId gate_ = no_buffer;
};

}  // namespace aloni::nn::detail
