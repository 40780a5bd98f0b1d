#pragma once
// The cells that the nodes of one rank have written so far, as verify() knows them while it goes through the list.
#include <aloni/nn/plan/detail/reduction_members.hpp>
#include <aloni/nn/plan/detail/verify_fault.hpp>

#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace aloni::nn::detail {

/// Cells that one node wrote last.
struct WrittenCells {
  static constexpr int initial = -1;  ///< a writer that is no node: the value was there before the step

  views::Box box;
  int writer;
  BufferId through;                ///< an alias with other indices, or the root
  std::vector<views::Box> unread;  ///< parts that no node has read so far
  /// The node that brought the value back from host memory; `initial`: it has been there since its writer.
  int returned = initial;
};

/// Whether a node computes the summand of a sum over ranks.
using Makes = std::function<bool(const PlanNode&)>;

/// For each cell the node that wrote it last. The plan outlives this object.
struct History {
  explicit History(const StepPlan& plan) : plan_(plan), cells_(plan.buffers.size()) {}

  const PlanNode& node(int n) const { return plan_.nodes[static_cast<std::size_t>(n)]; }
  const PlanBuffer& buffer(BufferId b) const { return plan_.buffers[static_cast<std::size_t>(b)]; }
  /// The buffer itself if its indices differ from those of its root; otherwise the root.
  BufferId through(BufferId b) const { return buffer(b).other_indices ? b : plan_.root(b); }
  const std::vector<WrittenCells>& cells_of(BufferId b) const {
    return cells_[static_cast<std::size_t>(plan_.root(b))];
  }
  std::vector<int> all_ranks() const { return members_of_gradients(1, plan_.ranks, plan_.rank); }
  /// The nodes that wrote the cells of this region last.
  std::vector<int> writers_of(const PlanRegion& r) const;
  /// Throws Found unless `b` holds the values of a node that `makes` them, summed once over exactly these ranks. `n`:
  /// the node that uses it; null: the end of the step.
  void check_summed(const PlanNode* n, BufferId b, const std::vector<int>& members, const Makes& makes) const;

  const StepPlan& plan_;
  std::vector<std::vector<WrittenCells>> cells_;  ///< by root buffer
  /// By sum over ranks and root buffer: the nodes whose values it adds.
  std::map<std::pair<int, BufferId>, std::vector<int>> addends_ = {};
};

}  // namespace aloni::nn::detail
