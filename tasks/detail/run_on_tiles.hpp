#pragma once
// What the factorisations share: checks of their arguments, and a run with one thread of BLAS per worker.
#include <aloni/tasks/runtime.hpp>

namespace aloni::tasks::detail {

/// Throws InvalidArgument unless 0 ≤ tiles ≤ max_task_coordinate + 1 and tile ≥ 1.
void check_rule(const char* operation, Index tiles, Index tile);
/// Throws InvalidArgument unless the matrix is square.
void check_square(const char* operation, const views::TileDistribution& a);
/// Throws Unsupported if the matrix lies on several ranks.
void check_one_rank(const char* operation, const views::TileDistribution& a);
/// Throws InvalidArgument if the caller has set options that belong to the factorisation, Unsupported without kernels.
void check_options(const char* operation, const RuntimeOptions& options);

/// Workers call BLAS on one thread each.
RuntimeOptions with_one_blas_thread(RuntimeOptions options);

/// Appends a task with its accesses and its cost by the rule.
void add_task(TaskGraph& graph, const TaskRule& rule, const Task& task);

/// Throws as check_options().
RunReport run_on_tiles(const char* operation, const TaskRule& rule, Runtime::Body body, RuntimeOptions options);
RunReport run_on_tiles(const char* operation, const TaskGraph& graph, Runtime::Body body, RuntimeOptions options);

}  // namespace aloni::tasks::detail
