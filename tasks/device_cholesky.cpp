#include <aloni/tasks/device_cholesky.hpp>

#include <aloni/core/error.hpp>
#include <aloni/tasks/cholesky.hpp>
#include <aloni/tasks/detail/device_slots.hpp>
#include <aloni/tasks/detail/instantiate.hpp>
#include <aloni/tasks/detail/limited_run.hpp>
#include <aloni/tasks/detail/run_on_tiles.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace aloni::tasks {

namespace {

constexpr const char* device_cholesky_name = "aloni::tasks::cholesky_on_device";
constexpr Index device_alignment = 256;  // of the memory of devices, and what their kernels like best

double seconds_since(std::int64_t start) { return static_cast<double>(trace_now() - start) * 1e-9; }

/// A queue of the device for each worker.
class WorkerQueues {
 public:
  WorkerQueues(int workers, const views::TileDistribution& d, std::size_t element_bytes) {
    const int columns = static_cast<int>(std::min(d.tile().columns, d.columns()));
    const int rows = static_cast<int>(std::min(d.tile().rows, d.rows()));
    for (int w = 0; w < workers; ++w) {
      queues_.push_back(std::make_unique<detail::DeviceQueue>(device_cholesky_name));
      if (columns == 0) continue;
      // So that the free memory of the device is known from now on.
      element_bytes == sizeof(float) ? queues_.back()->prepare_potrf<float>(columns, rows)
                                     : queues_.back()->prepare_potrf<double>(columns, rows);
    }
  }

  int size() const { return static_cast<int>(queues_.size()); }
  detail::DeviceQueue& operator[](int worker) const { return *queues_[static_cast<std::size_t>(worker)]; }
  /// Each worker uses the device of its queue.
  RuntimeOptions scope(RuntimeOptions options) const {
    options.workers = size();
    options.worker_scope = [this](int worker) {
      (*this)[worker].use_on_this_thread();
      return std::shared_ptr<void>();
    };
    return options;
  }

 private:
  std::vector<std::unique_ptr<detail::DeviceQueue>> queues_;
};

/// Runs a task on tiles of the device, and waits for its end: a task that follows may run on another stream.
/// `data(i, j)`: the elements of a tile that the task reads or writes.
template <class T, class F>
void run_on_queue(const views::TileDistribution& d, const Task& task, detail::DeviceQueue& queue, const F& data) {
  const auto [kernel, i, j, k] = task;
  const auto tile = [&](Index row, Index column) -> detail::TileBlock<T> {
    const int rows = static_cast<int>(d.height(row));
    return {data(row, column), rows, static_cast<int>(d.width(column)), rows};
  };
  const auto target = tile(i, j);
  // The tile row of the diagonal block of column j, and the block's first row within the tile.
  const Index diagonal = d.diagonal_row(j);
  const int first = static_cast<int>(d.first_column(j) - d.first_row(diagonal)), width = static_cast<int>(d.width(j));
  const auto block = detail::rows_of(tile(diagonal, k), first, width);
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
        const auto column = detail::rows_below(tile(i, k), first + width);
        queue.template subtract_product<T>('N', column, 'T', block, below);
      }
      break;
    default:
      queue.template subtract_product<T>('N', tile(i, k), 'T', block, target);
  }
  queue.finish();
}

/// All lower tiles of a matrix in the memory of the device.
template <class T>
class DeviceTiles {
 public:
  /// Allocates nothing.
  explicit DeviceTiles(TileMatrix<T>& host) : host_(host) {
    const views::TileDistribution& d = host.distribution();
    offsets_.resize(static_cast<std::size_t>(d.tile_rows() * d.tile_columns()));
    for (const views::Tile& t : d.tiles_of(0)) {
      if (!d.is_lower(t)) continue;
      tiles_.push_back(t);
      offsets_[place(t)] = bytes_;
      bytes_ += ceil_div(bytes_of(t), device_alignment) * device_alignment;
    }
  }

  /// Their memory on the device.
  Index bytes() const { return bytes_; }
  Index bytes_of(const views::Tile& t) const {
    return host_.distribution().elements(t) * static_cast<Index>(sizeof(T));
  }
  /// Elements of the tiles.
  Index copied_bytes() const {
    Index sum = 0;
    for (const views::Tile& t : tiles_) sum += bytes_of(t);
    return sum;
  }
  Index count() const { return static_cast<Index>(tiles_.size()); }
  std::byte* on_host(const views::Tile& t) const { return reinterpret_cast<std::byte*>(host_.tile(t)); }

  void allocate() {
    if (bytes_ > 0) data_ = detail::allocate_device(device_cholesky_name, static_cast<std::size_t>(bytes_));
  }
  T* data(const views::Tile& t) const { return reinterpret_cast<T*>(data_.get() + offsets_[place(t)]); }
  void copy_to_device(detail::DeviceQueue& queue) {
    for (const views::Tile& t : tiles_)
      queue.copy_to_device(data(t), on_host(t), static_cast<std::size_t>(bytes_of(t)));
    queue.finish();
  }
  void copy_to_host(detail::DeviceQueue& queue) {
    for (const views::Tile& t : tiles_) queue.copy_to_host(on_host(t), data(t), static_cast<std::size_t>(bytes_of(t)));
    queue.finish();
  }

 private:
  std::size_t place(const views::Tile& t) const {
    return static_cast<std::size_t>(t.column * host_.distribution().tile_rows() + t.row);
  }

  TileMatrix<T>& host_;
  std::vector<views::Tile> tiles_;
  std::vector<Index> offsets_;  // by tile, in bytes
  Index bytes_ = 0;
  detail::DeviceBytes data_;
};

/// All tiles fit.
template <class T>
DeviceReport run_resident(const CholeskyRule& rule, const views::TileDistribution& d, DeviceTiles<T>& tiles,
                          const WorkerQueues& queues, const RuntimeOptions& options) {
  DeviceReport report{.device_bytes = static_cast<std::size_t>(tiles.bytes()), .slots = tiles.count()};
  report.swaps = {.tiles = {.loads = tiles.count(), .write_backs = tiles.count()},
                  .bytes_in = tiles.copied_bytes(),
                  .bytes_out = tiles.copied_bytes()};
  report.compulsory_bytes = report.swaps.bytes();
  tiles.allocate();
  std::int64_t start = trace_now();
  tiles.copy_to_device(queues[0]);
  report.copy_seconds = seconds_since(start);
  const auto run_task = [&](const Task& task, int worker) {
    run_on_queue<T>(d, task, queues[worker], [&](Index i, Index j) { return tiles.data({i, j}); });
  };
  report.run = Runtime(rule, run_task, queues.scope(options)).run();
  start = trace_now();
  tiles.copy_to_host(queues[0]);
  report.copy_seconds += seconds_since(start);
  return report;
}

/// The device has slots for some tiles.
template <class T>
DeviceReport run_in_slots(const CholeskyRule& rule, const views::TileDistribution& d, const DeviceTiles<T>& tiles,
                          detail::DeviceSlots& slots, const WorkerQueues& queues, const MemoryLimit& limit,
                          const RuntimeOptions& options) {
  const auto bytes = [&](const TileId& t) { return tiles.bytes_of(t.tile()); };
  detail::LimitedRun run(device_cholesky_name, rule, bytes, slots, limit, queues.size());
  const auto run_task = [&](const Task& task, int worker) {
    std::vector<TileAccess> accesses;
    rule.append_accesses(task, accesses);
    for (const TileAccess& access : accesses) slots.await(queues[worker], run.number(access.tile));
    run_on_queue<T>(d, task, queues[worker], [&](Index i, Index j) {
      return reinterpret_cast<T*>(run.data({0, static_cast<std::int32_t>(i), static_cast<std::int32_t>(j)}));
    });
  };
  run.prepare(run_task, queues.scope(options));
  LimitedReport limited = run.run();
  return {.run = std::move(limited.run),
          .device_bytes = slots.bytes(),
          .swaps = limited.swaps,
          .compulsory_bytes = limited.compulsory_bytes,
          .slots = limited.slots,
          .block = limited.block};
}

}  // namespace

template <class T>
DeviceReport cholesky_on_device(TileMatrix<T>& a, const RuntimeOptions& options, const MemoryLimit& limit) {
  const views::TileDistribution& d = a.distribution();
  detail::check_square(device_cholesky_name, d);
  detail::check_one_rank(device_cholesky_name, d);
  if (options.owns || options.worker_scope)
    throw InvalidArgument(device_cholesky_name, "options", options.owns ? "owns" : "worker_scope",
                          "neither of them set");
  if (options.workers < 0)
    throw InvalidArgument(device_cholesky_name, "workers", std::to_string(options.workers), "at least 0");
  if (limit.bytes < 0)
    throw InvalidArgument(device_cholesky_name, "memory limit", std::to_string(limit.bytes) + " bytes", "at least 0");
  const CholeskyRule rule(d);
  if (const auto reason = detail::device_refusal())
    throw Unsupported(device_cholesky_name, "device", *reason, "a build and a process with a device; or cholesky()");

  // What the queues use is destroyed after them: an error may leave work behind.
  std::optional<detail::PageLock> page_lock;
  DeviceTiles<T> tiles(a);
  detail::DeviceSlots slots(device_cholesky_name, [&](const TileId& t) { return tiles.on_host(t.tile()); });
  const WorkerQueues queues(options.workers > 0 ? options.workers : count_processors(), d, sizeof(T));

  const auto free_bytes = static_cast<Index>(detail::free_device_bytes(device_cholesky_name));
  MemoryLimit room = limit;
  if (limit.bytes == 0) room.bytes = std::max<Index>(0, free_bytes - device_reserve);
  const bool all_fit = tiles.bytes() <= room.bytes;
  const Index least = least_memory(
      rule, [&](const TileId& t) { return tiles.bytes_of(t.tile()); }, slots.alignment());
  if (limit.bytes == 0 && room.bytes < least)
    throw Unsupported(device_cholesky_name, "a", to_string(d),
                      "a device with " + std::to_string(least + device_reserve) + " free bytes instead of " +
                          std::to_string(free_bytes) + ", " + std::to_string(device_reserve) +
                          " of them for libraries; smaller tiles; or cholesky()");
  if (const Index needed = std::min(tiles.bytes(), room.bytes); needed > free_bytes)
    throw Unsupported(device_cholesky_name, "memory limit", std::to_string(room.bytes) + " bytes",
                      "at most the " + std::to_string(free_bytes) + " free bytes of the device");
  if (all_fit) return run_resident(rule, d, tiles, queues, options);
  page_lock.emplace(device_cholesky_name, a.tile({0, 0}), static_cast<std::size_t>(a.bytes()));
  return run_in_slots(rule, d, tiles, slots, queues, room, options);
}

#define INSTANTIATE(T) \
  template DeviceReport cholesky_on_device(TileMatrix<T>&, const RuntimeOptions&, const MemoryLimit&);
ALONI_INSTANTIATE_ELEMENTS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::tasks
