#include <aloni/tasks/cholesky.hpp>

#include <aloni/core/error.hpp>
#include <aloni/tasks/detail/factorise.hpp>
#include <aloni/tasks/detail/instantiate.hpp>
#include <aloni/tasks/detail/run_on_tiles.hpp>
#include <aloni/tasks/detail/tile_kernels.hpp>

#include <algorithm>
#include <string>

namespace aloni::tasks {

namespace {

void check_sizes(Index n, int workers) {
  if (n < 1 || workers < 1)
    throw InvalidArgument("aloni::tasks::suggested_tile", "n, workers",
                          std::to_string(n) + ", " + std::to_string(workers), "at least 1");
}

}  // namespace

CholeskyRule::CholeskyRule(Index columns, Index width, Index height) {
  constexpr const char* operation = "aloni::tasks::CholeskyRule";
  detail::check_rule(operation, columns, width);
  if (height < 1 || height > max_task_coordinate)
    throw InvalidArgument(operation, "height", std::to_string(height), "at least 1 width, at most 2^20");
  columns_ = static_cast<std::int32_t>(columns);
  height_ = static_cast<std::int32_t>(height);
  rows_ = static_cast<std::int32_t>(ceil_div(columns, height));
  const auto side = static_cast<double>(width);
  unit_ = side * side * side / 3;
  // Within the last tile row a path goes from potrf through the updates of a later diagonal block to its potrf.
  for (std::int32_t k = columns_ - 1; k >= 0 && diagonal_row(k) == rows_ - 1; --k) {
    double longest = 0;
    for (std::int32_t j = k + 1; j < columns_; ++j) {
      const auto after = static_cast<std::size_t>(columns_ - 1 - j);
      longest = std::max(longest, (j - k) * units(Kernel::syrk, j) + last_paths_[after]);
    }
    last_paths_.push_back(units(Kernel::potrf, k) + longest);
  }
}

CholeskyRule::CholeskyRule(const views::TileDistribution& a)
    : CholeskyRule(a.tile_columns(), a.tile().columns, a.tile().rows / a.tile().columns) {
  if (a.tile().rows % a.tile().columns != 0)
    throw InvalidArgument("aloni::tasks::CholeskyRule", "a", to_string(a),
                          "tiles whose rows are a multiple of their columns");
}

Task CholeskyRule::potrf_task(std::int32_t k) const { return {Kernel::potrf, diagonal_row(k), k, k}; }

/// The update of tile (i, j) by column k.
Task CholeskyRule::update_task(std::int32_t i, std::int32_t j, std::int32_t k) const {
  return {i == diagonal_row(j) ? Kernel::syrk : Kernel::gemm, i, j, k};
}

/// The task that writes the tile in step k, its last one included.
Task CholeskyRule::step_task(std::int32_t i, std::int32_t j, std::int32_t k) const {
  if (k < j) return update_task(i, j, k);
  return {i == diagonal_row(j) ? Kernel::potrf : Kernel::trsm, i, j, k};
}

/// Cost of a task on a tile of the column, in units of potrf of a square block of b rows, b³ / 3 operations.
double CholeskyRule::units(Kernel kernel, std::int32_t column) const {
  const std::int32_t below = height_ - 1 - column % height_;  // square blocks of the tile below its diagonal block
  switch (kernel) {
    case Kernel::potrf:
      return 1 + 3 * below;
    case Kernel::syrk:
      return 3 + 6 * below;
    case Kernel::trsm:
      return 3 * height_;
    default:
      return 6 * height_;
  }
}

std::vector<TileId> CholeskyRule::tiles() const {
  std::vector<TileId> all;
  for (std::int32_t j = 0; j < columns_; ++j)
    for (std::int32_t i = diagonal_row(j); i < rows_; ++i) all.push_back({0, i, j});
  return all;
}

std::int32_t CholeskyRule::writes(const TileId& tile) const {
  const auto [matrix, i, j] = tile;
  return matrix == 0 && j >= 0 && j < columns_ && i >= diagonal_row(j) && i < rows_ ? j + 1 : 0;
}

Task CholeskyRule::writer_of(const TileVersion& version) const {
  return step_task(version.tile.row, version.tile.column, version.version - 1);
}

TileVersion CholeskyRule::output(const Task& task) const { return {{0, task.row, task.column}, task.step + 1}; }

void CholeskyRule::append_accesses(const Task& task, std::vector<TileAccess>& accesses) const {
  const auto [kernel, i, j, k] = task;
  if (kernel == Kernel::trsm) accesses.push_back({{0, diagonal_row(k), k}, Access::read});
  if (kernel == Kernel::gemm) accesses.push_back({{0, i, k}, Access::read});
  if (kernel == Kernel::gemm || kernel == Kernel::syrk) accesses.push_back({{0, diagonal_row(j), k}, Access::read});
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
  if (kernel == Kernel::syrk || kernel == Kernel::gemm) {
    successors.push_back(step_task(i, j, k + 1));
    return;
  }
  const std::int32_t end = std::min(columns_, (i + 1) * height_);  // columns with their diagonal in or above tile row i
  if (kernel == Kernel::potrf) {
    for (std::int32_t row = i + 1; row < rows_; ++row) successors.push_back({Kernel::trsm, row, k, k});
  }
  for (std::int32_t column = k + 1; column < end; ++column) {
    successors.push_back(update_task(i, column, k));
    if (diagonal_row(column) != i) continue;
    for (std::int32_t row = i + 1; row < rows_; ++row) successors.push_back(update_task(row, column, k));
  }
}

void CholeskyRule::append_roots(std::vector<Task>& roots) const {
  if (columns_ > 0) roots.push_back(potrf_task(0));
}

double CholeskyRule::cost(const Task& task) const { return unit_ * units(task.kernel, task.column); }

/// From trsm of tile (row, k), in units.
double CholeskyRule::from_trsm(double row, double k) const {
  const double h = height_, gemm = 6 * h, trsm = 3 * h, last = rows_ - 1;
  // The path follows the tile row: each column adds a gemm and a trsm. At the diagonal it goes on through the diagonal
  // block (syrk, potrf) or through a gemm, and then in the tile row below. The last tile row ends it.
  const double along_row = (row * h - 1 - k) * (gemm + trsm) + trsm;
  const double to_next_row = std::max(units(Kernel::syrk, 0) + units(Kernel::potrf, 0), gemm) + (h - 1) * (gemm + trsm);
  return along_row + (last - row) * (to_next_row + trsm) + units(Kernel::syrk, 0) + last_paths_.back();
}

/// From potrf of column k, in units.
double CholeskyRule::from_potrf(std::int32_t k) const {
  const std::int32_t row = diagonal_row(k);
  if (row == rows_ - 1) return last_paths_[static_cast<std::size_t>(columns_ - 1 - k)];
  return units(Kernel::potrf, k) + from_trsm(row + 1, k);
}

double CholeskyRule::critical_path(const Task& task) const {
  const auto [kernel, i, j, k] = task;
  switch (kernel) {
    case Kernel::potrf:
      return unit_ * from_potrf(k);
    case Kernel::trsm:
      return unit_ * from_trsm(i, k);
    case Kernel::syrk:
      return unit_ * ((j - k) * units(kernel, j) + from_potrf(j));
    default:
      return unit_ * ((j - k) * units(kernel, j) + from_trsm(i, j));
  }
}

TaskGraph cholesky_graph(Index columns, Index width, Index height) {
  const CholeskyRule rule(columns, width, height);
  TaskGraph graph;
  const auto add_step = [&](std::int32_t j, std::int32_t k) {
    for (auto i = static_cast<std::int32_t>(j / height); i < ceil_div(columns, height); ++i)
      detail::add_task(graph, rule, rule.writer_of({{0, i, j}, k + 1}));
  };
  for (std::int32_t k = 0; k < columns; ++k) {
    add_step(k, k);
    for (std::int32_t j = k + 1; j < columns; ++j) add_step(j, k);
  }
  return graph;
}

views::TileShape suggested_tile(Index n, int workers) {
  check_sizes(n, workers);
  constexpr Index step = 32, most = 13 * step, more = 8;
  const Index least_columns = std::max<Index>(16, 4 * Index{workers});
  return suggested_tile(n, workers, std::clamp(n / least_columns / step * step, step, most) + more);
}

views::TileShape suggested_tile(Index n, int workers, Index columns) {
  check_sizes(n, workers);
  if (columns < 1)
    throw InvalidArgument("aloni::tasks::suggested_tile", "columns", std::to_string(columns), "at least 1");
  return {columns * std::clamp<Index>(2 * n / columns / (2 * Index{workers} + 1), 1, 6), columns};
}

namespace {

constexpr const char* cholesky_operation = "aloni::tasks::cholesky";

/// Runs a task of the factorisation. `read(i, j)`: a finished tile, here or of another rank. `write(i, j)`: the tile
/// that the task writes. `d` outlives the result.
auto cholesky_kernels(const views::TileDistribution& d) {
  return [&d](const Task& task, const auto& read, const auto& write) {
    const auto [kernel, i, j, k] = task;
    const auto target = write(i, j);
    // The tile row of the diagonal block of column j, and the block's first row within the tile.
    const auto diagonal = static_cast<std::int32_t>(d.diagonal_row(j));
    const int first = static_cast<int>(d.first_column(j) - d.first_row(diagonal)), width = static_cast<int>(d.width(j));
    switch (kernel) {
      case Kernel::potrf: {
        const auto block = detail::rows_of(target, first, width);
        detail::potrf(cholesky_operation, block, {i, j}, d.first_column(j));
        return detail::trsm('R', 'L', 'T', 'N', block, detail::rows_below(target, first + width));
      }
      case Kernel::trsm:
        return detail::trsm('R', 'L', 'T', 'N', detail::rows_of(read(diagonal, k), first, width), target);
      case Kernel::syrk: {
        const auto column = read(i, k), block = detail::rows_of(column, first, width);
        detail::subtract_square(block, detail::rows_of(target, first, width));
        return detail::subtract_product('N', detail::rows_below(column, first + width), 'T', block,
                                        detail::rows_below(target, first + width));
      }
      default:
        return detail::subtract_product('N', read(i, k), 'T', detail::rows_of(read(diagonal, k), first, width), target);
    }
  };
}

}  // namespace

template <class T>
RunReport cholesky(TileMatrix<T>& a, const RuntimeOptions& options) {
  return detail::factorise<CholeskyRule>(cholesky_operation, a, TilePart::lower, options,
                                         cholesky_kernels(a.distribution()));
}

template <class T>
LimitedReport cholesky(StoredMatrix<T>& a, const MemoryLimit& limit, const RuntimeOptions& options) {
  return detail::factorise<CholeskyRule>(cholesky_operation, a, TilePart::lower, limit, options,
                                         cholesky_kernels(a.distribution()));
}

template <class T>
RankReport cholesky(const comm::Communicator& comm, TileMatrix<T>& a, const RuntimeOptions& options) {
  return detail::factorise<CholeskyRule>(cholesky_operation, comm, a, TilePart::lower, options,
                                         cholesky_kernels(a.distribution()));
}

template <class T>
LimitedReport cholesky(const comm::Communicator& comm, StoredMatrix<T>& a, const MemoryLimit& limit,
                       const RuntimeOptions& options) {
  return detail::factorise<CholeskyRule>(cholesky_operation, comm, a, TilePart::lower, limit, options,
                                         cholesky_kernels(a.distribution()));
}

#define INSTANTIATE(T)                                                                             \
  template RunReport cholesky(TileMatrix<T>&, const RuntimeOptions&);                              \
  template LimitedReport cholesky(StoredMatrix<T>&, const MemoryLimit&, const RuntimeOptions&);    \
  template RankReport cholesky(const comm::Communicator&, TileMatrix<T>&, const RuntimeOptions&);  \
  template LimitedReport cholesky(const comm::Communicator&, StoredMatrix<T>&, const MemoryLimit&, \
                                  const RuntimeOptions&);
ALONI_INSTANTIATE_ELEMENTS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::tasks
