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

TileDistribution checked(const comm::Communicator& comm, const TileDistribution& tiles, int rank,
                         const BulkSynchronousOptions& options) {
  comm::collectively(comm, bulk_operation, [&] {
    kernels::check_kernels(bulk_operation);
    kernels::check_square(bulk_operation, tiles);
    if (tiles.ranks() != comm.size())
      throw InvalidArgument(bulk_operation, "tiles", to_string(tiles),
                            "a matrix on " + std::to_string(comm.size()) + " ranks");
    if (rank != comm.rank())
      throw InvalidArgument(bulk_operation, "a.rank()", std::to_string(rank), std::to_string(comm.rank()));
    if (tiles.tile().rows % tiles.tile().columns != 0)
      throw InvalidArgument(bulk_operation, "tiles", to_string(tiles),
                            "tiles whose rows are a multiple of their columns");
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

/// Returns after rank `root` of the group has called it.
void say_ready(const comm::Communicator& ranks, int root) {
  char nothing = 0;
  ranks.run(comm::Broadcast{std::span(&nothing, 1), root});
}

}  // namespace

template <class T>
BulkSynchronousCholesky<T>::BulkSynchronousCholesky(const comm::Communicator& comm, tasks::TileMatrix<T>& a,
                                                    const BulkSynchronousOptions& options)
    : comm_(comm),
      a_(a),
      tiles_(checked(comm, a.distribution(), a.rank(), options)),
      options_(options),
      row_(comm.rank() / tiles_.grid().columns),
      column_(comm.rank() % tiles_.grid().columns),
      row_ranks_(comm.subgroup(ranks_of_row(tiles_.grid(), row_))),
      column_ranks_(comm.subgroup(ranks_of_column(tiles_.grid(), column_))),
      team_(options.threads),
      panel_(static_cast<std::size_t>(tiles_.tile_rows())),
      opened_(static_cast<std::size_t>(tiles_.tile_rows() * tiles_.tile_columns())),
      in_place_(open_tiles()) {}

/// Opens the tiles of all other ranks. Returns on all ranks whether all of them could.
template <class T>
bool BulkSynchronousCholesky<T>::open_tiles() {
  const auto bytes = [&](const Tile& t) { return static_cast<std::size_t>(tiles_.elements(t)) * sizeof(T); };
  const auto lower_tiles_of = [&](int rank) {
    std::vector<Tile> tiles = tiles_.tiles_of(rank);
    std::erase_if(tiles, [&](const Tile& t) { return !tiles_.is_lower(t); });
    return tiles;
  };
  std::vector<std::vector<comm::ExposedMemory>> told(static_cast<std::size_t>(comm_.size())), heard = told;
  std::vector<comm::Request> requests;
  bool all = true;
  for (int peer = 0; peer < comm_.size(); ++peer) {
    if (peer == comm_.rank()) continue;
    auto& out = told[static_cast<std::size_t>(peer)];
    auto& in = heard[static_cast<std::size_t>(peer)];
    for (const Tile& t : lower_tiles_of(comm_.rank())) out.push_back(comm_.expose(a_.tile(t), bytes(t), peer));
    in.resize(lower_tiles_of(peer).size());
    requests.push_back(comm_.receive(std::as_writable_bytes(std::span(in)), peer, 0));
    requests.push_back(comm_.send(std::as_bytes(std::span(out)), peer, 0));
  }
  comm_.wait(requests);
  for (int peer = 0; peer < comm_.size(); ++peer) {
    const std::vector<Tile> tiles = lower_tiles_of(peer);
    for (std::size_t t = 0; t < tiles.size() && peer != comm_.rank(); ++t) {
      const comm::ExposedMemory& memory = heard[static_cast<std::size_t>(peer)][t];
      auto& opened = opened_[at(tiles[t].row, tiles[t].column)];
      if (memory.reachable()) opened = comm_.open(peer, memory, bytes(tiles[t]));
      all = all && opened;
    }
  }
  all = comm_.all_reduce(std::int64_t{all}, comm::Reduction::min) == 1;
  if (!all) opened_.assign(opened_.size(), nullptr);
  return all;
}

template <class T>
void BulkSynchronousCholesky<T>::factorise() {
  try {
    for (Index k = 0; k < tiles_.tile_columns(); ++k) step(k);
  } catch (const std::exception& error) {
    comm_.poison(error.what());  // the others wait in a broadcast
    throw;
  }
}

template <class T>
void BulkSynchronousCholesky<T>::step(Index k) {
  const auto block = [&](Index i, Index j) { return kernels::block(a_, i, j); };
  const auto panel = [&](Index i) {
    const int rows = static_cast<int>(tiles_.height(i));
    return kernels::TileBlock<const T>{panel_tile(i, k), rows, static_cast<int>(tiles_.width(k)), rows};
  };
  // The first row of the diagonal block of column j in its tile: 0 for square tiles.
  const auto first_row = [&](Index j) {
    return static_cast<int>(tiles_.first_column(j) - tiles_.first_row(tiles_.diagonal_row(j)));
  };
  const auto width = [&](Index j) { return static_cast<int>(tiles_.width(j)); };

  const Index diagonal = tiles_.diagonal_row(k);
  if (tiles_.owner({diagonal, k}) == comm_.rank()) {
    const OneBlasThread one;
    const auto target = block(diagonal, k), square = kernels::rows_of(target, first_row(k), width(k));
    kernels::potrf(bulk_operation, square, {diagonal, k}, tiles_.first_column(k));
    kernels::trsm('R', 'L', 'T', 'N', square, kernels::rows_below(target, first_row(k) + width(k)));
  }
  std::vector<Tile> mine;  // of the loop that follows
  if (column_ == grid_column(k)) {
    if (column_ranks_.size() > 1) {
      const auto elements = static_cast<std::size_t>(tiles_.height(diagonal) * tiles_.width(k));
      if (in_place_) {
        say_ready(column_ranks_, grid_row(diagonal));
      } else {
        column_ranks_.run(comm::Broadcast{std::span(panel_tile(diagonal, k), elements), grid_row(diagonal)});
      }
    }
    for (Index i = diagonal + 1; i < tiles_.tile_rows(); ++i)
      if (row_ == grid_row(i)) mine.push_back({i, k});
    const auto square = kernels::rows_of(panel(diagonal), first_row(k), width(k));
    team_.run(std::ssize(mine), [&](Index t) {
      kernels::trsm('R', 'L', 'T', 'N', square, block(mine[static_cast<std::size_t>(t)].row, k));
    });
  }
  broadcast_panel(k);
  mine.clear();
  for (Index j = k + 1; j < tiles_.tile_columns(); ++j)
    for (Index i = tiles_.diagonal_row(j); i < tiles_.tile_rows(); ++i)
      if (a_.has({i, j})) mine.push_back({i, j});
  team_.run(std::ssize(mine), [&](Index t) {
    const auto [i, j] = mine[static_cast<std::size_t>(t)];
    const auto square = kernels::rows_of(panel(tiles_.diagonal_row(j)), first_row(j), width(j));
    const auto target = block(i, j);
    if (i > tiles_.diagonal_row(j)) return kernels::subtract_product('N', panel(i), 'T', square, target);
    const int below = first_row(j) + width(j);
    kernels::subtract_square(square, kernels::rows_of(target, first_row(j), width(j)));
    kernels::subtract_product('N', kernels::rows_below(panel(i), below), 'T', square,
                              kernels::rows_below(target, below));
  });
  if (options_.barrier) comm_.barrier();
}

template <class T>
void BulkSynchronousCholesky<T>::broadcast_panel(Index k) {
  if (in_place_) {  // the ranks of the column wait for each other, then those of each row for the one in the column
    if (column_ == grid_column(k) && column_ranks_.size() > 1) column_ranks_.barrier();
    if (row_ranks_.size() > 1) say_ready(row_ranks_, grid_column(k));
    return;
  }
  std::vector<comm::Request> requests;
  const auto broadcast = [&](const comm::Communicator& ranks, Index i, int root) {
    const auto elements = static_cast<std::size_t>(tiles_.elements({i, k}));
    requests.push_back(ranks.start(comm::Broadcast{std::span(panel_tile(i, k), elements), root}));
  };
  // Whether a column j > k whose diagonal lies in tile rows `from` to i belongs to grid columns that `belongs` accepts.
  const auto has_column = [&](Index from, Index i, const auto& belongs) {
    for (Index j = k + 1; j < tiles_.tile_columns() && tiles_.diagonal_row(j) <= i; ++j)
      if (tiles_.diagonal_row(j) >= from && belongs(grid_column(j))) return true;
    return false;
  };
  if (row_ranks_.size() > 1) {
    const auto other = [&](int column) { return column != grid_column(k); };
    for (Index i = tiles_.diagonal_row(k); i < tiles_.tile_rows(); ++i)
      if (row_ == grid_row(i) && has_column(0, i, other)) broadcast(row_ranks_, i, grid_column(k));
    comm_.wait(requests);
    requests.clear();
  }
  if (column_ranks_.size() > 1) {
    const auto this_one = [&](int column) { return column == column_; };
    const auto read_below = [&](Index r) {  // by other ranks of the column
      for (Index i = r + 1; i < tiles_.tile_rows(); ++i)
        if (grid_row(i) != grid_row(r)) return true;
      return false;
    };
    for (Index r = tiles_.diagonal_row(k); r < tiles_.tile_rows(); ++r)
      if (has_column(r, r, this_one) && read_below(r)) broadcast(column_ranks_, r, grid_row(r));
    comm_.wait(requests);
  }
}

/// Tile (i,k) where this rank reads it: in its matrix, in that of another rank, or as a copy.
template <class T>
T* BulkSynchronousCholesky<T>::panel_tile(Index i, Index k) {
  if (a_.has({i, k})) return a_.tile({i, k});
  if (in_place_) return reinterpret_cast<T*>(opened_[at(i, k)].get());
  auto& copy = panel_[static_cast<std::size_t>(i)];
  if (!copy) copy = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(tiles_.height(0) * tiles_.width(0)));
  return copy.get();
}

template class BulkSynchronousCholesky<float>;
template class BulkSynchronousCholesky<double>;

}  // namespace aloni::bench
