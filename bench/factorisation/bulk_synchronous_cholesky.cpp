#include "factorisation/bulk_synchronous_cholesky.hpp"

#include <aloni/core/blas_library.hpp>
#include <aloni/core/error.hpp>
#include <aloni/tasks/detail/run_on_tiles.hpp>
#include <aloni/tasks/detail/tile_kernels.hpp>

#include <exception>
#include <span>
#include <string>
#include <utility>

namespace aloni::bench {

namespace {

constexpr const char* bulk_operation = "aloni::bench::BulkSynchronousCholesky";

using views::Tile;
using views::TileDistribution;
namespace kernels = tasks::detail;

TileDistribution checked(const comm::Communicator& comm, const TileDistribution& tiles,
                         const BulkSynchronousOptions& options) {
  comm::collectively(comm, bulk_operation, [&] {
    kernels::check_kernels(bulk_operation);
    kernels::check_square(bulk_operation, tiles);
    if (tiles.ranks() != comm.size())
      throw InvalidArgument(bulk_operation, "tiles", to_string(tiles),
                            "a matrix on " + std::to_string(comm.size()) + " ranks");
    if (tiles.tile_rows() != tiles.tile_columns())
      throw Unsupported(bulk_operation, "tiles", to_string(tiles), "square tiles");
    if (options.threads < 1)
      throw InvalidArgument(bulk_operation, "threads", std::to_string(options.threads), "at least 1 thread");
  });
  return tiles;
}

std::vector<int> ranks_of_row(const views::TileGrid& grid, int row) {
  std::vector<int> ranks;
  for (int c = 0; c < grid.columns; ++c) ranks.push_back(row * grid.columns + c);
  return ranks;
}

std::vector<int> ranks_of_column(const views::TileGrid& grid, int column) {
  std::vector<int> ranks;
  for (int r = 0; r < grid.rows; ++r) ranks.push_back(r * grid.columns + column);
  return ranks;
}

}  // namespace

template <class T>
BulkSynchronousCholesky<T>::BulkSynchronousCholesky(const comm::Communicator& comm, const TileDistribution& tiles,
                                                    const BulkSynchronousOptions& options)
    : comm_(comm),
      tiles_(checked(comm, tiles, options)),
      options_(options),
      row_(comm.rank() / tiles.grid().columns),
      column_(comm.rank() % tiles.grid().columns),
      row_ranks_(comm.subgroup(ranks_of_row(tiles.grid(), row_))),
      column_ranks_(comm.subgroup(ranks_of_column(tiles.grid(), column_))),
      team_(options.threads),
      panel_(static_cast<std::size_t>(tiles.tile_rows())) {}

template <class T>
void BulkSynchronousCholesky<T>::factorise(tasks::TileMatrix<T>& a) {
  if (a.distribution() != tiles_ || a.rank() != comm_.rank())
    throw InvalidArgument(bulk_operation, "a", to_string(a.distribution()) + " on rank " + std::to_string(a.rank()),
                          to_string(tiles_) + " on rank " + std::to_string(comm_.rank()));
  try {
    for (Index k = 0; k < tiles_.tile_columns(); ++k) step(a, k);
  } catch (const std::exception& error) {
    comm_.poison(error.what());  // the others wait in a broadcast
    throw;
  }
}

template <class T>
void BulkSynchronousCholesky<T>::step(tasks::TileMatrix<T>& a, Index k) {
  const auto block = [&](Index i, Index j) { return kernels::block(a, i, j); };
  if (tiles_.owner({k, k}) == comm_.rank()) {
    const OneBlasThread one;
    kernels::potrf(bulk_operation, block(k, k), {k, k}, k * tiles_.width(0));
  }
  const auto panel = [&](Index i) {
    const int rows = static_cast<int>(tiles_.height(i));
    return kernels::TileBlock<const T>{panel_tile(a, i, k), rows, static_cast<int>(tiles_.width(k)), rows};
  };
  std::vector<Tile> mine;  // of the loop that follows
  if (column_ == grid_column(k)) {
    if (column_ranks_.size() > 1) {
      const auto elements = static_cast<std::size_t>(tiles_.height(k) * tiles_.width(k));
      column_ranks_.run(comm::Broadcast{std::span(panel_tile(a, k, k), elements), grid_row(k)});
    }
    for (Index i = k + 1; i < tiles_.tile_rows(); ++i)
      if (row_ == grid_row(i)) mine.push_back({i, k});
    const kernels::TileBlock<const T> diagonal = panel(k);
    team_.run(std::ssize(mine), [&](Index t) {
      kernels::trsm('R', 'L', 'T', 'N', diagonal, block(mine[static_cast<std::size_t>(t)].row, k));
    });
  }
  broadcast_panel(a, k);
  mine.clear();
  for (Index j = k + 1; j < tiles_.tile_columns(); ++j)
    for (Index i = j; i < tiles_.tile_rows(); ++i)
      if (a.has({i, j})) mine.push_back({i, j});
  team_.run(std::ssize(mine), [&](Index t) {
    const auto [i, j] = mine[static_cast<std::size_t>(t)];
    if (i == j) {
      kernels::subtract_square(panel(j), block(j, j));
    } else {
      kernels::subtract_product('N', panel(i), 'T', panel(j), block(i, j));
    }
  });
  if (options_.barrier) comm_.barrier();
}

template <class T>
void BulkSynchronousCholesky<T>::broadcast_panel(tasks::TileMatrix<T>& a, Index k) {
  std::vector<comm::Request> requests;
  const auto broadcast = [&](const comm::Communicator& ranks, Index i, int root) {
    const auto elements = static_cast<std::size_t>(tiles_.height(i) * tiles_.width(k));
    requests.push_back(ranks.start(comm::Broadcast{std::span(panel_tile(a, i, k), elements), root}));
  };
  if (row_ranks_.size() > 1) {
    const auto read_beside = [&](Index i) {  // tiles (i,j) of other ranks of the row
      for (Index j = k + 1; j <= i; ++j)
        if (grid_column(j) != grid_column(k)) return true;
      return false;
    };
    for (Index i = k + 1; i < tiles_.tile_rows(); ++i)
      if (row_ == grid_row(i) && read_beside(i)) broadcast(row_ranks_, i, grid_column(k));
    comm_.wait(requests);
    requests.clear();
  }
  if (column_ranks_.size() > 1) {
    const auto read_below = [&](Index j) {  // tiles (i,j) of other ranks of the column
      for (Index i = j + 1; i < tiles_.tile_rows(); ++i)
        if (grid_row(i) != grid_row(j)) return true;
      return false;
    };
    for (Index j = k + 1; j < tiles_.tile_columns(); ++j)
      if (column_ == grid_column(j) && read_below(j)) broadcast(column_ranks_, j, grid_row(j));
    comm_.wait(requests);
  }
}

/// Tile (i,k) where it lies on this rank: in the matrix or as a copy.
template <class T>
T* BulkSynchronousCholesky<T>::panel_tile(tasks::TileMatrix<T>& a, Index i, Index k) {
  if (a.has({i, k})) return a.tile({i, k});
  auto& copy = panel_[static_cast<std::size_t>(i)];
  if (!copy) copy = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(tiles_.height(0) * tiles_.width(0)));
  return copy.get();
}

template class BulkSynchronousCholesky<float>;
template class BulkSynchronousCholesky<double>;

}  // namespace aloni::bench
