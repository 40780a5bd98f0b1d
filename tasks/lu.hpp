#pragma once
// Tile LU factorisation without pivoting: A = L U, where L has ones on its diagonal. Both replace A.
//
//   TileMatrix<double> a(TileDistribution(n, n, 256));
//   lu(a, {.workers = 2});
//   solve(Factors::lu, a, b);       // tasks/solve.hpp
//
// Only for matrices that need no pivoting, for example diagonally dominant ones. For others small pivots make the
// errors as large as the result; LAPACK's getrf pivots.
//
// Source: algorithm 3, which has the same tasks with pivoting between tiles, of Buttari, Langou, Kurzak and Dongarra,
// "A class of parallel tiled linear algebra algorithms for multicore architectures", Parallel Computing 35 (2009).
#include <aloni/tasks/memory_limit.hpp>
#include <aloni/tasks/rank_report.hpp>
#include <aloni/tasks/runtime.hpp>
#include <aloni/tasks/tile_matrix.hpp>
#include <aloni/tasks/tile_store.hpp>

namespace aloni::tasks {

/// The tasks of the factorisation of a matrix of tiles × tiles, as formulas. Tiles are those of matrix 0.
/// For each k: getrf(k); trsm(i,k) and trsm_row(k,j) for i, j > k; gemm(i,j,k) for i, j > k.
class LuRule final : public TaskRule {
 public:
  /// @pre 0 ≤ tiles ≤ max_task_coordinate + 1, tile ≥ 1: rows of a tile, for costs. Throws InvalidArgument.
  LuRule(Index tiles, Index tile);
  /// The rule for a matrix. @pre square tiles. Throws InvalidArgument.
  explicit LuRule(const views::TileDistribution& a);

  std::vector<TileId> tiles() const override;
  std::int32_t writes(const TileId& tile) const override;
  Task writer_of(const TileVersion& version) const override;
  TileVersion output(const Task& task) const override;
  void append_accesses(const Task& task, std::vector<TileAccess>& accesses) const override;
  std::int32_t count_predecessors(const Task& task) const override;
  void append_successors(const Task& task, std::vector<Task>& successors) const override;
  void append_roots(std::vector<Task>& roots) const override;
  double cost(const Task& task) const override;
  double critical_path(const Task& task) const override;

 private:
  std::int32_t tiles_;
  double unit_;  ///< a third of the cube of the rows of a tile
};

/// The same tasks as a graph, in the order of the serial algorithm. @pre as for LuRule
TaskGraph lu_graph(Index tiles, Index tile);

/// Rows of a tile with which lu() runs fast: 64 to 512, a multiple of 64. At least 8 tile rows, and 4 for each worker,
/// give all workers work until shortly before the end. Kernels on larger tiles are nearer to the speed of the matrix
/// product. @pre n, workers ≥ 1. Throws InvalidArgument.
Index suggested_lu_tile(Index n, int workers);

/// Replaces `a` by L and U. Bits and threads as for cholesky().
/// @pre as many rows as columns, square tiles, a.part() is whole. Throws InvalidArgument.
/// Throws FactorisationError that names the tile and the column of the first pivot that is 0 or not finite; `a` then
/// holds a part of the work. Throws Unsupported in builds without aloni_ENABLE_LAPACK, and for a matrix on several
/// ranks. options.owns and options.worker_scope must be empty. Not collective.
template <class T>
RunReport lu(TileMatrix<T>& a, const RuntimeOptions& options = {});

/// The same for tiles in a store, within a limit of the memory for tiles (memory_limit.hpp), with the same bits. The
/// order of the tasks is chosen for the limit; with options.schedule_seed it is random among the tasks in memory.
/// Also throws InvalidArgument, before anything is moved, for a limit below the least, which it names: 3 tiles.
/// Throws the exceptions of the store, for example FileError when the disk is full. Not collective.
template <class T>
LimitedReport lu(StoredMatrix<T>& a, const MemoryLimit& limit, const RuntimeOptions& options = {});

/// The same on the ranks of `comm`; everything else as for cholesky() on ranks. Collective.
template <class T>
RankReport lu(const comm::Communicator& comm, TileMatrix<T>& a, const RuntimeOptions& options = {});

/// The same within a limit of memory on each rank, with the same bits (memory_limit.hpp). The least limit is 4 tiles.
/// Each rank has its own limit and its own store. Collective: throws InvalidArgument for a limit below the least on any
/// rank, on all ranks. An error of a store is thrown on its rank; then all other ranks throw PeerFailed.
template <class T>
LimitedReport lu(const comm::Communicator& comm, StoredMatrix<T>& a, const MemoryLimit& limit,
                 const RuntimeOptions& options = {});

}  // namespace aloni::tasks
