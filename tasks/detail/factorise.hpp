#pragma once
// Runs a factorisation, on one rank or on all ranks of a communicator. Cholesky and LU differ in their rule and in the
// kernel of each task only.
#include <aloni/core/error.hpp>
#include <aloni/tasks/detail/limited_run.hpp>
#include <aloni/tasks/detail/rank_arguments.hpp>
#include <aloni/tasks/detail/rank_run.hpp>
#include <aloni/tasks/detail/run_on_tiles.hpp>
#include <aloni/tasks/detail/tile_kernels.hpp>
#include <aloni/tasks/detail/tile_run.hpp>
#include <aloni/tasks/rank_report.hpp>
#include <aloni/tasks/tile_matrix.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace aloni::tasks::detail {

/// `needed`: whole if the tasks write all tiles. Throws InvalidArgument.
template <class Matrix>
void check_part(const char* operation, const Matrix& a, TilePart needed) {
  if (needed == TilePart::whole && a.part() != needed)
    throw InvalidArgument(operation, "a", "lower tiles only", "TilePart::whole");
}

/// `run_task(task, read, write)`, where read(i, j) gives a finished tile, and write(i, j) the tile that the task
/// writes. Not collective.
template <class Rule, class T, class F>
RunReport factorise(const char* operation, TileMatrix<T>& a, TilePart needed, const RuntimeOptions& options,
                    const F& run_task) {
  const views::TileDistribution& d = a.distribution();
  check_square(operation, d);
  check_one_rank(operation, d);
  check_part(operation, a, needed);
  const auto read = [&](Index i, Index j) { return block(std::as_const(a), i, j); };
  const auto write = [&](Index i, Index j) { return block(a, i, j); };
  const Rule rule(d);
  return run_on_tiles(
      operation, rule, [&](const Task& task, int) { run_task(task, read, write); }, options);
}

/// A tile of a running task, in a run with a limit of memory: run.data(tile) has the elements.
template <class T, class Run>
TileBlock<T> slot_block(const views::TileDistribution& d, const Run& run, const TileId& t) {
  const int rows = static_cast<int>(d.height(t.row));
  return {reinterpret_cast<T*>(run.data(t)), rows, static_cast<int>(d.width(t.column)), rows};
}

/// The body of a run with a limit of memory. All arguments outlive it.
template <class T, class Run, class F>
Runtime::Body on_slots(const views::TileDistribution& d, const Run& run, const F& run_task) {
  return [&d, &run, &run_task](const Task& task, int) {
    const auto write = [&](std::int32_t i, std::int32_t j) { return slot_block<T>(d, run, {0, i, j}); };
    const auto read = [&](std::int32_t i, std::int32_t j) -> TileBlock<const T> { return write(i, j); };
    run_task(task, read, write);
  };
}

/// The same for tiles in a store, within a limit of memory. Not collective.
template <class Rule, class T, class F>
LimitedReport factorise(const char* operation, StoredMatrix<T>& a, TilePart needed, const MemoryLimit& limit,
                        const RuntimeOptions& options, const F& run_task) {
  const views::TileDistribution& d = a.distribution();
  check_square(operation, d);
  check_one_rank(operation, d);
  check_part(operation, a, needed);
  check_options(operation, options);
  const Rule rule(d);
  const auto bytes = [&](const TileId& t) { return d.elements(t.tile()) * static_cast<Index>(sizeof(T)); };
  HostSlots slots(a.store());
  LimitedRun run(operation, rule, bytes, slots, limit, options.workers);
  run.prepare(on_slots<T>(d, run, run_task), with_one_blas_thread(options));
  return run.run();
}

/// The same on all ranks of `comm`. Collective.
template <class Rule, class T, class F>
RankReport factorise(const char* operation, const comm::Communicator& comm, TileMatrix<T>& a, TilePart needed,
                     const RuntimeOptions& options, const F& run_task) {
  const views::TileDistribution& d = a.distribution();
  const Rule rule = comm::collectively(comm, operation, [&] {
    check_ranks(operation, comm, a, options);
    check_part(operation, a, needed);
    return Rule(d);
  });
  check_same_matrix(operation, comm, a);
  TileRun<T> run(operation, comm, rule, {&a});
  const auto read = [&](std::int32_t i, std::int32_t j) { return run.block({0, i, j}); };
  const auto write = [&](std::int32_t i, std::int32_t j) { return block(a, i, j); };
  return run.start([&](const Task& task, int) { run_task(task, read, write); }, options);
}

/// The same for tiles in a store, within a limit of memory. Collective.
template <class Rule, class T, class F>
LimitedReport factorise(const char* operation, const comm::Communicator& comm, StoredMatrix<T>& a, TilePart needed,
                        MemoryLimit limit, const RuntimeOptions& options, const F& run_task) {
  const views::TileDistribution& d = a.distribution();
  const Rule rule = comm::collectively(comm, operation, [&] {
    check_ranks(operation, comm, a, options);
    check_part(operation, a, needed);
    return Rule(d);
  });
  check_same_matrix(operation, comm, a);
  const auto owner = [&](const TileId& t) { return d.owner(t.tile()); };
  const auto bytes = [&](const TileId& t) { return static_cast<std::size_t>(d.elements(t.tile())) * sizeof(T); };
  limit.block = agreed_block(
      operation, comm, rule, [&](const TileId& t) { return owner(t) == comm.rank(); },
      [&](const TileId& t) { return static_cast<Index>(bytes(t)); }, limit, options.workers);
  RankRun run(operation, comm, rule, owner, bytes, a.store(), limit, options.workers);
  run.start(on_slots<T>(d, run, run_task), with_one_blas_thread(options));
  LimitedReport report = run.limited_report();
  report.requests = run.counts();
  return report;
}

}  // namespace aloni::tasks::detail
