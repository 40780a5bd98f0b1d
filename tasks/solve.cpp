#include <aloni/tasks/solve.hpp>

#include <aloni/core/error.hpp>
#include <aloni/tasks/detail/run_on_tiles.hpp>
#include <aloni/tasks/detail/tile_kernels.hpp>

#include <array>

namespace aloni::tasks {

TaskGraph solve_graph(Factors kind, Index tiles, Index columns, Index tile) {
  constexpr const char* operation = "aloni::tasks::solve_graph";
  detail::check_rule(operation, tiles, tile);
  detail::check_rule(operation, columns, tile);
  const auto last = static_cast<std::int32_t>(tiles), right = static_cast<std::int32_t>(columns);
  const double cube = static_cast<double>(tile) * static_cast<double>(tile) * static_cast<double>(tile);
  TaskGraph graph;
  const auto solve = [&](Kernel kernel, std::int32_t k) {
    for (std::int32_t j = 0; j < right; ++j)
      graph.add({kernel, k, j, k}, std::array{TileAccess{{0, k, k}}, TileAccess{{1, k, j}, Access::read_write}}, cube);
  };
  const auto update = [&](Kernel kernel, std::int32_t i, std::int32_t k) {
    const bool lower = kernel == Kernel::update_lower || kind == Factors::lu;
    const TileId factor = lower ? TileId{0, i, k} : TileId{0, k, i};  // Uᵀ = L lies below the diagonal
    for (std::int32_t j = 0; j < right; ++j)
      graph.add({kernel, i, j, k},
                std::array{TileAccess{factor}, TileAccess{{1, k, j}}, TileAccess{{1, i, j}, Access::read_write}},
                2 * cube);
  };
  for (std::int32_t k = 0; k < last; ++k) {
    solve(Kernel::solve_lower, k);
    for (std::int32_t i = k + 1; i < last; ++i) update(Kernel::update_lower, i, k);
  }
  for (std::int32_t k = last - 1; k >= 0; --k) {
    solve(Kernel::solve_upper, k);
    for (std::int32_t i = 0; i < k; ++i) update(Kernel::update_upper, i, k);
  }
  return graph;
}

template <class T>
RunReport solve(Factors kind, const TileMatrix<T>& a, TileMatrix<T>& b, const RuntimeOptions& options) {
  constexpr const char* operation = "aloni::tasks::solve";
  const views::TileDistribution &da = a.distribution(), &db = b.distribution();
  detail::check_square(operation, da);
  detail::check_one_rank(operation, da);
  if (db.rows() != da.rows() || db.tile() != da.tile() || db.ranks() != 1 || b.part() != TilePart::whole)
    throw InvalidArgument(operation, "b", to_string(db),
                          "all tiles of a matrix with the rows and the tiles of a, " + to_string(da));
  const bool is_lu = kind == Factors::lu;
  if (is_lu && a.part() != TilePart::whole)
    throw InvalidArgument(operation, "a", "lower tiles only", "the factors of lu(), with TilePart::whole");
  const char unit = is_lu ? 'U' : 'N';  // the diagonal of L
  const TaskGraph graph = solve_graph(kind, da.tile_rows(), db.tile_columns(), da.tile());
  const auto run = [&](const Task& task, int) {
    const auto [kernel, i, j, k] = task;
    const auto target = detail::block(b, i, j);
    switch (kernel) {
      case Kernel::solve_lower:
        return detail::trsm('L', 'L', 'N', unit, detail::block(a, k, k), target);
      case Kernel::solve_upper:
        return is_lu ? detail::trsm('L', 'U', 'N', 'N', detail::block(a, k, k), target)
                     : detail::trsm('L', 'L', 'T', 'N', detail::block(a, k, k), target);
      case Kernel::update_lower:
        return detail::subtract_product('N', detail::block(a, i, k), 'N', detail::block(b, k, j), target);
      default:
        return is_lu ? detail::subtract_product('N', detail::block(a, i, k), 'N', detail::block(b, k, j), target)
                     : detail::subtract_product('T', detail::block(a, k, i), 'N', detail::block(b, k, j), target);
    }
  };
  return detail::run_on_tiles(operation, graph, run, options);
}

template RunReport solve(Factors, const TileMatrix<float>&, TileMatrix<float>&, const RuntimeOptions&);
template RunReport solve(Factors, const TileMatrix<double>&, TileMatrix<double>&, const RuntimeOptions&);

}  // namespace aloni::tasks
