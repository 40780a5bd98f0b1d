#include <aloni/tasks/detail/run_on_tiles.hpp>

#include <aloni/core/blas_library.hpp>
#include <aloni/core/error.hpp>
#include <aloni/tasks/detail/tile_kernels.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace aloni::tasks::detail {

namespace {

template <class Tasks>
RunReport run(const char* operation, const Tasks& tasks, Runtime::Body body, RuntimeOptions options) {
  check_options(operation, options);
  return Runtime(tasks, std::move(body), with_one_blas_thread(std::move(options))).run();
}

}  // namespace

void check_rule(const char* operation, Index tiles, Index tile) {
  if (tiles < 0 || tiles > max_task_coordinate + 1)
    throw InvalidArgument(operation, "tiles", std::to_string(tiles),
                          "from 0 to " + std::to_string(max_task_coordinate + 1) + "; use larger tiles");
  if (tile < 1) throw InvalidArgument(operation, "tile", std::to_string(tile), "at least 1 row");
}

void check_square(const char* operation, const views::TileDistribution& a) {
  if (a.rows() != a.columns())
    throw InvalidArgument(operation, "a", to_string(a), "a matrix with as many rows as columns");
}

void check_one_rank(const char* operation, const views::TileDistribution& a) {
  if (a.ranks() > 1) throw Unsupported(operation, "a", to_string(a), "a matrix on one rank");
}

void check_options(const char* operation, const RuntimeOptions& options) {
  check_kernels(operation);
  if (options.owns || options.worker_scope)
    throw InvalidArgument(operation, "options", options.owns ? "owns" : "worker_scope", "neither of them set");
}

RuntimeOptions with_one_blas_thread(RuntimeOptions options) {
  options.worker_scope = [](int) { return std::make_shared<OneBlasThread>(); };
  return options;
}

void add_task(TaskGraph& graph, const TaskRule& rule, const Task& task) {
  std::vector<TileAccess> accesses;
  rule.append_accesses(task, accesses);
  graph.add(task, accesses, rule.cost(task));
}

RunReport run_on_tiles(const char* operation, const TaskRule& rule, Runtime::Body body, RuntimeOptions options) {
  return run(operation, rule, std::move(body), std::move(options));
}

RunReport run_on_tiles(const char* operation, const TaskGraph& graph, Runtime::Body body, RuntimeOptions options) {
  return run(operation, graph, std::move(body), std::move(options));
}

}  // namespace aloni::tasks::detail
