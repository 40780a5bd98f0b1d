#pragma once
// A layer as a network of its own, on the blocks around one rank. So a plan for thousands of ranks costs as much as one
// for nine. Private to layer_costs.cpp, which says how a layer is reduced.
//
//   const ReducedLayer few = reduce(net, facts[3], nn::LayerSplit::parse("n256h4w4"), 4096, true);
//   plan_network(few.network, {few.split}, few.split.size(), few.samples);      // n1h3w3; few.rank is in the middle
#include <aloni/model/candidates.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/strategy.hpp>

#include <array>
#include <vector>

namespace aloni::model::detail {

struct ReducedLayer {
  nn::NetworkDescription network = {};
  nn::LayerSplit split = {};
  Index samples = 1;
  int rank = 0;                                    ///< whose plan is priced
  std::vector<int> real_ranks = {};                ///< of each rank: its number in the whole grid
  std::array<int, views::num_dims> real_blocks{};  ///< of the whole grid
};

/// `folds_space`: kernels that visit elements may take all elements as samples. @pre effective_split(facts, split) ==
/// split
ReducedLayer reduce(const nn::NetworkDescription& network, const LayerFacts& facts, const nn::LayerSplit& split,
                    int ranks, bool folds_space);

/// Layers whose kernels visit each element once: the shape of a block does not matter, only its size.
bool visits_elements(const nn::OperationProperties& p);

}  // namespace aloni::model::detail
