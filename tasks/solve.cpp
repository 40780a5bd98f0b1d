#include <aloni/tasks/solve.hpp>

#include <aloni/core/error.hpp>
#include <aloni/tasks/detail/factorise.hpp>
#include <aloni/tasks/detail/run_on_tiles.hpp>
#include <aloni/tasks/detail/solve_rule.hpp>
#include <aloni/tasks/detail/tile_kernels.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>

namespace aloni::tasks {

TaskGraph solve_graph(Factors kind, Index tiles, Index columns, Index width, Index height) {
  constexpr const char* operation = "aloni::tasks::solve_graph";
  detail::check_rule(operation, tiles, width);
  detail::check_rule(operation, columns, width);
  if (height < 1 || (height > 1 && kind == Factors::lu))
    throw InvalidArgument(operation, "height", std::to_string(height), "at least 1, and 1 for LU");
  const auto last = static_cast<std::int32_t>(tiles), right = static_cast<std::int32_t>(columns);
  const double side = static_cast<double>(width), cube = side * side * side;
  const auto tile_row = [&](std::int32_t i) { return static_cast<std::int32_t>(i / height); };
  TaskGraph graph;
  const auto solve = [&](Kernel kernel, std::int32_t k) {
    for (std::int32_t j = 0; j < right; ++j)
      graph.add({kernel, k, j, k},
                std::array{TileAccess{{0, tile_row(k), k}}, TileAccess{{1, k, j}, Access::read_write}}, cube);
  };
  const auto update = [&](Kernel kernel, std::int32_t i, std::int32_t k) {
    const bool lower = kernel == Kernel::update_lower || kind == Factors::lu;
    const TileId factor =
        lower ? TileId{0, tile_row(i), k} : TileId{0, tile_row(k), i};  // Uᵀ = L lies below the diagonal
    for (std::int32_t j = 0; j < right; ++j)
      graph.add({kernel, i, j, k},
                std::array{TileAccess{factor}, TileAccess{{1, k, j}}, TileAccess{{1, i, j}, Access::read_write}},
                2 * cube);
  };
  for (std::int32_t k = 0; k < last; ++k) {
    solve(Kernel::solve_lower, k);
    for (std::int32_t i = k + 1; i < last; ++i) update(Kernel::update_lower, i, k);
  }
  for (std::int32_t k = last - 1; k >= 0; --k) {
    solve(Kernel::solve_upper, k);
    for (std::int32_t i = 0; i < k; ++i) update(Kernel::update_upper, i, k);
  }
  return graph;
}

namespace {

constexpr const char* solve_operation = "aloni::tasks::solve";

/// Throws InvalidArgument unless the shapes fit to each other and to the kind.
template <class T>
void check_system(Factors kind, const TileMatrix<T>& a, const TileMatrix<T>& b) {
  const views::TileDistribution &da = a.distribution(), &db = b.distribution();
  detail::check_square(solve_operation, da);
  if (db.rows() != da.rows() || db.tile().rows != da.tile().columns || db.ranks() != da.ranks() ||
      b.part() != TilePart::whole)
    throw InvalidArgument(solve_operation, "b", to_string(db),
                          "all tiles of a matrix with the rows and the ranks of a, " + to_string(da) +
                              ", and as many rows in a tile as a tile of a has columns");
  const bool is_lu = kind == Factors::lu;
  if (da.tile().rows % da.tile().columns != 0 || (is_lu && da.tile().rows != da.tile().columns))
    throw InvalidArgument(solve_operation, "a", to_string(da),
                          is_lu ? "square tiles" : "tiles whose rows are a multiple of their columns");
  if (is_lu && a.part() != TilePart::whole)
    throw InvalidArgument(solve_operation, "a", "lower tiles only", "the factors of lu(), with TilePart::whole");
}

/// Runs a task. `read_a(i, j)`: a tile of the factors; `read_b(i, j)`: a finished tile of the right-hand side. Each may
/// be one of another rank.
template <class T>
auto solve_kernels(Factors kind, const TileMatrix<T>& a, TileMatrix<T>& b) {
  return [kind, &a, &b](const Task& task, const auto& read_a, const auto& read_b) {
    const auto [kernel, i, j, k] = task;
    if (kernel == Kernel::provide) return;
    const bool is_lu = kind == Factors::lu;
    const char unit = is_lu ? 'U' : 'N';  // the diagonal of L
    // Block (row, column) of the factors, counted in tile columns in both directions.
    const auto factor = [&](Index row, Index column) {
      const views::TileDistribution& da = a.distribution();
      const auto tile_row = static_cast<std::int32_t>(da.diagonal_row(row));
      return detail::rows_of(read_a(tile_row, static_cast<std::int32_t>(column)),
                             static_cast<int>(da.first_column(row) - da.first_row(tile_row)),
                             static_cast<int>(da.width(row)));
    };
    const auto target = detail::block(b, i, j);
    switch (kernel) {
      case Kernel::solve_lower:
        return detail::trsm('L', 'L', 'N', unit, factor(k, k), target);
      case Kernel::solve_upper:
        return is_lu ? detail::trsm('L', 'U', 'N', 'N', factor(k, k), target)
                     : detail::trsm('L', 'L', 'T', 'N', factor(k, k), target);
      case Kernel::update_lower:
        return detail::subtract_product('N', factor(i, k), 'N', read_b(k, j), target);
      default:
        return is_lu ? detail::subtract_product('N', factor(i, k), 'N', read_b(k, j), target)
                     : detail::subtract_product('T', factor(k, i), 'N', read_b(k, j), target);
    }
  };
}

/// Adds the report of the run that follows.
void append(RankReport& report, const RankReport& next) {
  RunReport& run = report.run;
  if (run.workers.empty()) {
    report = next;
    return;
  }
  run.tasks += next.run.tasks;
  run.steals += next.run.steals;
  run.end = next.run.end;
  for (std::size_t w = 0; w < run.workers.size(); ++w) {
    run.workers[w].tasks += next.run.workers[w].tasks;
    run.workers[w].steals += next.run.workers[w].steals;
    run.workers[w].sleeps += next.run.workers[w].sleeps;
  }
  run.times.insert(run.times.end(), next.run.times.begin(), next.run.times.end());
  std::ranges::stable_sort(run.times, {}, &TaskTime::worker);
  report.tiles.requests += next.tiles.requests;
  report.tiles.forwarded += next.tiles.forwarded;
  report.tiles.payloads += next.tiles.payloads;
  report.tiles.copies += next.tiles.copies;
  report.tiles.handed_on += next.tiles.handed_on;
  report.tiles.freed += next.tiles.freed;
  report.tiles.most_sends = std::max(report.tiles.most_sends, next.tiles.most_sends);
  report.tiles_in_place += next.tiles_in_place;
  report.bytes_in_place += next.bytes_in_place;
}

}  // namespace

template <class T>
RunReport solve(Factors kind, const TileMatrix<T>& a, TileMatrix<T>& b, const RuntimeOptions& options) {
  const views::TileDistribution& d = a.distribution();
  detail::check_one_rank(solve_operation, d);
  check_system(kind, a, b);
  const TaskGraph graph = solve_graph(kind, d.tile_columns(), b.distribution().tile_columns(), d.tile().columns,
                                      d.tile().rows / d.tile().columns);
  const auto read_a = [&](Index i, Index j) { return detail::block(a, i, j); };
  const auto read_b = [&](Index i, Index j) { return detail::block(std::as_const(b), i, j); };
  const auto run_task = solve_kernels(kind, a, b);
  return detail::run_on_tiles(
      solve_operation, graph, [&](const Task& task, int) { run_task(task, read_a, read_b); }, options);
}

template <class T>
RankReport solve(const comm::Communicator& comm, Factors kind, const TileMatrix<T>& a, TileMatrix<T>& b,
                 const RuntimeOptions& options) {
  const views::TileDistribution &da = a.distribution(), &db = b.distribution();
  const auto rule = [&](detail::Substitution half) {
    return detail::SolveRule(kind, half, da.tile_columns(), db.tile_columns(), da.tile().columns,
                             da.tile().rows / da.tile().columns);
  };
  const auto [forward, backward] = comm::collectively(comm, solve_operation, [&] {
    detail::check_ranks(solve_operation, comm, a, options);
    check_system(kind, a, b);
    if (b.rank() != comm.rank())
      throw InvalidArgument(solve_operation, "b.rank()", std::to_string(b.rank()),
                            std::to_string(comm.rank()) + ", the rank of the communicator");
    return std::pair(rule(detail::Substitution::forward), rule(detail::Substitution::backward));
  });
  const auto run_task = solve_kernels(kind, a, b);
  RankReport report;
  for (const detail::SolveRule* const half : {&forward, &backward}) {
    detail::TileRun<T> run(solve_operation, comm, *half, {&a, &b});
    const auto read_a = [&](std::int32_t i, std::int32_t j) { return run.block({0, i, j}); };
    const auto read_b = [&](std::int32_t i, std::int32_t j) { return run.block({1, i, j}); };
    append(report, run.start([&](const Task& task, int) { run_task(task, read_a, read_b); }, options));
  }
  return report;
}

template RunReport solve(Factors, const TileMatrix<float>&, TileMatrix<float>&, const RuntimeOptions&);
template RunReport solve(Factors, const TileMatrix<double>&, TileMatrix<double>&, const RuntimeOptions&);
template RankReport solve(const comm::Communicator&, Factors, const TileMatrix<float>&, TileMatrix<float>&,
                          const RuntimeOptions&);
template RankReport solve(const comm::Communicator&, Factors, const TileMatrix<double>&, TileMatrix<double>&,
                          const RuntimeOptions&);

}  // namespace aloni::tasks
