#pragma once
// Elimination of the layers of an assignment, one after the other: dynamic programming on a tree decomposition. Private
// to assignment.cpp, which says when it is used.
//
//   Elimination elimination(problem, all_layers);
//   if (elimination.find_order(1 << 22)) {
//     elimination.run({.seconds = 1}, options);           // the least sum
//     elimination.choose(options);                        // the options that have it
//   }
//
// The table of a layer has an entry for each combination of options of its neighbours at that time. An entry is the
// least sum of all terms that contain the layer, or a layer that was eliminated before it. Source: Bertele and
// Brioschi, Nonserial dynamic programming, 1972.
#include <aloni/model/assignment.hpp>

#include <cstddef>
#include <vector>

namespace aloni::model::detail {

/// What a sum counts: seconds · Weights::seconds + bytes · Weights::bytes.
struct Weights {
  double seconds = 1, bytes = 0;

  double operator()(double s, double b) const { return seconds * s + bytes * b; }
};

/// The problem as a function of the options of `members` only: the options of all other layers are given.
class Elimination {
 public:
  using Costs = std::vector<double>;

  /// `problem` outlives this object and its copies. @pre `members` are different layers
  Elimination(const AssignmentProblem& problem, std::vector<int> members);

  /// Each time takes the layer with the smallest table. Returns whether no table has more than `largest` elements.
  bool find_order(std::size_t largest);
  /// The members in the order of their elimination.
  const std::vector<int>& order() const { return order_; }

  /// Computes all tables. `options`: of layers that are no members; below 0: their edges do not count.
  /// Returns the least sum of all terms that contain a member. @pre find_order()
  double run(const Weights& weights, const std::vector<int>& options);
  /// Writes the options with the least sum to those of the members. @pre run()
  void choose(std::vector<int>& options) const;
  /// For each option of a layer: the least sum with it, minus the least sum without it. The options of all layers that
  /// are eliminated later are given. All ≥ 0, but for rounding errors. @pre run()
  void regrets(int layer, const std::vector<int>& options, Costs& regrets) const;

 private:
  /// A function of the options of some layers; the option of the last layer of `scope` varies fastest.
  struct Factor {
    std::vector<int> scope;
    Costs table;
  };

  int count(int layer) const { return static_cast<int>(problem_.layers[static_cast<std::size_t>(layer)].size()); }
  Costs own_costs(int layer, const Weights& weights, const std::vector<int>& options) const;
  void add(int layer, Factor factor);
  std::vector<std::size_t> strides_in(const Factor& factor, const std::vector<int>& layers) const;
  Costs eliminate(int layer) const;
  void costs_of(int layer, const std::vector<int>& options, Costs& costs) const;

  const AssignmentProblem& problem_;
  std::vector<int> members_;
  std::vector<bool> is_member_;
  std::vector<std::vector<int>> edges_of_;    ///< of each layer
  std::vector<int> order_;                    ///< of the elimination
  std::vector<std::vector<int>> neighbours_;  ///< of each layer when it is eliminated, ascending; all come later
  std::vector<std::vector<Factor>> factors_;  ///< of each layer: with the layer first in their scopes
  std::vector<Costs> results_;                ///< of each layer: its table
};

}  // namespace aloni::model::detail
