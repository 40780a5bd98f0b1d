#include <aloni/tasks/solve.hpp>

#include <aloni/core/error.hpp>
#include <aloni/tasks/detail/factorise.hpp>
#include <aloni/tasks/detail/instantiate.hpp>
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
void check_system(Factors kind, const OwnedTiles& a, const OwnedTiles& b) {
  const views::TileDistribution &da = a.distribution(), &db = b.distribution();
  detail::check_square(solve_operation, da);
  if (db.rows() != da.rows() || db.tile().rows != da.tile().columns || db.ranks() != da.ranks() ||
      b.part() != TilePart::whole)
    throw InvalidArgument(solve_operation, "b", to_string(db),
                          "all tiles of a matrix with the rows and the ranks of a, " + to_string(da) +
                              "; as many rows in a tile as columns in a tile of a");
  const bool is_lu = kind == Factors::lu;
  if (da.tile().rows % da.tile().columns != 0 || (is_lu && da.tile().rows != da.tile().columns))
    throw InvalidArgument(solve_operation, "a", to_string(da),
                          is_lu ? "square tiles" : "tiles whose rows are a multiple of their columns");
  if (is_lu && a.part() != TilePart::whole)
    throw InvalidArgument(solve_operation, "a", "lower tiles only", "the factors of lu(), with TilePart::whole");
}

/// Throws as detail::check_ranks() and check_system().
template <class Matrix>
void check_ranks_of_system(const comm::Communicator& comm, Factors kind, const Matrix& a, const Matrix& b,
                           const RuntimeOptions& options) {
  detail::check_ranks(solve_operation, comm, a, options);
  check_system(kind, a, b);
  if (b.rank() != comm.rank())
    throw InvalidArgument(solve_operation, "b.rank()", std::to_string(b.rank()),
                          std::to_string(comm.rank()) + ", the rank of the communicator");
}

/// Throws InvalidArgument on all ranks unless all of them solve the same system. Collective.
template <class Matrix>
void check_same_system(const comm::Communicator& comm, Factors kind, const Matrix& a, const Matrix& b) {
  comm::ReplicatedValues values;
  values.add("kind", kind == Factors::lu ? "LU" : "Cholesky");
  detail::add_matrix(values, "a", a);
  detail::add_matrix(values, "b", b);
  comm::check_equal(comm, solve_operation, values);
}

template <class T>
void check_stores(const StoredMatrix<T>& a, const StoredMatrix<T>& b) {
  if (&a.store() == &b.store())
    throw InvalidArgument(solve_operation, "b.store()", "that of a", "a store of its own for each matrix");
}

/// Forward, then backward. Throws InvalidArgument.
std::array<detail::SolveRule, 2> substitutions(Factors kind, const views::TileDistribution& da,
                                               const views::TileDistribution& db) {
  const auto half = [&](detail::Substitution half) {
    return detail::SolveRule(kind, half, da.tile_columns(), db.tile_columns(), da.tile().columns,
                             da.tile().rows / da.tile().columns);
  };
  return {half(detail::Substitution::forward), half(detail::Substitution::backward)};
}

/// The stores of the factors, matrix 0, and of the right-hand side, matrix 1.
class SystemStore final : public TileStore {
 public:
  SystemStore(TileStore& a, TileStore& b) : a_(a), b_(b) {}

  void write(const TileId& t, std::span<const std::byte> bytes) override {
    store(t).write({0, t.row, t.column}, bytes);
  }
  void read(const TileId& t, std::span<std::byte> bytes) override { store(t).read({0, t.row, t.column}, bytes); }

 private:
  TileStore& store(const TileId& t) { return t.matrix == 0 ? a_ : b_; }

  TileStore &a_, &b_;
};

template <class T>
Index tile_bytes(const views::TileDistribution& da, const views::TileDistribution& db, const TileId& t) {
  return (t.matrix == 0 ? da : db).elements(t.tile()) * static_cast<Index>(sizeof(T));
}

/// The body of a run with a limit of memory, as detail::on_slots(). All arguments outlive it.
template <class T, class Run, class F>
Runtime::Body solve_on_slots(const views::TileDistribution& da, const views::TileDistribution& db, const Run& run,
                             const F& run_task) {
  return [&da, &db, &run, &run_task](const Task& task, int) {
    const auto block = [&run](std::int32_t matrix, const views::TileDistribution& d) {
      return [&run, matrix, &d](std::int32_t i, std::int32_t j) {
        return detail::slot_block<T>(d, run, {matrix, i, j});
      };
    };
    run_task(task, block(0, da), block(1, db), block(1, db));
  };
}

/// Runs a task. `read_a(i, j)`: a tile of the factors; `read_b(i, j)`: a finished tile of the right-hand side. Each may
/// be one of another rank. `write_b(i, j)`: the tile that the task writes. `da` outlives the result.
auto solve_kernels(Factors kind, const views::TileDistribution& da) {
  return [kind, &da](const Task& task, const auto& read_a, const auto& read_b, const auto& write_b) {
    const auto [kernel, i, j, k] = task;
    if (kernel == Kernel::provide) return;
    const bool is_lu = kind == Factors::lu;
    const char unit = is_lu ? 'U' : 'N';  // the diagonal of L
    // Block (row, column) of the factors, counted in tile columns in both directions.
    const auto factor = [&](Index row, Index column) {
      const auto tile_row = static_cast<std::int32_t>(da.diagonal_row(row));
      return detail::rows_of(read_a(tile_row, static_cast<std::int32_t>(column)),
                             static_cast<int>(da.first_column(row) - da.first_row(tile_row)),
                             static_cast<int>(da.width(row)));
    };
    const auto target = write_b(i, j);
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

// append(): adds the report of the run that follows.

void append(RunReport& run, const RunReport& next) {
  if (run.workers.empty()) {
    run = next;
    return;
  }
  run.tasks += next.tasks;
  run.steals += next.steals;
  run.end = next.end;
  for (std::size_t w = 0; w < run.workers.size(); ++w) {
    run.workers[w].tasks += next.workers[w].tasks;
    run.workers[w].steals += next.workers[w].steals;
    run.workers[w].sleeps += next.workers[w].sleeps;
  }
  run.times.insert(run.times.end(), next.times.begin(), next.times.end());
  std::ranges::stable_sort(run.times, {}, &TaskTime::worker);
}

void append(TileRequests::Counts& counts, const TileRequests::Counts& next) {
  counts.requests += next.requests;
  counts.forwarded += next.forwarded;
  counts.payloads += next.payloads;
  counts.copies += next.copies;
  counts.handed_on += next.handed_on;
  counts.freed += next.freed;
  counts.most_sends = std::max(counts.most_sends, next.most_sends);
}

void append(LimitedReport& report, const LimitedReport& next) {
  append(report.run, next.run);
  append(report.requests, next.requests);
  TileCache::Counts& tiles = report.swaps.tiles;
  tiles.loads += next.swaps.tiles.loads;
  tiles.write_backs += next.swaps.tiles.write_backs;
  tiles.fetches += next.swaps.tiles.fetches;
  tiles.hits += next.swaps.tiles.hits;
  tiles.evictions += next.swaps.tiles.evictions;
  tiles.prefetches += next.swaps.tiles.prefetches;
  report.swaps.bytes_in += next.swaps.bytes_in;
  report.swaps.bytes_out += next.swaps.bytes_out;
  report.compulsory_bytes += next.compulsory_bytes;
  report.slots = next.slots;
  report.block = next.block;
}

void append(RankReport& report, const RankReport& next) {
  append(report.run, next.run);
  append(report.tiles, next.tiles);
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
  const auto write_b = [&](Index i, Index j) { return detail::block(b, i, j); };
  const auto run_task = solve_kernels(kind, d);
  return detail::run_on_tiles(
      solve_operation, graph, [&](const Task& task, int) { run_task(task, read_a, read_b, write_b); }, options);
}

template <class T>
RankReport solve(const comm::Communicator& comm, Factors kind, const TileMatrix<T>& a, TileMatrix<T>& b,
                 const RuntimeOptions& options) {
  const std::array<detail::SolveRule, 2> halves = comm::collectively(comm, solve_operation, [&] {
    check_ranks_of_system(comm, kind, a, b, options);
    return substitutions(kind, a.distribution(), b.distribution());
  });
  check_same_system(comm, kind, a, b);
  const auto run_task = solve_kernels(kind, a.distribution());
  RankReport report;
  for (const detail::SolveRule& half : halves) {
    detail::TileRun<T> run(solve_operation, comm, half, {&a, &b});
    const auto read_a = [&](std::int32_t i, std::int32_t j) { return run.block({0, i, j}); };
    const auto read_b = [&](std::int32_t i, std::int32_t j) { return run.block({1, i, j}); };
    const auto write_b = [&](std::int32_t i, std::int32_t j) { return detail::block(b, i, j); };
    append(report, run.start([&](const Task& task, int) { run_task(task, read_a, read_b, write_b); }, options));
  }
  return report;
}

template <class T>
LimitedReport solve(Factors kind, const StoredMatrix<T>& a, StoredMatrix<T>& b, const MemoryLimit& limit,
                    const RuntimeOptions& options) {
  const views::TileDistribution &da = a.distribution(), &db = b.distribution();
  detail::check_one_rank(solve_operation, da);
  check_system(kind, a, b);
  check_stores(a, b);
  detail::check_options(solve_operation, options);
  SystemStore store(a.store(), b.store());
  const auto run_task = solve_kernels(kind, da);
  const auto bytes = [&](const TileId& t) { return tile_bytes<T>(da, db, t); };
  LimitedReport report;
  for (const detail::SolveRule& half : substitutions(kind, da, db)) {
    detail::HostSlots slots(store);
    detail::LimitedRun run(solve_operation, half, bytes, slots, limit, options.workers);
    run.prepare(solve_on_slots<T>(da, db, run, run_task), detail::with_one_blas_thread(options));
    append(report, run.run());
  }
  return report;
}

template <class T>
LimitedReport solve(const comm::Communicator& comm, Factors kind, const StoredMatrix<T>& a, StoredMatrix<T>& b,
                    const MemoryLimit& limit, const RuntimeOptions& options) {
  const views::TileDistribution &da = a.distribution(), &db = b.distribution();
  const std::array<detail::SolveRule, 2> halves = comm::collectively(comm, solve_operation, [&] {
    check_ranks_of_system(comm, kind, a, b, options);
    check_stores(a, b);
    return substitutions(kind, da, db);
  });
  check_same_system(comm, kind, a, b);
  SystemStore store(a.store(), b.store());
  const auto run_task = solve_kernels(kind, da);
  const auto owner = [&](const TileId& t) { return (t.matrix == 0 ? da : db).owner(t.tile()); };
  const auto owns = [&](const TileId& t) { return owner(t) == comm.rank(); };
  const auto bytes = [&](const TileId& t) { return tile_bytes<T>(da, db, t); };
  LimitedReport report;
  for (const detail::SolveRule& half : halves) {
    MemoryLimit shared = limit;
    shared.block = detail::agreed_block(solve_operation, comm, half, owns, bytes, limit, options.workers);
    detail::RankRun run(
        solve_operation, comm, half, owner, [&](const TileId& t) { return static_cast<std::size_t>(bytes(t)); }, store,
        shared, options.workers);
    run.start(solve_on_slots<T>(da, db, run, run_task), detail::with_one_blas_thread(options));
    LimitedReport next = run.limited_report();
    next.requests = run.counts();
    append(report, next);
  }
  return report;
}

#define INSTANTIATE(T)                                                                                       \
  template RunReport solve(Factors, const TileMatrix<T>&, TileMatrix<T>&, const RuntimeOptions&);            \
  template LimitedReport solve(Factors, const StoredMatrix<T>&, StoredMatrix<T>&, const MemoryLimit&,        \
                               const RuntimeOptions&);                                                       \
  template LimitedReport solve(const comm::Communicator&, Factors, const StoredMatrix<T>&, StoredMatrix<T>&, \
                               const MemoryLimit&, const RuntimeOptions&);                                   \
  template RankReport solve(const comm::Communicator&, Factors, const TileMatrix<T>&, TileMatrix<T>&,        \
                            const RuntimeOptions&);
ALONI_INSTANTIATE_ELEMENTS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::tasks
