#include <aloni/tasks/cholesky.hpp>

#include <aloni/core/error.hpp>
#include <aloni/tasks/detail/factorise.hpp>
#include <aloni/tasks/detail/run_on_tiles.hpp>
#include <aloni/tasks/detail/tile_kernels.hpp>

#include <algorithm>

namespace aloni::tasks {

namespace {

/// Costs in units of potrf of a tile of b rows, b³ / 3 operations.
double cholesky_units(Kernel kernel) {
  switch (kernel) {
    case Kernel::potrf:
      return 1;
    case Kernel::gemm:
      return 6;
    default:
      return 3;  // trsm and syrk
  }
}

Task potrf_task(std::int32_t k) { return {Kernel::potrf, k, k, k}; }
Task trsm_task(std::int32_t i, std::int32_t k) { return {Kernel::trsm, i, k, k}; }
/// The update of tile (i, j) by column k.
Task update_task(std::int32_t i, std::int32_t j, std::int32_t k) {
  return {i == j ? Kernel::syrk : Kernel::gemm, i, j, k};
}
/// The task that writes the tile in step k, its last one included.
Task step_task(std::int32_t i, std::int32_t j, std::int32_t k) {
  if (k < j) return update_task(i, j, k);
  return i == j ? potrf_task(j) : trsm_task(i, j);
}

}  // namespace

CholeskyRule::CholeskyRule(Index tiles, Index tile) {
  detail::check_rule("aloni::tasks::CholeskyRule", tiles, tile);
  tiles_ = static_cast<std::int32_t>(tiles);
  unit_ = static_cast<double>(tile) * static_cast<double>(tile) * static_cast<double>(tile) / 3;
}

std::vector<TileId> CholeskyRule::tiles() const {
  std::vector<TileId> all;
  for (std::int32_t j = 0; j < tiles_; ++j)
    for (std::int32_t i = j; i < tiles_; ++i) all.push_back({0, i, j});
  return all;
}

std::int32_t CholeskyRule::writes(const TileId& tile) const {
  const bool known = tile.matrix == 0 && tile.column >= 0 && tile.row >= tile.column && tile.row < tiles_;
  return known ? tile.column + 1 : 0;
}

Task CholeskyRule::writer_of(const TileVersion& version) const {
  return step_task(version.tile.row, version.tile.column, version.version - 1);
}

TileVersion CholeskyRule::output(const Task& task) const { return {{0, task.row, task.column}, task.step + 1}; }

void CholeskyRule::append_accesses(const Task& task, std::vector<TileAccess>& accesses) const {
  const auto [kernel, i, j, k] = task;
  if (kernel == Kernel::trsm) accesses.push_back({{0, k, k}, Access::read});
  if (kernel == Kernel::gemm) accesses.push_back({{0, i, k}, Access::read});
  if (kernel == Kernel::gemm || kernel == Kernel::syrk) accesses.push_back({{0, j, k}, Access::read});
  accesses.push_back({{0, i, j}, Access::read_write});
}

std::int32_t CholeskyRule::count_predecessors(const Task& task) const {
  const std::int32_t before = task.step > 0;  // the update of the same tile by the column before
  switch (task.kernel) {
    case Kernel::potrf:
      return before;
    case Kernel::gemm:
      return before + 2;
    default:
      return before + 1;
  }
}

void CholeskyRule::append_successors(const Task& task, std::vector<Task>& successors) const {
  const auto [kernel, i, j, k] = task;
  if (kernel == Kernel::potrf) {
    for (std::int32_t row = k + 1; row < tiles_; ++row) successors.push_back(trsm_task(row, k));
  } else if (kernel == Kernel::trsm) {
    for (std::int32_t column = k + 1; column <= i; ++column) successors.push_back(update_task(i, column, k));
    for (std::int32_t row = i + 1; row < tiles_; ++row) successors.push_back(update_task(row, i, k));
  } else {
    successors.push_back(step_task(i, j, k + 1));
  }
}

void CholeskyRule::append_roots(std::vector<Task>& roots) const {
  if (tiles_ > 0) roots.push_back(potrf_task(0));
}

double CholeskyRule::cost(const Task& task) const { return unit_ * cholesky_units(task.kernel); }

double CholeskyRule::critical_path(const Task& task) const {
  constexpr double potrf = 1, trsm = 3, syrk = 3, gemm = 6;
  const double last = tiles_ - 1;
  // From a trsm of column k a path gains most if each column adds a gemm and a trsm; it ends at the last potrf.
  const auto from_trsm = [&](double k) { return (last - 1 - k) * (gemm + trsm) + trsm + syrk + potrf; };
  const auto from_potrf = [&](double k) { return potrf + (k < last ? from_trsm(k) : 0); };
  const auto [kernel, i, j, k] = task;
  switch (kernel) {
    case Kernel::potrf:
      return unit_ * from_potrf(k);
    case Kernel::trsm:
      return unit_ * from_trsm(k);
    case Kernel::syrk:
      return unit_ * ((j - k) * syrk + from_potrf(j));
    default:
      return unit_ * ((j - k) * gemm + from_trsm(j));
  }
}

TaskGraph cholesky_graph(Index tiles, Index tile) {
  const CholeskyRule rule(tiles, tile);
  TaskGraph graph;
  const auto add = [&](const Task& task) { detail::add_task(graph, rule, task); };
  const auto last = static_cast<std::int32_t>(tiles);
  for (std::int32_t k = 0; k < last; ++k) {
    add(potrf_task(k));
    for (std::int32_t i = k + 1; i < last; ++i) add(trsm_task(i, k));
    for (std::int32_t j = k + 1; j < last; ++j)
      for (std::int32_t i = j; i < last; ++i) add(update_task(i, j, k));
  }
  return graph;
}

Index suggested_tile(Index n, int workers) {
  if (n < 1 || workers < 1)
    throw InvalidArgument("aloni::tasks::suggested_tile", "n, workers",
                          std::to_string(n) + ", " + std::to_string(workers), "at least 1");
  constexpr Index step = 64;
  return std::clamp(ceil_div(ceil_div(n, std::max<Index>(8, 4 * Index{workers})), step) * step, step, 8 * step);
}

namespace {

constexpr const char* cholesky_operation = "aloni::tasks::cholesky";

/// Runs a task of the factorisation of `a`. `read(i, j)`: a finished tile, here or of another rank.
template <class T>
auto cholesky_kernels(TileMatrix<T>& a) {
  return [&a](const Task& task, const auto& read) {
    const auto [kernel, i, j, k] = task;
    switch (kernel) {
      case Kernel::potrf:
        return detail::potrf(cholesky_operation, detail::block(a, k, k), {k, k}, k * a.distribution().tile());
      case Kernel::trsm:
        return detail::trsm('R', 'L', 'T', 'N', read(k, k), detail::block(a, i, k));
      case Kernel::syrk:
        return detail::subtract_square(read(j, k), detail::block(a, j, j));
      default:
        return detail::subtract_product('N', read(i, k), 'T', read(j, k), detail::block(a, i, j));
    }
  };
}

}  // namespace

template <class T>
RunReport cholesky(TileMatrix<T>& a, const RuntimeOptions& options) {
  return detail::factorise<CholeskyRule>(cholesky_operation, a, TilePart::lower, options, cholesky_kernels(a));
}

template <class T>
RankReport cholesky(const comm::Communicator& comm, TileMatrix<T>& a, const RuntimeOptions& options) {
  return detail::factorise<CholeskyRule>(cholesky_operation, comm, a, TilePart::lower, options, cholesky_kernels(a));
}

template RunReport cholesky(TileMatrix<float>&, const RuntimeOptions&);
template RunReport cholesky(TileMatrix<double>&, const RuntimeOptions&);
template RankReport cholesky(const comm::Communicator&, TileMatrix<float>&, const RuntimeOptions&);
template RankReport cholesky(const comm::Communicator&, TileMatrix<double>&, const RuntimeOptions&);

}  // namespace aloni::tasks
