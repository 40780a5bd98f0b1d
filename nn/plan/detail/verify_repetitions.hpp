#pragma once
// Checks the nodes that repeat a forward node (PlanNode::repeats): they read the values that the forward node read, so
// they compute the same bits.
#include <aloni/nn/plan/detail/verify_history.hpp>

#include <map>
#include <utility>
#include <vector>

namespace aloni::nn::detail {

class Repetitions {
 public:
  explicit Repetitions(const StepPlan& plan);

  /// Call it for each node in the order of the list. `history`: before the node. Throws Found.
  void check(const History& history, int n);

 private:
  /// A part of a region that a node reads, and the forward node or other node that wrote it.
  struct Source {
    views::Box box;
    int writer;
  };
  std::vector<Source> sources_of(const History& history, const PlanRegion& r) const;

  const StepPlan& plan_;
  /// By repeated node: its regions, with the writers of their cells.
  std::map<int, std::vector<std::pair<PlanRegion, std::vector<Source>>>> read_ = {};
};

}  // namespace aloni::nn::detail
