#include <aloni/tasks/gemm_rate.hpp>

#include <aloni/core/error.hpp>
#include <aloni/tasks/detail/instantiate.hpp>
#include <aloni/tasks/detail/run_on_tiles.hpp>
#include <aloni/tasks/detail/tile_kernels.hpp>

#include <array>

namespace aloni::tasks {

template <class T>
double gemm_seconds(Index n, int workers) {
  constexpr const char* operation = "aloni::tasks::gemm_seconds";
  if (workers < 1) throw InvalidArgument(operation, "workers", std::to_string(workers), "at least 1");
  if (n < 1) throw InvalidArgument(operation, "n", std::to_string(n), "at least 1");
  const auto ones = [](Index, Index) { return 1; };
  const views::TileDistribution one_tile(n, n, n);
  TileMatrix<T> a(one_tile), b(one_tile), c(one_tile);
  a.fill(ones);
  b.fill(ones);
  TaskGraph graph;
  for (int w = 0; w < workers; ++w)
    graph.add({Kernel::gemm, 0, w, 0}, std::array{TileAccess{{0, 0, w}, Access::read_write}});
  const auto multiply = [&](const Task& task, int) {
    const Index first = n * task.column / workers, columns = n * (task.column + 1) / workers - first;
    if (columns == 0) return;
    const int rows = static_cast<int>(n), width = static_cast<int>(columns);
    detail::subtract_product('N', detail::block(a, 0, 0), 'T',
                             detail::TileBlock<const T>{b.tile({0, 0}) + first, width, rows, rows},
                             detail::TileBlock<T>{c.tile({0, 0}) + first * n, rows, width, rows});
  };
  const auto run = [&] { return detail::run_on_tiles(operation, graph, multiply, {.workers = workers}).seconds(); };
  run();
  for (const Index i : {Index{0}, n * n / 2, n * n - 1})
    if (c.tile({0, 0})[i] != static_cast<T>(-n))
      throw NotFinite(operation, "element " + std::to_string(i), std::to_string(c.tile({0, 0})[i]), std::to_string(-n));
  return run();
}

#define INSTANTIATE(T) template double gemm_seconds<T>(Index, int);
ALONI_INSTANTIATE_ELEMENTS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::tasks
