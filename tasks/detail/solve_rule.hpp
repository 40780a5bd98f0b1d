#pragma once
// SolveRule: the tasks of one half of solve() as formulas, for runs on several ranks (rank_run.hpp). The halves are the
// forward substitution with L and the backward substitution with Lᵀ or U.
//
// Each half is a run of its own. Together they would overwrite tiles of the forward result that other ranks still read.
// A barrier between them costs little: the backward substitution begins with the last tile of the forward one.
//
// The tiles of the factors have their contents before the run. A task without work (Kernel::provide) stands for each.
// So they travel as all tiles do: other ranks ask for them.
#include <aloni/tasks/solve.hpp>
#include <aloni/tasks/task_rule.hpp>

#include <vector>

namespace aloni::tasks::detail {

enum class Substitution { forward, backward };

/// Matrix 0: the tiles of the factors that the half reads, each with one task. In their order the serial algorithm can
/// be done with one tile after the other. Matrix 1: the right-hand side.
class SolveRule final : public TaskRule {
 public:
  /// Sizes as for solve_graph(). @pre as for solve_graph(). Throws InvalidArgument.
  SolveRule(Factors kind, Substitution half, Index tiles, Index columns, Index width, Index height = 1);

  std::vector<TileId> tiles() const override;
  std::int32_t writes(const TileId& tile) const override;
  Task writer_of(const TileVersion& version) const override;
  TileVersion output(const Task& task) const override;
  void append_accesses(const Task& task, std::vector<TileAccess>& accesses) const override;
  std::int32_t count_predecessors(const Task& task) const override;
  void append_successors(const Task& task, std::vector<Task>& successors) const override;
  void append_roots(std::vector<Task>& roots) const override;
  bool is_bottom_up() const override { return !is_forward(); }
  double cost(const Task& task) const override;
  double critical_path(const Task& task) const override;

 private:
  bool is_forward() const { return half_ == Substitution::forward; }
  /// Whether the backward substitution reads the lower triangle, as Lᵀ.
  bool reads_transposed() const { return !is_forward() && kind_ == Factors::cholesky; }
  std::int32_t first_step() const { return is_forward() ? 0 : tiles_ - 1; }
  std::int32_t next(std::int32_t k) const { return is_forward() ? k + 1 : k - 1; }
  Task task_on(std::int32_t i, std::int32_t j, std::int32_t k) const;
  TileId factor(std::int32_t i, std::int32_t k) const;
  std::vector<Task> readers(const TileId& factor, std::int32_t j) const;
  std::vector<TileId> factors() const;
  double units(const Task& task) const;

  Factors kind_;
  Substitution half_;
  std::int32_t tiles_, columns_, height_;
  double cube_;  ///< of the rows of a tile of the right-hand side
};

}  // namespace aloni::tasks::detail
