#pragma once
// Which rank owns which tile of a matrix: 2-D block-cyclic, as in ScaLAPACK. The matrix is split into tiles of equal
// shape; those at the lower and right border may be smaller. Tile (i, j) belongs to the rank at position
// (i mod p, j mod q) of a grid of p × q ranks. Pure arithmetic; equal on all ranks.
//
//   const TileDistribution a(1000, 1000, 256, {2, 3});
//   a.tile_rows();          // 4
//   a.height(3);            // 232: the rows of the last tile row
//   a.owner({3, 1});        // rank 4: row 1 of the grid, column 1
//   a.tiles_of(4);          // (1, 1) and (3, 1)
//
// Distribution (views/distribution.hpp) gives each rank one box of consecutive indices instead. A factorisation would
// leave the ranks of the first boxes without work; cyclic tiles keep all ranks busy to the end.
//
// Ranks of different speeds: with grid_by_speed() a faster rank owns more tile columns.
//
// Source: Dongarra, van de Geijn and Walker, "Scalability issues affecting the design of a dense linear algebra
// library", Journal of Parallel and Distributed Computing 22 (1994), section 3.
#include <aloni/core/index.hpp>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <vector>

namespace aloni::views {

/// Position of a tile, counted in tiles.
struct Tile {
  Index row = 0, column = 0;

  friend constexpr auto operator<=>(const Tile&, const Tile&) = default;
};

/// "(3, 1)".
std::string to_string(const Tile& tile);

/// Rows and columns of a tile.
struct TileShape {
  Index rows = 1, columns = 1;

  constexpr TileShape(Index side) : rows(side), columns(side) {}
  constexpr TileShape(Index r, Index c) : rows(r), columns(c) {}
  friend constexpr bool operator==(const TileShape&, const TileShape&) = default;
};

/// "256", or "1024x256".
std::string to_string(const TileShape& shape);

/// Ranks in rows and columns. Numbers are row-major: the rank at (r, c) is r · columns + c.
struct TileGrid {
  int rows = 1, columns = 1;
  /// Grid columns of consecutive tile columns, which repeat. {0, 0, 1}: the ranks of grid column 0 own two of three
  /// tile columns, because they are twice as fast. Empty: 0, 1, …, columns - 1.
  std::vector<int> column_cycle = {};

  /// The grid column that owns a tile column. @pre j ≥ 0
  int column_of(Index j) const {
    if (column_cycle.empty()) return static_cast<int>(j % columns);
    return column_cycle[static_cast<std::size_t>(j % std::ssize(column_cycle))];
  }
  friend bool operator==(const TileGrid&, const TileGrid&) = default;
};

/// The grid of `ranks` ranks whose sides differ least, with rows ≤ columns. A tile of a factorisation goes to the ranks
/// of its row and of its column: this grid sends the least. @pre 1 ≤ ranks ≤ max_blocks. Throws InvalidArgument.
TileGrid squarest_grid(int ranks);

/// A grid of one row whose ranks own tile columns in proportion to their speeds. The time of a factorisation is that of
/// the rank with the most work for its speed: with equal shares one rank of half the speed doubles it. The cycle has at
/// most 32 tile columns. It is the shortest one in which no rank has over 5 % more than its share, otherwise the best
/// one. Each rank has a column in it.
/// Source: Boulet, Dongarra, Rastello, Robert and Vivien, "Algorithmic issues on heterogeneous computing platforms",
/// Parallel Processing Letters 9 (1999): the next column goes to the rank that would end it first.
/// @pre 1 to 32 speeds, in any unit, finite and above 0; each about 1/32 of their sum or more. Throws InvalidArgument.
TileGrid grid_by_speed(std::span<const double> speeds);

class TileDistribution {
 public:
  /// An empty matrix on one rank.
  TileDistribution() : TileDistribution(0, 0, 1) {}

  /// @pre rows, columns ≥ 0, their product ≤ max_elements
  /// @pre tile.rows, tile.columns ≥ 1
  /// @pre grid.rows, grid.columns ≥ 1, their product ≤ max_blocks
  /// Throws InvalidArgument (equal on all ranks).
  TileDistribution(Index rows, Index columns, TileShape tile, TileGrid grid = {});

  Index rows() const { return rows_; }
  Index columns() const { return columns_; }
  const TileShape& tile() const { return tile_; }
  const TileGrid& grid() const { return grid_; }
  int ranks() const { return grid_.rows * grid_.columns; }

  Index tile_rows() const { return ceil_div(rows_, tile_.rows); }
  Index tile_columns() const { return ceil_div(columns_, tile_.columns); }
  /// First row of the tiles of tile row i, counted in the matrix. @pre 0 ≤ i < tile_rows()
  Index first_row(Index i) const { return i * tile_.rows; }
  /// First column of the tiles of tile column j. @pre 0 ≤ j < tile_columns()
  Index first_column(Index j) const { return j * tile_.columns; }
  /// Rows of the tiles of tile row i: tile().rows, or fewer in the last one. @pre 0 ≤ i < tile_rows()
  Index height(Index i) const { return std::min(tile_.rows, rows_ - first_row(i)); }
  /// Columns of the tiles of tile column j. @pre 0 ≤ j < tile_columns()
  Index width(Index j) const { return std::min(tile_.columns, columns_ - first_column(j)); }

  bool contains(const Tile& t) const {
    return t.row >= 0 && t.column >= 0 && t.row < tile_rows() && t.column < tile_columns();
  }
  /// Elements of a tile. @pre contains(t)
  Index elements(const Tile& t) const { return height(t.row) * width(t.column); }
  /// The tile row that has the diagonal of the first column of tile column j.
  Index diagonal_row(Index j) const { return first_column(j) / tile_.rows; }
  /// Whether the tile has elements on or below the diagonal. @pre contains(t)
  bool is_lower(const Tile& t) const { return t.row >= diagonal_row(t.column); }

  /// @pre contains(t)
  int owner(const Tile& t) const {
    return static_cast<int>(t.row % grid_.rows) * grid_.columns + grid_.column_of(t.column);
  }

  /// Number of tile rows of which the rank owns tiles. @pre 0 ≤ rank < ranks()
  Index tile_rows_of(int rank) const { return cyclic_share(tile_rows(), rank / grid_.columns, grid_.rows); }
  Index tile_columns_of(int rank) const { return share_of_columns(tile_columns(), rank % grid_.columns); }
  /// The tiles of the rank in the order of tile columns, then of tile rows. @pre 0 ≤ rank < ranks()
  std::vector<Tile> tiles_of(int rank) const;
  /// Position of t in tiles_of(owner(t)). @pre contains(t)
  Index position(const Tile& t) const {
    return share_of_columns(t.column, grid_.column_of(t.column)) * tile_rows_of(owner(t)) + t.row / grid_.rows;
  }

  friend bool operator==(const TileDistribution&, const TileDistribution&) = default;

 private:
  /// Of the numbers below n those that are `first` modulo `step`.
  static Index cyclic_share(Index n, Index first, Index step) { return first < n ? ceil_div(n - first, step) : 0; }
  /// Of the tile columns below n those of a grid column.
  Index share_of_columns(Index n, int grid_column) const;

  Index rows_, columns_;
  TileShape tile_;
  TileGrid grid_;
};

/// "1000x1000 in tiles of 256 over 2x3 ranks"; with a cycle "1000x1000 in tiles of 256 over 1x2 ranks (columns 0 0 1)".
std::string to_string(const TileDistribution& d);

}  // namespace aloni::views
