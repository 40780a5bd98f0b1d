#pragma once
// Chooses one option for each layer of a network so that the sum of all seconds is least: those of the options, and
// those of the edges between layers, which depend on the options at both ends. The sum of bytes may have a limit.
// This is the search for a parallel execution strategy (spatial-parallel-cnn, section V.C), without its meaning.
//
//   AssignmentProblem problem;
//   problem.layers = {{{.seconds = 3}, {.seconds = 1}}, {{.seconds = 1}, {.seconds = 2}}};   // two layers, two options
//   problem.costs = {{.seconds = {0, 4, 4, 0}}};                                             // row: option of `from`
//   problem.edges = {{.from = 0, .to = 1, .costs = 0}};
//   const Assignment best = assign(problem);
//   best.options;                                       // {1, 1}
//   best.seconds, best.exact;                           // 3, true
//
// Method. Layers are eliminated one after the other: the best option of a layer, as a table over the options of its
// neighbours, replaces it (Bertele and Brioschi, Nonserial dynamic programming, 1972). Next comes the layer with the
// smallest table. On a chain this is the shortest path of the paper, and on series-parallel graphs (ResNet, DenseNet,
// U-Net) a table has at most two neighbours. The result is exact.
// Where a table would be too large, the paper's way replaces it. The longest path is optimised and fixed, then the
// longest path through the other layers, and so on. Then each path is optimised again with the others fixed, as long as
// this helps.
//
// The limit of bytes. A price per byte is added to the seconds (a Lagrange multiplier; Everett 1963). The price whose
// choices lie on both sides of the limit gives a choice within it, and a lower bound of the seconds. A branch and bound
// with the tables of the elimination then closes the gap between both, or stops after a number of steps.
//
// Pure.
#include <cstddef>
#include <limits>
#include <vector>

namespace aloni::model {

struct AssignmentOption {
  double seconds = 0;
  double bytes = 0;
};

/// The costs of an edge by the options of its ends: element [option of `from` · options of `to` + option of `to`].
struct AssignmentCosts {
  std::vector<double> seconds = {};
  std::vector<double> bytes = {};  ///< empty: none
};

struct AssignmentEdge {
  int from = 0, to = 0;  ///< layers, from < to; several edges may connect the same layers
  int costs = 0;         ///< position in AssignmentProblem::costs
};

struct AssignmentProblem {
  std::vector<std::vector<AssignmentOption>> layers =
      {};  ///< the options of each layer; every edge leads to a later one
  std::vector<AssignmentEdge> edges = {};
  std::vector<AssignmentCosts> costs = {};  ///< edges with equal costs share one element
  double most_bytes = std::numeric_limits<double>::infinity();
};

struct AssignmentLimits {
  /// Largest number of elements that one elimination may visit: the options of a layer times those of its neighbours.
  std::size_t largest_table = std::size_t{1} << 22;
  /// Steps of the branch and bound that a limit of bytes needs.
  int most_steps = 20'000;
};

struct Assignment {
  /// Whether a choice within the limit was found. If not, the other members describe the choice with the least bytes.
  bool feasible = true;
  std::vector<int> options = {};  ///< of each layer
  double seconds = 0, bytes = 0;  ///< sums
  /// No choice has fewer seconds (if feasible), or fewer bytes (if not), but for rounding errors.
  bool exact = true;
  double least_seconds = 0;  ///< lower bound within the limit; equal to `seconds` if exact. 0: not known
};

/// Throws InvalidArgument for a layer without options, and for an edge that does not lead from an earlier to a later
/// layer. Also for costs whose number does not fit the options, and for seconds or bytes that are not finite.
Assignment assign(const AssignmentProblem& problem, const AssignmentLimits& limits = {});

/// The sums of a choice, for callers that compare it with others. @pre one valid option per layer
AssignmentOption price(const AssignmentProblem& problem, const std::vector<int>& options);

}  // namespace aloni::model
