#include <aloni/tasks/kernel_time.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/trace.hpp>
#include <aloni/tasks/detail/instantiate.hpp>
#include <aloni/tasks/detail/run_on_tiles.hpp>
#include <aloni/tasks/detail/tile_kernels.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

namespace aloni::tasks {

namespace {

constexpr const char* kernel_seconds_name = "aloni::tasks::kernel_seconds";
constexpr std::size_t pool_bytes = std::size_t{8} << 20;  // above the second-level cache of a core
constexpr std::size_t least_tiles = 3, most_tiles = 256;
constexpr int least_calls = 5;

template <class T>
class Pool {
 public:
  Pool(Index rows, Index columns) : rows_(static_cast<int>(rows)), columns_(static_cast<int>(columns)) {
    const auto elements = static_cast<std::size_t>(rows * columns);
    const std::size_t tiles = std::clamp(pool_bytes / (elements * sizeof(T)), least_tiles, most_tiles);
    tiles_.assign(tiles, std::vector<T>(elements));
  }
  /// f(row, column) for each element of each tile.
  template <class F>
  void fill(const F& f) {
    for (std::vector<T>& tile : tiles_)
      for (int j = 0; j < columns_; ++j)
        for (int i = 0; i < rows_; ++i)
          tile[static_cast<std::size_t>(j) * static_cast<std::size_t>(rows_) + static_cast<std::size_t>(i)] = f(i, j);
  }
  detail::TileBlock<T> operator[](std::size_t i) { return {tiles_[i % tiles_.size()].data(), rows_, columns_, rows_}; }

 private:
  int rows_, columns_;
  std::vector<std::vector<T>> tiles_;
};

/// The operands of one worker. Calls keep the values bounded: a factor of 1/n, or a triangle that is the identity.
template <class T>
class Calls {
 public:
  Calls(Kernel kernel, const KernelShape& shape)
      : kernel_(kernel),
        output_(shape.rows, shape.columns),
        left_(left_shape(kernel, shape)[0], left_shape(kernel, shape)[1]),
        right_(shape.columns, shape.inner) {
    const T small = T(1) / static_cast<T>(shape.inner);
    const auto dominant = [&](int i, int j) {
      return i == j ? static_cast<T>(2 * shape.columns) : T(1) / static_cast<T>(i + j + 1);
    };
    switch (kernel) {
      case Kernel::potrf:
      case Kernel::getrf:
        output_.fill(dominant);
        original_ = std::vector<T>(output_[0].data, output_[0].data + shape.rows * shape.columns);
        return;
      case Kernel::trsm:
      case Kernel::trsm_row:
        left_.fill([](int i, int j) { return i == j ? T(1) : T(0); });
        output_.fill([](int, int) { return T(1); });
        return;
      default:
        left_.fill([&](int, int) { return small; });
        right_.fill([&](int, int) { return small; });
    }
  }

  /// Seconds of one call.
  double run(std::size_t i) {
    const detail::TileBlock<T> out = output_[i];
    if (!original_.empty()) std::ranges::copy(original_, out.data);
    const std::int64_t start = trace_now();
    switch (kernel_) {
      case Kernel::potrf:
        detail::potrf(kernel_seconds_name, out, {}, 0);
        break;
      case Kernel::getrf:
        detail::getrf(kernel_seconds_name, out, {}, 0);
        break;
      case Kernel::trsm:
        detail::trsm<T>('R', 'L', 'T', 'N', left_[i], out);
        break;
      case Kernel::trsm_row:
        detail::trsm<T>('L', 'L', 'N', 'U', left_[i], out);
        break;
      case Kernel::syrk:
        detail::subtract_square<T>(left_[i], out);
        break;
      default:
        detail::subtract_product<T>('N', left_[i], 'T', right_[i], out);
    }
    return static_cast<double>(trace_now() - start) * 1e-9;
  }

 private:
  static std::array<Index, 2> left_shape(Kernel kernel, const KernelShape& shape) {
    const bool triangle = kernel == Kernel::trsm || kernel == Kernel::trsm_row;
    return {triangle ? shape.inner : shape.rows, shape.inner};
  }

  Kernel kernel_;
  Pool<T> output_, left_, right_;
  std::vector<T> original_;  ///< of the output, where a call must not begin with the result of another one
};

void check_arguments(Kernel kernel, const KernelShape& shape, int workers, double seconds) {
  const auto refuse = [](const char* what, const std::string& value, const char* expectation) {
    throw InvalidArgument(kernel_seconds_name, what, value, expectation);
  };
  switch (kernel) {
    case Kernel::potrf:
    case Kernel::getrf:
    case Kernel::syrk:
      if (shape.rows != shape.columns)
        refuse("shape", std::to_string(shape.rows) + "x" + std::to_string(shape.columns), "as many rows as columns");
      break;
    case Kernel::trsm:
    case Kernel::trsm_row:
    case Kernel::gemm:
      break;
    default:
      refuse("kernel", name(kernel), "a kernel of cholesky() or lu()");
  }
  for (const Index n : {shape.rows, shape.columns, shape.inner})
    if (n < 1 || n >= Index{1} << 31) refuse("shape", std::to_string(n), "from 1 to 2^31 - 1");
  if (kernel == Kernel::trsm && shape.inner != shape.columns)
    refuse("shape.inner", std::to_string(shape.inner), "the columns of the tile, for trsm");
  if (kernel == Kernel::trsm_row && shape.inner != shape.rows)
    refuse("shape.inner", std::to_string(shape.inner), "the rows of the tile, for trsm_row");
  if (workers < 1) refuse("workers", std::to_string(workers), "at least 1");
  if (!(seconds >= 0)) refuse("seconds", std::to_string(seconds), "at least 0");
}

}  // namespace

template <class T>
std::vector<double> kernel_seconds(Kernel kernel, const KernelShape& shape, int workers, double seconds) {
  check_arguments(kernel, shape, workers, seconds);
  TaskGraph graph;
  for (int w = 0; w < workers; ++w) graph.add({kernel, w, 0, 0}, std::array{TileAccess{{0, w, 0}, Access::read_write}});
  std::vector<std::vector<double>> of_task(static_cast<std::size_t>(workers));
  const auto measure = [&](const Task& task, int) {
    Calls<T> calls(kernel, shape);
    std::vector<double>& times = of_task[static_cast<std::size_t>(task.row)];
    std::size_t call = 0;
    for (; call < least_tiles; ++call) calls.run(call);
    const std::int64_t start = trace_now();
    while (times.size() < least_calls || static_cast<double>(trace_now() - start) * 1e-9 < seconds)
      times.push_back(calls.run(call++));
  };
  detail::run_on_tiles(kernel_seconds_name, graph, measure, {.workers = workers});
  std::vector<double> all;
  for (const std::vector<double>& times : of_task) all.insert(all.end(), times.begin(), times.end());
  std::ranges::sort(all);
  return all;
}

#define INSTANTIATE(T) template std::vector<double> kernel_seconds<T>(Kernel, const KernelShape&, int, double);
ALONI_INSTANTIATE_ELEMENTS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::tasks
