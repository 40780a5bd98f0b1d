#pragma once
// BulkSynchronousCholesky: the factorisation A = L Lᵀ in steps that all ranks take together, to compare tasks with.
// Right-looking, without look-ahead. Step k:
//   1. the owner of the diagonal tile of column k factorises it and broadcasts it to the ranks of its tile column;
//   2. these ranks solve for their tiles (i,k) below it;
//   3. tiles (i,k) go by broadcast along the rows of the grid of ranks, then along its columns;
//   4. all ranks update their tiles (i,j), j > k, on and below the diagonal;
//   5. barrier.
// Tiles, their owners and their kernels are those of tasks::cholesky, and each tile gets its updates in the same order.
// So the factor has the same bits. Threads of a rank share the tiles of 2 and 4, each takes the next one when it is
// free. Broadcasts of one phase are in flight together, straight from and into tiles: no packing. A tile that no other
// rank of its row or column reads is not sent. If all ranks reach each other's tiles in shared memory, they read them
// there as tasks do: no tile is sent, and a broadcast of one byte says that the tiles of a panel are ready.
// With more than two ranks in a row some get tiles that they do not read, as in ScaLAPACK.
//
//   BulkSynchronousCholesky<double> bulk(comm, a, {.threads = 2});
//   bulk.factorise();
//
// Without the barrier a rank waits only where it needs the tile of another one. It may then factorise its panel while
// a slower rank still updates: a small look-ahead that costs nothing. ScaLAPACK's pdpotrf has no barrier either.
//
// Source: Choi, Dongarra, Ostrouchov, Petitet, Walker and Whaley, "Design and implementation of the ScaLAPACK LU, QR,
// and Cholesky factorization routines", Scientific Programming 5 (1996). Barriers: Valiant, "A bridging model for
// parallel computation", Communications of the ACM 33 (1990).
#include "factorisation/loop_team.hpp"

#include <aloni/core/comm/communicator.hpp>
#include <aloni/tasks/tile_matrix.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace aloni::bench {

struct BulkSynchronousOptions {
  int threads = 1;      ///< of each rank, the calling one included
  bool barrier = true;  ///< at the end of each step
};

/// Instantiated for double and float.
template <class T>
class BulkSynchronousCholesky {
 public:
  /// `a` outlives this object. Collective. Throws InvalidArgument on all ranks for less than one thread, and for a
  /// matrix that is not square or not on the ranks of `comm`. Also for tiles whose rows are no multiple of their
  /// columns. Throws Unsupported in builds without kernels.
  BulkSynchronousCholesky(const comm::Communicator& comm, tasks::TileMatrix<T>& a,
                          const BulkSynchronousOptions& options = {});

  /// Replaces the lower triangle of the matrix by L. Throws FactorisationError on the rank of the tile whose pivot is
  /// not positive; all others throw PeerFailed, and `comm` can only be destroyed. Collective.
  void factorise();
  /// Whether ranks read each other's tiles in place.
  bool reads_in_place() const { return in_place_; }

 private:
  bool open_tiles();
  void step(Index k);
  void broadcast_panel(Index k);
  T* panel_tile(Index i, Index k);
  std::size_t at(Index i, Index j) const { return static_cast<std::size_t>(j * tiles_.tile_rows() + i); }
  int grid_row(Index tile_row) const { return tiles_.owner({tile_row, 0}) / tiles_.grid().columns; }
  int grid_column(Index tile_column) const { return tiles_.owner({0, tile_column}) % tiles_.grid().columns; }

  comm::Communicator comm_;
  tasks::TileMatrix<T>& a_;
  views::TileDistribution tiles_;
  BulkSynchronousOptions options_;
  int row_, column_;  // of this rank in the grid
  comm::Communicator row_ranks_, column_ranks_;
  LoopTeam team_;
  std::vector<std::unique_ptr<T[]>> panel_;         // copies of other ranks' tiles of column k, by tile row
  std::vector<std::shared_ptr<std::byte>> opened_;  // other ranks' tiles in shared memory
  bool in_place_;
};

}  // namespace aloni::bench
