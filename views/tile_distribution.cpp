#include <aloni/views/tile_distribution.hpp>

#include <aloni/core/error.hpp>
#include <aloni/views/process_grid.hpp>

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
}

std::vector<Tile> TileDistribution::tiles_of(int rank) const {
  std::vector<Tile> tiles;
  tiles.reserve(static_cast<std::size_t>(tile_rows_of(rank) * tile_columns_of(rank)));
  for (Index j = rank % grid_.columns; j < tile_columns(); j += grid_.columns)
    for (Index i = rank / grid_.columns; i < tile_rows(); i += grid_.rows) tiles.push_back({i, j});
  return tiles;
}

std::string to_string(const TileDistribution& d) {
  return std::to_string(d.rows()) + "x" + std::to_string(d.columns()) + " in tiles of " + to_string(d.tile()) +
         " over " + std::to_string(d.grid().rows) + "x" + std::to_string(d.grid().columns) + " ranks";
}

}  // namespace aloni::views
