#pragma once
// The price of one layer under a split: a walk over the plan of one rank of the reduced layer. The neighbours of the
// rank are as fast as the rank itself. Private to layer_costs.cpp.
#include <aloni/model/communication.hpp>
#include <aloni/model/detail/node_map.hpp>
#include <aloni/model/kernel_times.hpp>
#include <aloni/model/layer_costs.hpp>
#include <aloni/model/machine.hpp>
#include <aloni/nn/network_description.hpp>

namespace aloni::model::detail {

/// The facts that all prices of a network share. The references outlive the prices.
struct PricedNetwork {
  const nn::NetworkDescription& network;
  const Machine& machine;
  const KernelTimes& kernels;
  int ranks;
  const LayerCostOptions& options;
  const MachineDescription& description;
  const NodeMap& nodes;
  bool folds_pointwise;  ///< as the argument of reduce()
  FittedCollectives& fits;
  double step_bytes;  ///< that a rank uses in a step, roughly
};

/// @pre effective_split(facts, split) == split
LayerPrice price_layer(const PricedNetwork& net, const LayerFacts& facts, const nn::LayerSplit& split);

/// A sum over `members` ranks at a distance of `stride`, by the fastest algorithm. `shared_data`: as in GroupSum.
AllReduceParts group_sum(double bytes, int members, int stride, bool shared_data, const PricedNetwork& net);

}  // namespace aloni::model::detail
