#include <aloni/views/tile_distribution.hpp>

#include <aloni/core/error.hpp>
#include <aloni/views/process_grid.hpp>

#include <cmath>
#include <limits>
#include <utility>

namespace aloni::views {

std::string to_string(const Tile& tile) {
  return "(" + std::to_string(tile.row) + ", " + std::to_string(tile.column) + ")";
}

std::string to_string(const TileShape& shape) {
  return std::to_string(shape.rows) + (shape.rows == shape.columns ? "" : "x" + std::to_string(shape.columns));
}

TileGrid squarest_grid(int ranks) {
  if (ranks < 1 || ranks > max_blocks)
    throw InvalidArgument("aloni::views::squarest_grid", "ranks", std::to_string(ranks),
                          "from 1 to " + std::to_string(max_blocks));
  int rows = 1;
  for (int r = 1; Index{r} * r <= ranks; ++r)
    if (ranks % r == 0) rows = r;
  return {rows, ranks / rows};
}

TileGrid grid_by_speed(std::span<const double> speeds) {
  constexpr const char* operation = "aloni::views::grid_by_speed";
  constexpr std::size_t longest = 32;
  const std::size_t ranks = speeds.size();
  if (ranks < 1 || ranks > longest)
    throw InvalidArgument(operation, "speeds", std::to_string(ranks) + " values", "1 to 32 values, one for each rank");
  double all = 0;
  for (const double speed : speeds) {
    if (!(std::isfinite(speed) && speed > 0))
      throw InvalidArgument(operation, "speeds", std::to_string(speed), "finite values above 0");
    all += speed;
  }
  std::vector<int> best;
  double best_time = std::numeric_limits<double>::infinity();
  for (std::size_t length = ranks; length <= longest && best_time > 1.05; ++length) {
    std::vector<int> cycle;
    std::vector<double> columns(ranks);
    const auto end_of_next = [&](std::size_t r) { return (columns[r] + 1) / speeds[r]; };
    for (std::size_t j = 0; j < length; ++j) {
      std::size_t next = 0;
      for (std::size_t r = 1; r < ranks; ++r)
        if (end_of_next(r) < end_of_next(next)) next = r;
      ++columns[next];
      cycle.push_back(static_cast<int>(next));
    }
    if (std::ranges::count(columns, 0.0) > 0) continue;
    double time = 0;  // of the slowest rank, in units of the time by exact shares
    for (std::size_t r = 0; r < ranks; ++r)
      time = std::max(time, columns[r] / speeds[r] * all / static_cast<double>(length));
    if (time < best_time) {
      best_time = time;
      best = cycle;
    }
  }
  if (best.empty())
    throw InvalidArgument(operation, "speeds",
                          std::to_string(*std::ranges::min_element(speeds)) + " of " + std::to_string(all) + " in all",
                          "each speed to be worth one of 32 tile columns; leave the slowest ranks out");
  if (best.size() == ranks) best.clear();  // one column for each rank
  return {1, static_cast<int>(ranks), std::move(best)};
}

TileDistribution::TileDistribution(Index rows, Index columns, TileShape tile, TileGrid grid)
    : rows_(rows), columns_(columns), tile_(tile), grid_(grid) {
  constexpr const char* operation = "aloni::views::TileDistribution";
  if (rows < 0 || columns < 0 || saturating_product(rows, columns) > max_elements)
    throw InvalidArgument(operation, "rows, columns", std::to_string(rows) + ", " + std::to_string(columns),
                          "at least 0, and at most " + std::to_string(max_elements) + " elements");
  if (tile.rows < 1 || tile.columns < 1)
    throw InvalidArgument(operation, "tile", to_string(tile), "at least 1 row and column");
  if (grid.rows < 1 || grid.columns < 1 || saturating_product(grid.rows, grid.columns) > max_blocks)
    throw InvalidArgument(operation, "grid", std::to_string(grid.rows) + "x" + std::to_string(grid.columns),
                          "at least 1x1 and at most " + std::to_string(max_blocks) + " ranks");
  for (const int column : grid.column_cycle)
    if (column < 0 || column >= grid.columns)
      throw InvalidArgument(operation, "grid.column_cycle", std::to_string(column),
                            "grid columns from 0 to " + std::to_string(grid.columns - 1));
}

std::vector<Tile> TileDistribution::tiles_of(int rank) const {
  std::vector<Tile> tiles;
  tiles.reserve(static_cast<std::size_t>(tile_rows_of(rank) * tile_columns_of(rank)));
  for (Index j = 0; j < tile_columns(); ++j)
    if (grid_.column_of(j) == rank % grid_.columns)
      for (Index i = rank / grid_.columns; i < tile_rows(); i += grid_.rows) tiles.push_back({i, j});
  return tiles;
}

Index TileDistribution::share_of_columns(Index n, int grid_column) const {
  const std::vector<int>& cycle = grid_.column_cycle;
  if (cycle.empty()) return cyclic_share(n, grid_column, grid_.columns);
  const Index length = std::ssize(cycle);
  return n / length * std::ranges::count(cycle, grid_column) +
         std::count(cycle.begin(), cycle.begin() + n % length, grid_column);
}

std::string to_string(const TileDistribution& d) {
  std::string cycle;
  for (const int column : d.grid().column_cycle) cycle += " " + std::to_string(column);
  return std::to_string(d.rows()) + "x" + std::to_string(d.columns()) + " in tiles of " + to_string(d.tile()) +
         " over " + std::to_string(d.grid().rows) + "x" + std::to_string(d.grid().columns) + " ranks" +
         (cycle.empty() ? "" : " (columns" + cycle + ")");
}

}  // namespace aloni::views
