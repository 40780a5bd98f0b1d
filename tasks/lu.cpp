#include <aloni/tasks/lu.hpp>

#include <aloni/core/error.hpp>
#include <aloni/tasks/detail/factorise.hpp>
#include <aloni/tasks/detail/instantiate.hpp>
#include <aloni/tasks/detail/run_on_tiles.hpp>
#include <aloni/tasks/detail/tile_kernels.hpp>

#include <algorithm>

namespace aloni::tasks {

namespace {

/// Costs in units of b³ / 3 operations, where a tile has b rows.
double lu_units(Kernel kernel) {
  switch (kernel) {
    case Kernel::getrf:
      return 2;
    case Kernel::gemm:
      return 6;
    default:
      return 3;  // both kinds of trsm
  }
}

/// The task that writes tile (i, j) in step k: an update, or the last one.
Task lu_task(std::int32_t i, std::int32_t j, std::int32_t k) {
  if (k < std::min(i, j)) return {Kernel::gemm, i, j, k};
  return {i == j ? Kernel::getrf : i > j ? Kernel::trsm : Kernel::trsm_row, i, j, k};
}

}  // namespace

LuRule::LuRule(Index tiles, Index tile) {
  detail::check_rule("aloni::tasks::LuRule", tiles, tile);
  tiles_ = static_cast<std::int32_t>(tiles);
  unit_ = static_cast<double>(tile) * static_cast<double>(tile) * static_cast<double>(tile) / 3;
}

LuRule::LuRule(const views::TileDistribution& a) : LuRule(a.tile_rows(), a.tile().rows) {
  if (a.tile().rows != a.tile().columns)
    throw InvalidArgument("aloni::tasks::LuRule", "a", to_string(a), "square tiles");
}

std::vector<TileId> LuRule::tiles() const {
  std::vector<TileId> all;
  for (std::int32_t j = 0; j < tiles_; ++j)
    for (std::int32_t i = 0; i < tiles_; ++i) all.push_back({0, i, j});
  return all;
}

std::int32_t LuRule::writes(const TileId& tile) const {
  const auto [matrix, i, j] = tile;
  return matrix == 0 && std::min(i, j) >= 0 && std::max(i, j) < tiles_ ? std::min(i, j) + 1 : 0;
}

Task LuRule::writer_of(const TileVersion& version) const {
  return lu_task(version.tile.row, version.tile.column, version.version - 1);
}

TileVersion LuRule::output(const Task& task) const { return {{0, task.row, task.column}, task.step + 1}; }

void LuRule::append_accesses(const Task& task, std::vector<TileAccess>& accesses) const {
  const auto [kernel, i, j, k] = task;
  if (kernel == Kernel::gemm) {
    accesses.push_back({{0, i, k}, Access::read});
    accesses.push_back({{0, k, j}, Access::read});
  } else if (kernel != Kernel::getrf) {
    accesses.push_back({{0, k, k}, Access::read});
  }
  accesses.push_back({{0, i, j}, Access::read_write});
}

std::int32_t LuRule::count_predecessors(const Task& task) const {
  const std::int32_t before = task.step > 0;  // the update of the same tile by the step before
  if (task.kernel == Kernel::getrf) return before;
  return before + (task.kernel == Kernel::gemm ? 2 : 1);
}

void LuRule::append_successors(const Task& task, std::vector<Task>& successors) const {
  const auto [kernel, i, j, k] = task;
  switch (kernel) {
    case Kernel::getrf:
      for (std::int32_t row = k + 1; row < tiles_; ++row) successors.push_back(lu_task(row, k, k));
      for (std::int32_t column = k + 1; column < tiles_; ++column) successors.push_back(lu_task(k, column, k));
      return;
    case Kernel::trsm:
      for (std::int32_t column = k + 1; column < tiles_; ++column) successors.push_back(lu_task(i, column, k));
      return;
    case Kernel::trsm_row:
      for (std::int32_t row = k + 1; row < tiles_; ++row) successors.push_back(lu_task(row, j, k));
      return;
    default:
      successors.push_back(lu_task(i, j, k + 1));
  }
}

void LuRule::append_roots(std::vector<Task>& roots) const {
  if (tiles_ > 0) roots.push_back(lu_task(0, 0, 0));
}

double LuRule::cost(const Task& task) const { return unit_ * lu_units(task.kernel); }

double LuRule::critical_path(const Task& task) const {
  constexpr double getrf = 2, trsm = 3, gemm = 6;
  const double last = tiles_ - 1;
  // Along the diagonal each step adds a trsm, a gemm and a getrf. A trsm of row, or column, i reaches the diagonal at
  // i; until then each step adds a trsm and a gemm.
  const auto from_getrf = [&](double k) { return (last - k) * (trsm + gemm + getrf) + getrf; };
  const auto from_trsm = [&](double i, double k) { return (i - k) * (trsm + gemm) + from_getrf(i); };
  const auto [kernel, i, j, k] = task;
  const double low = std::min(i, j), high = std::max(i, j);
  if (kernel == Kernel::getrf) return unit_ * from_getrf(k);
  if (kernel != Kernel::gemm) return unit_ * from_trsm(high, low);
  return unit_ * ((low - k) * gemm + (i == j ? from_getrf(low) : from_trsm(high, low)));
}

TaskGraph lu_graph(Index tiles, Index tile) {
  const LuRule rule(tiles, tile);
  TaskGraph graph;
  const auto add = [&](const Task& task) { detail::add_task(graph, rule, task); };
  const auto last = static_cast<std::int32_t>(tiles);
  for (std::int32_t k = 0; k < last; ++k) {
    add(lu_task(k, k, k));
    for (std::int32_t i = k + 1; i < last; ++i) add(lu_task(i, k, k));
    for (std::int32_t j = k + 1; j < last; ++j) {
      add(lu_task(k, j, k));
      for (std::int32_t i = k + 1; i < last; ++i) add(lu_task(i, j, k));
    }
  }
  return graph;
}

Index suggested_lu_tile(Index n, int workers) {
  if (n < 1 || workers < 1)
    throw InvalidArgument("aloni::tasks::suggested_lu_tile", "n, workers",
                          std::to_string(n) + ", " + std::to_string(workers), "at least 1");
  constexpr Index step = 64;
  return std::clamp(ceil_div(ceil_div(n, std::max<Index>(8, 4 * Index{workers})), step) * step, step, 8 * step);
}

namespace {

constexpr const char* lu_operation = "aloni::tasks::lu";

/// Runs a task of the factorisation. `read(i, j)`: a finished tile, here or of another rank. `write(i, j)`: the tile
/// that the task writes. `d` outlives the result.
auto lu_kernels(const views::TileDistribution& d) {
  return [&d](const Task& task, const auto& read, const auto& write) {
    const auto [kernel, i, j, k] = task;
    const auto target = write(i, j);
    switch (kernel) {
      case Kernel::getrf:
        return detail::getrf(lu_operation, target, {k, k}, d.first_column(k));
      case Kernel::trsm:
        return detail::trsm('R', 'U', 'N', 'N', read(k, k), target);
      case Kernel::trsm_row:
        return detail::trsm('L', 'L', 'N', 'U', read(k, k), target);
      default:
        return detail::subtract_product('N', read(i, k), 'N', read(k, j), target);
    }
  };
}

}  // namespace

template <class T>
RunReport lu(TileMatrix<T>& a, const RuntimeOptions& options) {
  return detail::factorise<LuRule>(lu_operation, a, TilePart::whole, options, lu_kernels(a.distribution()));
}

template <class T>
LimitedReport lu(StoredMatrix<T>& a, const MemoryLimit& limit, const RuntimeOptions& options) {
  return detail::factorise<LuRule>(lu_operation, a, TilePart::whole, limit, options, lu_kernels(a.distribution()));
}

template <class T>
RankReport lu(const comm::Communicator& comm, TileMatrix<T>& a, const RuntimeOptions& options) {
  return detail::factorise<LuRule>(lu_operation, comm, a, TilePart::whole, options, lu_kernels(a.distribution()));
}

template <class T>
LimitedReport lu(const comm::Communicator& comm, StoredMatrix<T>& a, const MemoryLimit& limit,
                 const RuntimeOptions& options) {
  return detail::factorise<LuRule>(lu_operation, comm, a, TilePart::whole, limit, options,
                                   lu_kernels(a.distribution()));
}

#define INSTANTIATE(T)                                                                      \
  template RunReport lu(TileMatrix<T>&, const RuntimeOptions&);                             \
  template LimitedReport lu(StoredMatrix<T>&, const MemoryLimit&, const RuntimeOptions&);   \
  template RankReport lu(const comm::Communicator&, TileMatrix<T>&, const RuntimeOptions&); \
  template LimitedReport lu(const comm::Communicator&, StoredMatrix<T>&, const MemoryLimit&, const RuntimeOptions&);
ALONI_INSTANTIATE_ELEMENTS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::tasks
