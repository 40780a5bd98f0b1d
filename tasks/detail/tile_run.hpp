#pragma once
// TileRun: a RankRun on the tiles of matrices. Matrix m of the rule is the m-th matrix.
//
//   TileRun<T> run(operation, comm, rule, {&a, &b});
//   run.start([&](const Task& task, int) { … run.block({0, i, k}) … }, options);   // collective
#include <aloni/tasks/detail/rank_run.hpp>
#include <aloni/tasks/detail/run_on_tiles.hpp>
#include <aloni/tasks/detail/tile_kernels.hpp>
#include <aloni/tasks/rank_report.hpp>
#include <aloni/tasks/tile_matrix.hpp>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace aloni::tasks::detail {

template <class T>
class TileRun {
 public:
  /// The rule and the matrices outlive the object. @pre as for RankRun. Collective.
  TileRun(const char* operation, const comm::Communicator& comm, const TaskRule& rule,
          std::vector<const TileMatrix<T>*> matrices)
      : matrices_(std::move(matrices)),
        run_(
            operation, comm, rule, [this](const TileId& t) { return distribution(t).owner(t.tile()); },
            [this](const TileId& t) { return elements(t) * sizeof(T); },
            [this](const TileId& t) { return std::as_bytes(std::span(matrix(t).tile(t.tile()), elements(t))); }) {}
  TileRun(const TileRun&) = delete;
  TileRun& operator=(const TileRun&) = delete;

  /// RankRun::start() with one thread of BLAS per worker. Collective.
  RankReport start(Runtime::Body body, const RuntimeOptions& options) {
    RankReport report;
    report.run = run_.start(std::move(body), with_one_blas_thread(options));
    report.tiles = run_.counts();
    report.tiles_in_place = run_.place_counts().tiles_in_place;
    report.bytes_in_place = run_.place_counts().bytes_in_place;
    return report;
  }

  /// A tile of this rank, or of another one. @pre a running task reads it. Any thread.
  TileBlock<const T> block(const TileId& t) const {
    const int rows = static_cast<int>(distribution(t).height(t.row));
    const T* const data = matrix(t).has(t.tile()) ? matrix(t).tile(t.tile()) : reinterpret_cast<const T*>(run_.copy(t));
    return {data, rows, static_cast<int>(distribution(t).width(t.column)), rows};
  }

 private:
  const TileMatrix<T>& matrix(const TileId& t) const { return *matrices_[static_cast<std::size_t>(t.matrix)]; }
  const views::TileDistribution& distribution(const TileId& t) const { return matrix(t).distribution(); }
  std::size_t elements(const TileId& t) const { return static_cast<std::size_t>(distribution(t).elements(t.tile())); }

  std::vector<const TileMatrix<T>*> matrices_;
  RankRun run_;
};

}  // namespace aloni::tasks::detail
