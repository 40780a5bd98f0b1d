#pragma once
// A factor whose tiles are in a store: the store, and the solution of a system with one tile in memory.
#include "options.hpp"

#include <aloni/core/comm/communicator.hpp>
#include <aloni/tasks/tile_store.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cholesky {

/// Throws FileError if the file cannot be created.
inline std::unique_ptr<aloni::tasks::TileStore> make_store(const Options& options) {
  if (options.swap == "memory") return std::make_unique<aloni::tasks::MemoryTileStore>();
  namespace fs = std::filesystem;
  const fs::path folder = options.swap.empty() ? fs::temp_directory_path() : fs::path(options.swap);
  return std::make_unique<aloni::tasks::FileTileStore>(aloni::io::real_file_system(),
                                                       (folder / "aloni-cholesky-tiles").string());
}

/// Replaces x by the solution of L Lᵀ x = b, where x holds b, on all ranks. Each tile is read and sent twice.
/// Collective.
template <class T>
void solve_stored(const aloni::comm::Communicator& comm, const aloni::tasks::StoredMatrix<T>& factor,
                  std::vector<double>& x) {
  const aloni::views::TileDistribution& d = factor.distribution();
  std::vector<T> tile;
  const auto read = [&](Index i, Index j) {
    tile.resize(static_cast<std::size_t>(d.elements({i, j})));
    const int owner = d.owner({i, j});
    if (owner == comm.rank()) factor.read({i, j}, std::span(tile));
    if (comm.size() > 1) comm.run(aloni::comm::Broadcast{std::span(tile), owner});
  };
  const auto at = [&](Index i) -> double& { return x[static_cast<std::size_t>(i)]; };
  const auto element = [&](Index i, Index j, Index row, Index column) {
    return static_cast<double>(
        tile[static_cast<std::size_t>((column - d.first_column(j)) * d.height(i) + row - d.first_row(i))]);
  };
  for (Index j = 0; j < d.tile_columns(); ++j)  // L y = b
    for (Index i = d.diagonal_row(j); i < d.tile_rows(); ++i) {
      read(i, j);
      for (Index c = d.first_column(j); c < d.first_column(j) + d.width(j); ++c) {
        if (i == d.diagonal_row(j)) at(c) /= element(i, j, c, c);
        for (Index r = std::max(c + 1, d.first_row(i)); r < d.first_row(i) + d.height(i); ++r)
          at(r) -= element(i, j, r, c) * at(c);
      }
    }
  for (Index j = d.tile_columns() - 1; j >= 0; --j)  // Lᵀ x = y
    for (Index i = d.tile_rows() - 1; i >= d.diagonal_row(j); --i) {
      read(i, j);
      for (Index c = d.first_column(j) + d.width(j) - 1; c >= d.first_column(j); --c) {
        for (Index r = std::max(c + 1, d.first_row(i)); r < d.first_row(i) + d.height(i); ++r)
          at(c) -= element(i, j, r, c) * at(r);
        if (i == d.diagonal_row(j)) at(c) /= element(i, j, c, c);
      }
    }
}

}  // namespace cholesky
