#pragma once
// Stages 1 and 2 of the search for a strategy, without its decisions: the candidates of all layers, their prices, and
// the assignment problem that these make. Private to choose_strategy.cpp, which says how they are used.
//
//   SearchSpace space(net, machine, kernels, 1024, 4096, nn::StepKind::training, options);
//   const Assignment best = assign(space.weighted_problem({.exposed = 1}));
//   space.splits_of(best.options), space.estimate(best.options);
#include <aloni/model/assignment.hpp>
#include <aloni/model/candidates.hpp>
#include <aloni/model/choose_strategy.hpp>
#include <aloni/model/layer_costs.hpp>

#include <map>
#include <utility>
#include <vector>

namespace aloni::model::detail {

using Splits = std::vector<nn::LayerSplit>;  ///< of all layers

class SearchSpace {
 public:
  /// The arguments outlive this object.
  SearchSpace(const nn::NetworkDescription& network, const Machine& machine, const KernelTimes& kernels, int ranks,
              Index samples, nn::StepKind kind, const ChooseOptions& options);

  int layers() const { return static_cast<int>(network_.layers.size()); }
  const LayerFacts& facts(int layer) const { return costs_.facts()[static_cast<std::size_t>(layer)]; }
  /// The layers that a layer reads; -1: the network's input.
  const std::vector<int>& sources(int layer) const { return sources_[static_cast<std::size_t>(layer)]; }
  const std::vector<Candidates>& lists() const { return lists_; }
  int list_of(int layer) const { return list_of_[static_cast<std::size_t>(layer)]; }
  /// Whether the list rejects the other splits of this layer. Otherwise its splits are those of the layers it reads.
  bool has_own_list(int layer) const { return has_own_list_[static_cast<std::size_t>(layer)]; }
  const Splits& candidates(int layer) const { return lists_[static_cast<std::size_t>(list_of(layer))].splits; }
  /// Of the candidates of a layer.
  const std::vector<LayerPrice>& prices(int layer) const { return prices_[static_cast<std::size_t>(layer)]; }
  /// Splits that may be the same for all layers.
  const Splits& uniform() const { return uniform_; }

  const AssignmentProblem& problem() const { return problem_; }
  /// Factors of the costs that stage 2 knows least.
  struct Weights {
    double exposed = 0;  ///< share of the sums of gradients that no kernel hides
    double edges = 1;    ///< redistributions: their copies also delay the layers around them
  };
  AssignmentProblem weighted_problem(const Weights& weights) const;

  /// The seconds and bytes of a split, with the cheaper overlap.
  std::pair<LayerPrice, nn::Overlap> price(int layer, nn::LayerSplit split);
  /// The splits of a choice, with their overlaps.
  Splits splits_of(const std::vector<int>& choice) const;
  /// Stage 2 as a whole: the sum of all layers and edges, and the sums of gradients that are not hidden.
  double estimate(const std::vector<int>& choice) const;
  /// The same with one split for all layers.
  AssignmentOption sum_of_uniform(const nn::LayerSplit& split);

 private:
  bool inherits_candidates(int layer) const;
  void find_candidates();
  /// The splits that may be the same for all layers: first those that are candidates of most layers, and of these the
  /// ones with least communication.
  void find_uniform_splits();
  /// The most promising of them are candidates of every layer, so that one layer without them does not cost a
  /// redistribution.
  void add_uniform_splits(int layer, Candidates& list) const;
  /// Lists with equal splits have one position, so that costs between them are computed once.
  int add_list(Candidates list);
  /// Without splits if the layer has none of theirs.
  Candidates inherited_candidates(int layer, const std::vector<int>& from, const CandidateOptions& options) const;
  /// Seconds of all pairs; the splits of the reader vary fastest.
  std::vector<double> edge_prices(int from, const Splits& a, int to, int input, const Splits& b);
  void make_problem();
  void add_edge(int from, int to, int input, bool reads_input, std::map<std::vector<Index>, int>& known);
  /// Bytes of the copy of its input that a reader with another grid keeps until the backward pass.
  std::vector<double> copies(int from, int to, int input) const;
  /// The sums of gradients that the backward pass does not hide. The last bucket starts when that pass has ended.
  double exposed(double flight, double backward) const;

  const nn::NetworkDescription& network_;
  int ranks_;
  nn::StepKind kind_;
  const ChooseOptions& options_;
  LayerCosts costs_;
  std::vector<std::vector<int>> sources_;
  std::vector<Candidates> lists_;
  Splits uniform_;
  std::vector<int> list_of_;
  std::vector<bool> has_own_list_;
  AssignmentProblem problem_;
  std::vector<std::vector<LayerPrice>> prices_;  ///< by layer and option
  std::vector<std::vector<nn::Overlap>> overlaps_;
};

}  // namespace aloni::model::detail
