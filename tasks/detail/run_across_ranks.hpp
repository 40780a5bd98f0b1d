#pragma once
// A run of the tasks of a factorisation on the tiles of all ranks.
#include <aloni/core/blas_library.hpp>
#include <aloni/core/error.hpp>
#include <aloni/tasks/detail/rank_run.hpp>
#include <aloni/tasks/detail/run_on_tiles.hpp>
#include <aloni/tasks/detail/tile_kernels.hpp>
#include <aloni/tasks/rank_report.hpp>
#include <aloni/tasks/tile_matrix.hpp>

#include <memory>
#include <span>
#include <string>
#include <utility>

namespace aloni::tasks::detail {

/// Throws InvalidArgument unless the matrix is square and lies on the ranks of `comm`, or if the caller has set options
/// that belong to the factorisation; Unsupported without kernels.
template <class T>
void check_ranks(const char* operation, const comm::Communicator& comm, const TileMatrix<T>& a,
                 const RuntimeOptions& options) {
  check_kernels(operation);
  if (options.owns || options.worker_scope)
    throw InvalidArgument(operation, "options", options.owns ? "owns" : "worker_scope", "neither of them set");
  const views::TileDistribution& d = a.distribution();
  if (d.rows() != d.columns())
    throw InvalidArgument(operation, "a", to_string(d), "a matrix with as many rows as columns");
  if (d.ranks() != comm.size())
    throw InvalidArgument(operation, "a", to_string(d), "a matrix on " + std::to_string(comm.size()) + " ranks");
  if (a.rank() != comm.rank()) {
    throw InvalidArgument(operation, "a.rank()", std::to_string(a.rank()),
                          std::to_string(comm.rank()) + ", the rank of the communicator");
  }
}

/// `run_task(task, read)`, where read(i, j) gives a finished tile. Collective. @pre check_ranks() on all ranks
template <class T, class F>
RankReport run_across_ranks(const char* operation, const comm::Communicator& comm, const TaskRule& rule,
                            TileMatrix<T>& a, RuntimeOptions options, const F& run_task) {
  const views::TileDistribution& d = a.distribution();
  const auto bytes = [&](const TileId& t) {
    return static_cast<std::size_t>(d.height(t.row) * d.width(t.column)) * sizeof(T);
  };
  RankRun run(
      operation, comm, rule, [&](const TileId& t) { return d.owner(t.tile()); }, bytes,
      [&](const TileId& t) { return std::as_bytes(std::span(a.tile(t.tile()), bytes(t) / sizeof(T))); });
  const auto read = [&](std::int32_t i, std::int32_t j) -> TileBlock<const T> {
    if (a.has({i, j})) return block(std::as_const(a), i, j);
    const int rows = static_cast<int>(d.height(i));
    return {reinterpret_cast<const T*>(run.copy({0, i, j})), rows, static_cast<int>(d.width(j)), rows};
  };
  options.worker_scope = [](int) { return std::make_shared<OneBlasThread>(); };
  RankReport report;
  report.run = run.start([&](const Task& task, int) { run_task(task, read); }, std::move(options));
  report.tiles = run.counts();
  return report;
}

}  // namespace aloni::tasks::detail
