#include <aloni/tasks/owned_tiles.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <limits>
#include <string>

namespace aloni::tasks {

OwnedTiles::OwnedTiles(const char* operation, const views::TileDistribution& distribution, TilePart part, int rank,
                       const char* lower)
    : distribution_(distribution), part_(part), rank_(rank) {
  if (rank < 0 || rank >= distribution.ranks())
    throw InvalidArgument(operation, "rank", std::to_string(rank),
                          "from 0 to " + std::to_string(distribution.ranks() - 1));
  const views::TileShape& tile = distribution.tile();
  if (std::max(tile.rows, tile.columns) > std::numeric_limits<int>::max())
    throw InvalidArgument(operation, "tile", to_string(tile), "less than 2^31 rows and columns: BLAS counts in int");
  if (part == TilePart::lower && distribution.rows() != distribution.columns())
    throw InvalidArgument(operation, "distribution", to_string(distribution),
                          std::string("as many rows as columns, if only lower tiles ") + lower);
}

void OwnedTiles::check_equal(const char* operation, const char* argument, const OwnedTiles& other) const {
  if (other.distribution_ == distribution_ && other.part_ == part_ && other.rank_ == rank_) return;
  throw InvalidArgument(operation, argument, to_string(other.distribution_),
                        "the tiles of this matrix, " + to_string(distribution_) + ", on the same rank");
}

}  // namespace aloni::tasks
