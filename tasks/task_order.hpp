#pragma once
// Orders in which the tasks of a rule get their tiles when memory is short (tasks/tile_cache.hpp). The order decides
// how much must be read again.
//
//   const BlockOrder order = choose_order(rule, 24, {.most_tasks = 16});
//   order.block;           // {4, 4}: the tasks on blocks of 4 × 4 tiles
//   order.traffic;         // tiles that a run will move
//
// A block order divides the matrix into blocks of h × w tiles: panels of w tile columns, from the left to the right,
// and in each panel blocks of h tile rows, from the top down. All tasks that write tiles of a block come together, step
// by step. So the block stays in memory, and finished tiles to its left stream by. Special cases:
//
//   all × all   right-looking: each step updates the whole rest of the matrix. It has the most parallel tasks, and
//               moves the whole rest in each step.
//   all × 1     left-looking by columns. For Cholesky of n tile columns it needs column j and the rows below it of the
//               columns before: j (n - j) tiles, at most n² / 4, half of the matrix. So with half of the matrix and one
//               column in memory each tile is read once and written once.
//   h × h       with h² + 2 h slots the least traffic for small memories: n³ / (3 h) reads, where Béreux counts
//               n³ / (3 √S) with S slots. The lower bound is n³ / (3 √2 √S), which needs blocks of other shapes.
//
// choose_order() simulates some block shapes and takes the one with the least traffic.
//
// Sources: Béreux, "Out-of-core implementations of Cholesky factorization: loop-based versus recursive algorithms",
// SIAM Journal on Matrix Analysis and Applications 30 (2009). Lower bound: Beaumont, Eyraud-Dubois, Langou and Vérité,
// "I/O-optimal algorithms for symmetric linear algebra kernels", SPAA 2022.
#include <aloni/tasks/task_rule.hpp>
#include <aloni/tasks/tile_cache.hpp>
#include <aloni/views/tile_distribution.hpp>

#include <functional>
#include <vector>

namespace aloni::tasks {

/// The tasks of a block order: no task comes before one for which it waits. This holds for rules in which step k reads
/// finished tiles of tile column k or tile row k, as Cholesky, LU and substitutions do. Blocks go from the top down, or
/// from the bottom up (TaskRule::is_bottom_up). Tasks without work (Kernel::provide) come first.
/// `owns`: which tiles; empty: all. The tasks of a rank are in the order that they have among all tasks.
/// @pre block.rows, block.columns ≥ 1. Throws InvalidArgument.
std::vector<Task> block_order(const TaskRule& rule, const views::TileShape& block,
                              const std::function<bool(const TileId&)>& owns = {});

/// An order of tasks, with their tiles.
struct BlockOrder {
  views::TileShape block{1};  ///< in tiles
  std::vector<Task> tasks = {};
  std::vector<TileId> tiles = {};  ///< by their numbers in `uses`
  TileOrder uses = {};
  Index traffic = 0;  ///< tiles loaded and written back, simulated
};

/// The order with this block, without `traffic`. Tasks without work need no tiles in memory.
BlockOrder make_order(const TaskRule& rule, const views::TileShape& block,
                      const std::function<bool(const TileId&)>& owns = {});

/// The order with the least simulated traffic. Its block is one of about thirty shapes that the slots suggest.
/// @pre as for TileCache. Throws InvalidArgument.
BlockOrder choose_order(const TaskRule& rule, Index slots, const CacheOptions& options,
                        const std::function<bool(const TileId&)>& owns = {});

}  // namespace aloni::tasks
