#include <aloni/tasks/solve.hpp>

#include <aloni/core/error.hpp>
#include <aloni/tasks/detail/run_on_tiles.hpp>
#include <aloni/tasks/detail/tile_kernels.hpp>

#include <array>

namespace aloni::tasks {

TaskGraph solve_graph(Factors kind, Index tiles, Index columns, Index width, Index height) {
  constexpr const char* operation = "aloni::tasks::solve_graph";
  detail::check_rule(operation, tiles, width);
  detail::check_rule(operation, columns, width);
  if (height < 1 || (height > 1 && kind == Factors::lu))
    throw InvalidArgument(operation, "height", std::to_string(height), "at least 1, and 1 for LU");
  const auto last = static_cast<std::int32_t>(tiles), right = static_cast<std::int32_t>(columns);
  const double side = static_cast<double>(width), cube = side * side * side;
  const auto tile_row = [&](std::int32_t i) { return static_cast<std::int32_t>(i / height); };
  TaskGraph graph;
  const auto solve = [&](Kernel kernel, std::int32_t k) {
    for (std::int32_t j = 0; j < right; ++j)
      graph.add({kernel, k, j, k},
                std::array{TileAccess{{0, tile_row(k), k}}, TileAccess{{1, k, j}, Access::read_write}}, cube);
  };
  const auto update = [&](Kernel kernel, std::int32_t i, std::int32_t k) {
    const bool lower = kernel == Kernel::update_lower || kind == Factors::lu;
    const TileId factor =
        lower ? TileId{0, tile_row(i), k} : TileId{0, tile_row(k), i};  // Uᵀ = L lies below the diagonal
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
  if (db.rows() != da.rows() || db.tile().rows != da.tile().columns || db.ranks() != 1 || b.part() != TilePart::whole)
    throw InvalidArgument(operation, "b", to_string(db),
                          "all tiles of a matrix with the rows of a, " + to_string(da) +
                              ", and as many rows in a tile as a tile of a has columns");
  const bool is_lu = kind == Factors::lu;
  if (da.tile().rows % da.tile().columns != 0 || (is_lu && da.tile().rows != da.tile().columns))
    throw InvalidArgument(operation, "a", to_string(da),
                          is_lu ? "square tiles" : "tiles whose rows are a multiple of their columns");
  if (is_lu && a.part() != TilePart::whole)
    throw InvalidArgument(operation, "a", "lower tiles only", "the factors of lu(), with TilePart::whole");
  const char unit = is_lu ? 'U' : 'N';  // the diagonal of L
  const TaskGraph graph =
      solve_graph(kind, da.tile_columns(), db.tile_columns(), da.tile().columns, da.tile().rows / da.tile().columns);
  // Block (i, k) of the factors, counted in tile columns in both directions.
  const auto factor = [&](Index i, Index k) {
    const Index tile_row = da.diagonal_row(i);
    return detail::rows_of(detail::block(a, tile_row, k), static_cast<int>(da.first_column(i) - da.first_row(tile_row)),
                           static_cast<int>(da.width(i)));
  };
  const auto run = [&](const Task& task, int) {
    const auto [kernel, i, j, k] = task;
    const auto target = detail::block(b, i, j);
    switch (kernel) {
      case Kernel::solve_lower:
        return detail::trsm('L', 'L', 'N', unit, factor(k, k), target);
      case Kernel::solve_upper:
        return is_lu ? detail::trsm('L', 'U', 'N', 'N', factor(k, k), target)
                     : detail::trsm('L', 'L', 'T', 'N', factor(k, k), target);
      case Kernel::update_lower:
        return detail::subtract_product('N', factor(i, k), 'N', detail::block(b, k, j), target);
      default:
        return is_lu ? detail::subtract_product('N', factor(i, k), 'N', detail::block(b, k, j), target)
                     : detail::subtract_product('T', factor(k, i), 'N', detail::block(b, k, j), target);
    }
  };
  return detail::run_on_tiles(operation, graph, run, options);
}

template RunReport solve(Factors, const TileMatrix<float>&, TileMatrix<float>&, const RuntimeOptions&);
template RunReport solve(Factors, const TileMatrix<double>&, TileMatrix<double>&, const RuntimeOptions&);

}  // namespace aloni::tasks
