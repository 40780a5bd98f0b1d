#include <aloni/tasks/detail/solve_rule.hpp>

#include <aloni/core/error.hpp>
#include <aloni/tasks/detail/run_on_tiles.hpp>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace aloni::tasks::detail {

SolveRule::SolveRule(Factors kind, Substitution half, Index tiles, Index columns, Index width, Index height)
    : kind_(kind), half_(half) {
  constexpr const char* operation = "aloni::tasks::SolveRule";
  check_rule(operation, tiles, width);
  check_rule(operation, columns, width);
  if (height < 1 || height > max_task_coordinate || (height > 1 && kind == Factors::lu))
    throw InvalidArgument(operation, "height", std::to_string(height), "at least 1, at most 2^20, and 1 for LU");
  tiles_ = static_cast<std::int32_t>(tiles);
  columns_ = static_cast<std::int32_t>(columns);
  height_ = static_cast<std::int32_t>(height);
  const auto side = static_cast<double>(width);
  cube_ = side * side * side;
}

/// The task of step k on tile (i, j) of the right-hand side; the last one is that of step i.
Task SolveRule::task_on(std::int32_t i, std::int32_t j, std::int32_t k) const {
  if (is_forward()) return {k == i ? Kernel::solve_lower : Kernel::update_lower, i, j, k};
  return {k == i ? Kernel::solve_upper : Kernel::update_upper, i, j, k};
}

/// The tile that the tasks of step k on tile row i of the right-hand side read.
TileId SolveRule::factor(std::int32_t i, std::int32_t k) const {
  if (reads_transposed()) std::swap(i, k);
  return {0, i / height_, k};
}

/// The tasks on column j of the right-hand side that read the tile.
std::vector<Task> SolveRule::readers(const TileId& factor, std::int32_t j) const {
  std::vector<Task> tasks;
  const std::int32_t end = std::min(tiles_, (factor.row + 1) * height_), k = factor.column;
  for (std::int32_t i = factor.row * height_; i < end; ++i) {  // square block (i, k) of the factors
    if (kind_ == Factors::cholesky && i < k) continue;         // above the diagonal
    tasks.push_back(reads_transposed() ? task_on(k, j, i) : task_on(i, j, k));
  }
  return tasks;
}

/// All tasks on one tile come one after another in some serial order, that of the tiles here.
std::vector<TileId> SolveRule::factors() const {
  std::vector<TileId> all;
  const std::int32_t rows = (tiles_ + height_ - 1) / height_;
  if (is_forward()) {
    for (std::int32_t k = 0; k < tiles_; ++k)
      for (std::int32_t i = k / height_; i < rows; ++i) all.push_back({0, i, k});
  } else if (reads_transposed()) {
    for (std::int32_t i = rows - 1; i >= 0; --i)
      for (std::int32_t k = std::min(tiles_, (i + 1) * height_) - 1; k >= 0; --k) all.push_back({0, i, k});
  } else {
    for (std::int32_t k = tiles_ - 1; k >= 0; --k)
      for (std::int32_t i = k; i >= 0; --i) all.push_back({0, i, k});
  }
  return all;
}

std::vector<TileId> SolveRule::tiles() const {
  std::vector<TileId> all;
  if (columns_ > 0) all = factors();
  for (std::int32_t j = 0; j < columns_; ++j)
    for (std::int32_t i = 0; i < tiles_; ++i) all.push_back({1, i, j});
  return all;
}

std::int32_t SolveRule::writes(const TileId& tile) const {
  const auto [matrix, i, j] = tile;
  if (i < 0 || j < 0 || columns_ == 0) return 0;
  if (matrix == 1) return i < tiles_ && j < columns_ ? std::abs(i - first_step()) + 1 : 0;
  if (matrix != 0 || j >= tiles_ || i >= (tiles_ + height_ - 1) / height_) return 0;
  return is_forward() || reads_transposed() ? i >= j / height_ : i <= j;
}

Task SolveRule::writer_of(const TileVersion& version) const {
  const auto [matrix, i, j] = version.tile;
  if (matrix == 0) return {Kernel::provide, i, j, 0};
  return task_on(i, j, std::abs(first_step() - (version.version - 1)));
}

TileVersion SolveRule::output(const Task& task) const {
  if (task.kernel == Kernel::provide) return {{0, task.row, task.column}, 1};
  return {{1, task.row, task.column}, std::abs(task.step - first_step()) + 1};
}

void SolveRule::append_accesses(const Task& task, std::vector<TileAccess>& accesses) const {
  const auto [kernel, i, j, k] = task;
  if (kernel == Kernel::provide) {
    accesses.push_back({{0, i, j}, Access::read_write});
    return;
  }
  accesses.push_back({factor(i, k), Access::read});
  if (k != i) accesses.push_back({{1, k, j}, Access::read});
  accesses.push_back({{1, i, j}, Access::read_write});
}

std::int32_t SolveRule::count_predecessors(const Task& task) const {
  if (task.kernel == Kernel::provide) return 0;
  return 1 + (task.step != task.row) + (task.step != first_step());
}

void SolveRule::append_successors(const Task& task, std::vector<Task>& successors) const {
  const auto [kernel, i, j, k] = task;
  if (kernel == Kernel::provide) {
    for (std::int32_t column = 0; column < columns_; ++column) {
      const std::vector<Task> tasks = readers({0, i, j}, column);
      successors.insert(successors.end(), tasks.begin(), tasks.end());
    }
  } else if (k == i) {
    for (std::int32_t row = next(i); row >= 0 && row < tiles_; row = next(row))
      successors.push_back(task_on(row, j, k));
  } else {
    successors.push_back(task_on(i, j, next(k)));
  }
}

void SolveRule::append_roots(std::vector<Task>& roots) const {
  for (const TileId& tile : tiles())
    if (tile.matrix == 0) roots.push_back({Kernel::provide, tile.row, tile.column, 0});
}

/// In cubes of the rows of a tile.
double SolveRule::units(const Task& task) const {
  if (task.kernel == Kernel::provide) return 0;
  return task.step == task.row ? 1 : 2;
}

double SolveRule::cost(const Task& task) const { return cube_ * units(task); }

double SolveRule::critical_path(const Task& task) const {
  const auto [kernel, i, j, k] = task;
  if (kernel == Kernel::provide) {
    double longest = 0;
    for (const Task& reader : readers({0, i, j}, 0)) longest = std::max(longest, critical_path(reader));
    return longest;
  }
  // The steps left of the tile, then an update and a solution for each tile that comes after it.
  const std::int32_t after = is_forward() ? tiles_ - 1 - i : i;
  return cube_ * (2 * std::abs(i - k) + 1 + 3 * after);
}

}  // namespace aloni::tasks::detail
