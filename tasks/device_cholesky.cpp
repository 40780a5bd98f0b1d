#include <aloni/tasks/device_cholesky.hpp>

#include <aloni/core/error.hpp>
#include <aloni/tasks/cholesky.hpp>
#include <aloni/tasks/detail/device_kernels.hpp>
#include <aloni/tasks/detail/run_on_tiles.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace aloni::tasks {

namespace {

constexpr const char* device_cholesky_name = "aloni::tasks::cholesky_on_device";
constexpr std::size_t device_alignment = 256;  // of the memory of devices, and what their kernels like best

/// The tiles of a matrix in the memory of the device.
template <class T>
class DeviceTiles {
 public:
  explicit DeviceTiles(TileMatrix<T>& host) : host_(host) {
    const views::TileDistribution& d = host.distribution();
    offsets_.resize(static_cast<std::size_t>(d.tile_rows() * d.tile_columns()));
    for (const views::Tile& t : d.tiles_of(0)) {
      if (!host.has(t)) continue;
      offsets_[place(t)] = bytes_;
      bytes_ += (bytes_of(t) + device_alignment - 1) / device_alignment * device_alignment;
    }
    if (bytes_ == 0) return;
    const std::size_t free_bytes = detail::free_device_bytes(device_cholesky_name);
    if (bytes_ > free_bytes) {
      throw Unsupported(device_cholesky_name, "a", to_string(d) + ", " + std::to_string(bytes_) + " bytes",
                        "at most the " + std::to_string(free_bytes) + " free bytes of the device; or cholesky()");
    }
    data_ = detail::allocate_device(device_cholesky_name, bytes_);
  }

  std::size_t bytes() const { return bytes_; }
  detail::TileBlock<T> block(Index i, Index j) const {
    const views::TileDistribution& d = host_.distribution();
    const int rows = static_cast<int>(d.height(i));
    return {reinterpret_cast<T*>(data_.get() + offsets_[place({i, j})]), rows, static_cast<int>(d.width(j)), rows};
  }
  void copy_to_device(detail::DeviceQueue& queue) {
    for_each_tile([&](const views::Tile& t, T* device) { queue.copy_to_device(device, host_.tile(t), bytes_of(t)); });
    queue.finish();
  }
  void copy_to_host(detail::DeviceQueue& queue) {
    for_each_tile([&](const views::Tile& t, T* device) { queue.copy_to_host(host_.tile(t), device, bytes_of(t)); });
    queue.finish();
  }

 private:
  std::size_t place(const views::Tile& t) const {
    return static_cast<std::size_t>(t.column * host_.distribution().tile_rows() + t.row);
  }
  std::size_t bytes_of(const views::Tile& t) const {
    const views::TileDistribution& d = host_.distribution();
    return static_cast<std::size_t>(d.elements(t)) * sizeof(T);
  }
  template <class F>
  void for_each_tile(const F& f) {
    for (const views::Tile& t : host_.distribution().tiles_of(0))
      if (host_.has(t)) f(t, block(t.row, t.column).data);
  }

  TileMatrix<T>& host_;
  std::vector<std::size_t> offsets_;  ///< by tile, in bytes
  std::size_t bytes_ = 0;
  detail::DeviceBytes data_;
};

double seconds_since(std::int64_t start) { return static_cast<double>(trace_now() - start) * 1e-9; }

}  // namespace

template <class T>
DeviceReport cholesky_on_device(TileMatrix<T>& a, const RuntimeOptions& options) {
  const views::TileDistribution& d = a.distribution();
  detail::check_square(device_cholesky_name, d);
  detail::check_one_rank(device_cholesky_name, d);
  if (options.owns || options.worker_scope)
    throw InvalidArgument(device_cholesky_name, "options", options.owns ? "owns" : "worker_scope",
                          "neither of them set");
  if (options.workers < 0)
    throw InvalidArgument(device_cholesky_name, "workers", std::to_string(options.workers), "at least 0");
  if (const auto reason = detail::device_refusal())
    throw Unsupported(device_cholesky_name, "device", *reason, "a build and a process with a device; or cholesky()");

  DeviceTiles<T> tiles(a);
  DeviceReport report{.run = {}, .device_bytes = tiles.bytes()};
  RuntimeOptions with_queues = options;
  with_queues.workers = options.workers > 0 ? options.workers : count_processors();
  std::vector<std::unique_ptr<detail::DeviceQueue>> queues;
  for (int w = 0; w < with_queues.workers; ++w)
    queues.push_back(std::make_unique<detail::DeviceQueue>(device_cholesky_name));
  const auto queue_of = [&](int worker) -> detail::DeviceQueue& { return *queues[static_cast<std::size_t>(worker)]; };
  with_queues.worker_scope = [&](int worker) {
    queue_of(worker).use_on_this_thread();
    return std::shared_ptr<void>();
  };

  std::int64_t start = trace_now();
  tiles.copy_to_device(queue_of(0));
  report.copy_seconds = seconds_since(start);

  const auto run_task = [&](const Task& task, int worker) {
    detail::DeviceQueue& queue = queue_of(worker);
    const auto [kernel, i, j, k] = task;
    const auto target = tiles.block(i, j);
    // The tile row of the diagonal block of column j, and the block's first row within the tile.
    const Index diagonal = d.diagonal_row(j);
    const int first = static_cast<int>(d.first_column(j) - d.first_row(diagonal)), width = static_cast<int>(d.width(j));
    const auto block = detail::rows_of(tiles.block(diagonal, k), first, width);
    const auto below = i == diagonal ? detail::rows_below(target, first + width) : target;
    switch (kernel) {
      case Kernel::potrf:
        queue.potrf(block, {i, j}, d.first_column(j));
        if (below.rows > 0) queue.template trsm<T>('R', 'L', 'T', 'N', block, below);
        break;
      case Kernel::trsm:
        queue.template trsm<T>('R', 'L', 'T', 'N', block, target);
        break;
      case Kernel::syrk:
        queue.template subtract_square<T>(block, detail::rows_of(target, first, width));
        if (below.rows > 0) {
          const auto column = detail::rows_below(tiles.block(i, k), first + width);
          queue.template subtract_product<T>('N', column, 'T', block, below);
        }
        break;
      default:
        queue.template subtract_product<T>('N', tiles.block(i, k), 'T', block, target);
    }
    queue.finish();  // a task that follows may run on another stream
  };
  const CholeskyRule rule(d);
  report.run = Runtime(rule, run_task, with_queues).run();

  start = trace_now();
  tiles.copy_to_host(queue_of(0));
  report.copy_seconds += seconds_since(start);
  return report;
}

template DeviceReport cholesky_on_device(TileMatrix<float>&, const RuntimeOptions&);
template DeviceReport cholesky_on_device(TileMatrix<double>&, const RuntimeOptions&);

}  // namespace aloni::tasks
