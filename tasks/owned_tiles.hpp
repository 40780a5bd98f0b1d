#pragma once
// OwnedTiles: which tiles of a matrix a rank has. TileMatrix keeps them in memory, StoredMatrix in a store.
#include <aloni/views/tile_distribution.hpp>

namespace aloni::tasks {

/// The tiles of a matrix that are kept.
enum class TilePart {
  whole,
  lower  ///< those with elements on or below the diagonal: all that a symmetric matrix needs
};

/// Not collective.
class OwnedTiles {
 public:
  const views::TileDistribution& distribution() const { return distribution_; }
  TilePart part() const { return part_; }
  int rank() const { return rank_; }
  /// Whether the tile is kept here.
  bool has(const views::Tile& t) const {
    return distribution_.contains(t) && distribution_.owner(t) == rank_ &&
           (part_ == TilePart::whole || distribution_.is_lower(t));
  }

 protected:
  /// @pre 0 ≤ rank < distribution.ranks(); rows and columns of a tile < 2^31, since BLAS counts in int
  /// @pre for TilePart::lower as many rows as columns; `lower`: the end of the error "…, if only lower tiles "
  /// Throws InvalidArgument.
  OwnedTiles(const char* operation, const views::TileDistribution& distribution, TilePart part, int rank,
             const char* lower);
  OwnedTiles(const OwnedTiles&) = default;
  OwnedTiles& operator=(const OwnedTiles&) = default;
  ~OwnedTiles() = default;

  /// Throws InvalidArgument unless the other matrix has the same tiles.
  void check_equal(const char* operation, const char* argument, const OwnedTiles& other) const;
  /// f(tile) for each of them, in the order of TileDistribution::tiles_of.
  template <class F>
  void for_each_tile(F&& f) const {
    for (const views::Tile& t : distribution_.tiles_of(rank_))
      if (has(t)) f(t);
  }

 private:
  views::TileDistribution distribution_;
  TilePart part_;
  int rank_;
};

}  // namespace aloni::tasks
