#pragma once
// Prices of the search for a strategy: of one layer under a split, and of the redistribution between two splits. They
// ignore the rest of the network, so each is computed once for equal layers. simulate() prices whole strategies.
//
//   LayerCosts costs(net, machine, kernels, 1024, {.samples = 4096});
//   const LayerPrice price = costs.of(costs.facts()[3], nn::LayerSplit::parse("n256h2w2"));
//   price.seconds + price.gradient_flight;                 // if no sum of gradients hides behind other layers
//   costs.between(3, split, 4, 0, other_split);            // of an edge, both passes
//
// A layer is planned as a network of its own, on the rank that has most work and neighbours on all sides. Its grid is
// reduced to the blocks around that rank: at most three in each dimension of space. Samples need one block. The block
// of each rank stays as large as it was. So a plan for 4,096 ranks costs as much as one for nine. A sum over ranks is
// priced for the number of ranks that the whole grid has. Sums and redistributions use the fits of a calibrated
// machine, as simulate() does; otherwise its links. Messages between nodes count one by one, also those that
// are joined.
//
// Pure.
#include <aloni/model/candidates.hpp>
#include <aloni/model/kernel_times.hpp>
#include <aloni/model/machine.hpp>
#include <aloni/model/redistribution_traffic.hpp>
#include <aloni/nn/plan/plan_step.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace aloni::model {

struct LayerPrice {
  /// Of kernels, and of all communication that these do not hide, but for gradient_flight.
  double seconds = 0;
  double backward = 0;         ///< of these, those of the backward pass
  double gradient_flight = 0;  ///< sums of gradients of parameters that kernels of other layers can hide
  double bytes = 0;  ///< that the layer needs until the backward pass: outputs, inputs with ghosts, parameters

  friend bool operator==(const LayerPrice&, const LayerPrice&) = default;
};

struct LayerCostOptions {
  Index samples = 1;  ///< of the mini-batch, or of a micro-batch
  nn::StepKind kind = nn::StepKind::training;
  nn::StepOptions step = {};
  /// As SimulationOptions::micro_batches. Prices are of all of them; LayerPrice::backward is that of the last one.
  int micro_batches = 1;
};

class FittedCollectives;

namespace detail {
class NodeMap;
struct PricedNetwork;
}  // namespace detail

class LayerCosts {
 public:
  /// `network`, `machine` and `kernels` outlive this object. Throws as infer_extents() and description_of().
  LayerCosts(const nn::NetworkDescription& network, const Machine& machine, const KernelTimes& kernels, int ranks,
             const LayerCostOptions& options);
  ~LayerCosts();

  const std::vector<LayerFacts>& facts() const { return facts_; }

  /// @pre effective_split(facts, split) == split
  LayerPrice of(const LayerFacts& facts, const nn::LayerSplit& split);
  /// Seconds of the part of a full bucket of gradients that kernels can hide. The last bucket has no kernels beside it.
  double bucket_flight() const;

  /// Equal for layers whose prices are equal for all splits.
  const std::string& kind_of(int layer) const { return kinds_[static_cast<std::size_t>(layer)]; }

  /// Seconds to move input `input` of layer `to` from the splits of its producer, both passes: one for each pair, those
  /// of the reader vary fastest. `from`: -1 for the network's input, with `from_splits` of its first reader.
  /// Blocks of channels are taken as equal, except in a concatenation.
  std::vector<double> between(int from, const std::vector<nn::LayerSplit>& from_splits, int to, int input,
                              const std::vector<nn::LayerSplit>& to_splits);

 private:
  detail::PricedNetwork priced_network() const;
  LayerPrice price(const LayerFacts& facts, const nn::LayerSplit& split) const;
  /// Seconds of a redistribution in both passes, on the slower one of two ranks.
  struct Move {
    double fixed = 0;
    double of_bytes = 0;
  };
  Move move(const BlockLayout& from, const BlockLayout& to, bool goes_back) const;
  Move move_one_way(const RedistributionTraffic& in, const RedistributionTraffic& out) const;
  int number_of(const std::vector<Index>& values);

  const nn::NetworkDescription& network_;
  const Machine& machine_;
  const KernelTimes& kernels_;
  int ranks_;
  LayerCostOptions options_;
  MachineDescription description_;
  std::unique_ptr<const detail::NodeMap> nodes_;
  std::unique_ptr<FittedCollectives> fits_;
  bool folds_pointwise_ = false;
  double step_bytes_ = 0;  // that a rank uses in a step, roughly
  std::vector<LayerFacts> facts_;
  std::vector<std::string> kinds_;
  std::map<std::pair<std::string, std::string>, LayerPrice> prices_;
  std::map<std::vector<Index>, int> numbers_;
  std::unordered_map<std::uint64_t, Move> moves_;
};

}  // namespace aloni::model
