#pragma once
// Tile Cholesky factorisation of a symmetric positive definite matrix: A = L Lᵀ. Tasks start when the tiles that they
// read are ready, so no worker waits for a whole column.
//
//   TileMatrix<double> a(TileDistribution(n, n, suggested_tile(n, 2)), TilePart::lower);
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
// Tiles may be taller than wide, by a whole factor. A matrix product of 1,024 × 256 elements is 4 to 8 % faster than
// one of 256 × 256: BLAS copies the second factor once for four times as many rows (docs/experiments/cholesky.md). The
// diagonal then crosses a tile in steps: the tile of column k at the diagonal has rows above it, which no task uses.
//
// Source: Buttari, Langou, Kurzak and Dongarra, "A class of parallel tiled linear algebra algorithms for multicore
// architectures", Parallel Computing 35 (2009), algorithm 1. Across ranks: Tsujita and Endo, "Data driven scheduling
// approach for the multi-node multi-GPU Cholesky decomposition", JSSPP 2015.
#include <aloni/tasks/memory_limit.hpp>
#include <aloni/tasks/rank_report.hpp>
#include <aloni/tasks/runtime.hpp>
#include <aloni/tasks/tile_matrix.hpp>
#include <aloni/tasks/tile_store.hpp>

namespace aloni::tasks {

/// The tasks of the factorisation as formulas. Tiles are those of matrix 0.
/// Let d(k) be the row of the tile that has the diagonal of column k: k for square tiles.
/// For each k: potrf(k); trsm(i,k) for i > d(k); syrk(j,k) for j > k; gemm(i,j,k) for j > k, i > d(j).
/// potrf also finishes the rows of its tile below the diagonal block, as trsm; syrk also updates them, as gemm.
class CholeskyRule final : public TaskRule {
 public:
  /// `columns`: number of tile columns. `width`: columns of a tile, for costs. A tile has `height` × `width` rows.
  /// @pre 0 ≤ columns ≤ max_task_coordinate + 1; width, height ≥ 1. Throws InvalidArgument.
  CholeskyRule(Index columns, Index width, Index height = 1);
  /// The rule for a matrix. @pre rows of a tile are a multiple of its columns. Throws InvalidArgument.
  explicit CholeskyRule(const views::TileDistribution& a);

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
  std::int32_t diagonal_row(std::int32_t column) const { return column / height_; }
  Task potrf_task(std::int32_t k) const;
  Task update_task(std::int32_t i, std::int32_t j, std::int32_t k) const;
  Task step_task(std::int32_t i, std::int32_t j, std::int32_t k) const;
  double units(Kernel kernel, std::int32_t column) const;
  double from_trsm(double row, double k) const;
  double from_potrf(std::int32_t k) const;

  std::int32_t columns_, height_, rows_;
  double unit_;                     ///< floating-point operations of potrf of a square block
  std::vector<double> last_paths_;  ///< from potrf of each column of the last tile row, in units
};

/// The same tasks as a graph, in the order of the serial algorithm. @pre as for CholeskyRule
TaskGraph cholesky_graph(Index columns, Index width, Index height = 1);

/// The tiles with which cholesky() runs fast: 40 to 424 columns, and up to six times as many rows. About 16 tile
/// columns, and 4 for each worker, give all workers work until shortly before the end; so do more tile rows than
/// workers. Kernels on larger tiles are nearer to the speed of the matrix product. The columns are 8 more than a
/// multiple of 32: those of a tile with a multiple of 32 share few sets of the cache (docs/experiments/cholesky.md).
/// `workers`: of all ranks. @pre n, workers ≥ 1. Throws InvalidArgument.
views::TileShape suggested_tile(Index n, int workers);
/// The same with tiles of so many columns. @pre columns ≥ 1, too
views::TileShape suggested_tile(Index n, int workers, Index columns);

/// Replaces the lower triangle of `a` by L. Nothing is read or written above the diagonal.
/// Equal tiles give equal bits for any number of workers and any order. BLAS computes on one thread per worker.
/// @pre as many rows as columns; rows of a tile are a multiple of its columns. Throws InvalidArgument.
/// Throws FactorisationError that names the tile and the column of the first pivot that is not positive; `a` then holds
/// a part of the work. Throws Unsupported in builds without aloni_ENABLE_LAPACK, and for a matrix on several ranks.
/// options.owns and options.worker_scope must be empty. Not collective.
template <class T>
RunReport cholesky(TileMatrix<T>& a, const RuntimeOptions& options = {});

/// The same for tiles in a store, within a limit of the memory for tiles (memory_limit.hpp), with the same bits. The
/// order of the tasks is chosen for the limit; with options.schedule_seed it is random among the tasks in memory.
/// Also throws InvalidArgument, before anything is moved, for a limit below the least, which it names: 3 tiles.
/// Throws the exceptions of the store, for example FileError when the disk is full. Not collective.
template <class T>
LimitedReport cholesky(StoredMatrix<T>& a, const MemoryLimit& limit, const RuntimeOptions& options = {});

/// The same on the ranks of `comm`, with the same bits. Rank r of the distribution is rank r of `comm`. options.workers
/// threads of each rank run tasks; the calling thread sends and receives. Tiles come on request (tile_requests.hpp).
/// Ranks of a node read tiles in place if `a` was made with `comm` or another communicator of its family.
/// Collective. Throws InvalidArgument and Unsupported on all ranks, also if they pass different matrices or call
/// another factorisation. FactorisationError is thrown on all ranks and names the rank of the tile too; `comm` stays
/// usable. Throws PeerFailed if a rank dies; then `comm` can only be destroyed. Until it returns, no other thread uses
/// the family of `comm`. For communication beside it make a second family by from_mpi() (core/comm/mpi.hpp).
/// @pre comm.size() == a.distribution().ranks(), a.rank() == comm.rank()
template <class T>
RankReport cholesky(const comm::Communicator& comm, TileMatrix<T>& a, const RuntimeOptions& options = {});

/// The same within a limit of memory on each rank, with the same bits (memory_limit.hpp). The least limit is 4 tiles.
/// Each rank has its own limit and its own store. Collective: throws InvalidArgument for a limit below the least on any
/// rank, on all ranks. An error of a store is thrown on its rank; then all other ranks throw PeerFailed.
template <class T>
LimitedReport cholesky(const comm::Communicator& comm, StoredMatrix<T>& a, const MemoryLimit& limit,
                       const RuntimeOptions& options = {});

}  // namespace aloni::tasks
