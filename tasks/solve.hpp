#pragma once
// Solves A x = b with the factors of cholesky() or lu(), tile by tile.
//
//   TileMatrix<double> b(TileDistribution(n, 1, 256));
//   solve(Factors::cholesky, a, b, {.workers = 2});      // b holds x
//
//   TileMatrix<double> b(comm, TileDistribution(n, 1, 256, {comm.size(), 1}));
//   solve(comm, Factors::cholesky, a, b);                // on all ranks of a communicator
//
//   MemoryTileStore right;
//   StoredMatrix<double> b(TileDistribution(n, 1, 256), TilePart::whole, right);
//   solve(Factors::cholesky, stored_a, b, {.bytes = Index{1} << 30});   // within a limit of memory (memory_limit.hpp)
//
// Forward substitution with L, then backward substitution with Lᵀ or U. On one rank both are one graph: the second
// begins where the first has ended. On several ranks there is a barrier between them. Within a limit of memory they are
// two runs, too. Each reads a tile of the factors once for each tile column of b, or less often.
#include <aloni/tasks/memory_limit.hpp>
#include <aloni/tasks/rank_report.hpp>
#include <aloni/tasks/runtime.hpp>
#include <aloni/tasks/tile_matrix.hpp>
#include <aloni/tasks/tile_store.hpp>

namespace aloni::tasks {

/// The factors that a matrix holds.
enum class Factors {
  cholesky,  ///< L in the lower triangle; A = L Lᵀ
  lu         ///< L without its diagonal of ones, and U; A = L U
};

/// The tasks for a matrix with `tiles` tile columns and a right-hand side of tiles × columns tiles. The factors are
/// matrix 0 of the graph, the right-hand side is matrix 1. `width`: rows of a tile of the right-hand side, and columns
/// of a tile of the factors, for costs. A tile of the factors has `height` × `width` rows.
/// @pre as for CholeskyRule, and the same for columns; height is 1 for LU. Throws InvalidArgument.
TaskGraph solve_graph(Factors kind, Index tiles, Index columns, Index width, Index height = 1);

/// Replaces b by the solution of A x = b for each column of b. Bits and threads as for cholesky().
/// @pre a has as many rows as columns, and tiles as cholesky() or lu() takes them
/// @pre b has the rows of a; a tile of b has as many rows as one of a has columns; b.part() is whole
/// Throws InvalidArgument. Throws Unsupported as cholesky() does. Factors that are not finite are not found.
/// options.owns and options.worker_scope must be empty. Not collective.
template <class T>
RunReport solve(Factors kind, const TileMatrix<T>& a, TileMatrix<T>& b, const RuntimeOptions& options = {});

/// The same on the ranks of `comm`, with the same bits. Tiles of the factors go to the ranks that own the tiles of b
/// below them: a rank needs memory for few of them at a time, and none for those that it reads in place. So give b a
/// grid with as many rows as there are ranks; the grids of a and b need not be equal. The rest as for cholesky() on
/// ranks; the report has both substitutions, and counts a task for each tile of the factors that a rank provides.
/// Collective. Throws InvalidArgument and Unsupported on all ranks, also if they pass different systems. Throws
/// PeerFailed if a rank dies.
/// @pre comm.size() is the number of ranks of both distributions; a.rank() == b.rank() == comm.rank()
/// @pre the rest as above, but for the number of ranks
template <class T>
RankReport solve(const comm::Communicator& comm, Factors kind, const TileMatrix<T>& a, TileMatrix<T>& b,
                 const RuntimeOptions& options = {});

/// The same for tiles in stores, within a limit of the memory for tiles of both matrices, with the same bits. A slot
/// has room for the largest tile of both. The least limit is 3 slots, the tiles of one task. The report has both
/// substitutions; its slots and block are those of the second. Also throws InvalidArgument, before anything is moved,
/// for a limit below the least, which it names, and if both matrices have one store. Throws the exceptions of the
/// stores.
/// Not collective.
template <class T>
LimitedReport solve(Factors kind, const StoredMatrix<T>& a, StoredMatrix<T>& b, const MemoryLimit& limit,
                    const RuntimeOptions& options = {});

/// The same on the ranks of `comm`, with the same bits. The least limit is 4 slots on each rank. Copies of other ranks'
/// tiles that leave memory go to the stores, that of `a` included. Collective: throws InvalidArgument for a limit below
/// the least on any rank, on all ranks. An error of a store is thrown on its rank; then all others throw PeerFailed.
template <class T>
LimitedReport solve(const comm::Communicator& comm, Factors kind, const StoredMatrix<T>& a, StoredMatrix<T>& b,
                    const MemoryLimit& limit, const RuntimeOptions& options = {});

}  // namespace aloni::tasks
