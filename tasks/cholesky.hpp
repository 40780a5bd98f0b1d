#pragma once
// Tile Cholesky factorisation of a symmetric positive definite matrix: A = L Lᵀ. Tasks start when the tiles that they
// read are ready, so no worker waits for a whole column.
//
//   TileMatrix<double> a(TileDistribution(n, n, 256), TilePart::lower);
//   a.fill(element);
//   cholesky(a, {.workers = 2});                // a holds L
//   solve(Factors::cholesky, a, b);             // tasks/solve.hpp
//
//   TileMatrix<double> part(comm, TileDistribution(n, n, 256, squarest_grid(comm.size())), TilePart::lower);
//   part.fill(element);
//   cholesky(comm, part, {.workers = 2});       // on all ranks of a communicator
//
// Use LAPACK's potrf instead for matrices of less than some four tiles.
//
// Source: Buttari, Langou, Kurzak and Dongarra, "A class of parallel tiled linear algebra algorithms for multicore
// architectures", Parallel Computing 35 (2009), algorithm 1. Across ranks: Tsujita and Endo, "Data driven scheduling
// approach for the multi-node multi-GPU Cholesky decomposition", JSSPP 2015.
#include <aloni/tasks/rank_report.hpp>
#include <aloni/tasks/runtime.hpp>
#include <aloni/tasks/tile_matrix.hpp>

namespace aloni::tasks {

/// The tasks of the factorisation of a matrix of tiles × tiles, as formulas. Tiles are those of matrix 0.
/// For each k: potrf(k); trsm(i,k) for i > k; syrk(j,k) for j > k; gemm(i,j,k) for i > j > k.
class CholeskyRule final : public TaskRule {
 public:
  /// @pre 0 ≤ tiles ≤ max_task_coordinate + 1, tile ≥ 1: rows of a tile, for costs. Throws InvalidArgument.
  CholeskyRule(Index tiles, Index tile);

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
  double unit_;  ///< floating-point operations of potrf of a tile
};

/// The same tasks as a graph, in the order of the serial algorithm. @pre as for CholeskyRule
TaskGraph cholesky_graph(Index tiles, Index tile);

/// Rows of a tile with which cholesky() and lu() run fast: 64 to 512, a multiple of 64. At least 8 tile rows, and 4 for
/// each worker, give all workers work until shortly before the end. Kernels on larger tiles are nearer to the speed of
/// the matrix product: gemm of double reaches 0.83 of it with 256 rows, 0.88 with 320 and 0.93 with 512.
/// @pre n, workers ≥ 1. Throws InvalidArgument.
Index suggested_tile(Index n, int workers);

/// Replaces the lower triangle of `a` by L. Nothing is read or written above the diagonal.
/// Equal tiles give equal bits for any number of workers and any order. BLAS computes on one thread per worker.
/// @pre as many rows as columns. Throws InvalidArgument.
/// Throws FactorisationError that names the tile and the column of the first pivot that is not positive; `a` then holds
/// a part of the work. Throws Unsupported in builds without aloni_ENABLE_LAPACK, and for a matrix on several ranks.
/// options.owns and options.worker_scope must be empty. Not collective.
template <class T>
RunReport cholesky(TileMatrix<T>& a, const RuntimeOptions& options = {});

/// The same on the ranks of `comm`, with the same bits. Rank r of the distribution is rank r of `comm`. options.workers
/// threads of each rank run tasks; the calling thread sends and receives. Tiles come on request (tile_requests.hpp).
/// Ranks of a node read tiles in place if `a` was made with `comm` or another communicator of its family.
/// Collective. Throws InvalidArgument and Unsupported on all ranks. FactorisationError is thrown on the rank of the
/// tile; then all other ranks throw PeerFailed with its text, and `comm` can only be destroyed. PeerFailed too if a
/// rank dies. Until it returns, no other thread uses the family of `comm`.
/// @pre comm.size() == a.distribution().ranks(), a.rank() == comm.rank()
template <class T>
RankReport cholesky(const comm::Communicator& comm, TileMatrix<T>& a, const RuntimeOptions& options = {});

}  // namespace aloni::tasks
