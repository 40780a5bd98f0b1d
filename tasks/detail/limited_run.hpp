#pragma once
// LimitedRun: runs the tasks of a rule with a limit of the memory for tiles (memory_limit.hpp). TileCache decides; this
// object has the thread that moves tiles, and the runtime. SlotMemory has the slots, on the host or on a device.
//
//   HostSlots slots(store);
//   LimitedRun run("cholesky", rule, bytes, slots, limit, workers);
//   run.prepare([&](const Task& task, int worker) { … run.data({0, i, k}) … }, options);
//   run.run();
//
// Between ranks RankRun gives it the copies of other ranks' tiles.
//
// One mutex guards the cache. A worker takes it once for each task, and the mover once for each tile. The mover takes
// write-backs first, since loads may wait for their slots, then loads in the order of the tasks.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/tasks/detail/slot_memory.hpp>
#include <aloni/tasks/memory_limit.hpp>
#include <aloni/tasks/task_order.hpp>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace aloni::tasks::detail {

/// What a rank of several needs. Without `owns` the rank is alone.
struct RankTiles {
  std::function<bool(const TileId&)> owns = {};
  /// Asks for a copy, which fetched() announces. Called with a mutex locked; takes no long time.
  std::function<void(const TileId&)> fetch = {};
  /// Copies a tile without a slot to host memory. Throws as TileStore.
  std::function<void(const TileId&, std::span<std::byte>)> read = {};
};

/// The block of the order between ranks: that of the limit of rank 0, or the best one for its share of the tasks.
/// Throws InvalidArgument for a limit below the least, on all ranks. Collective.
views::TileShape agreed_block(const std::string& operation, const comm::Communicator& comm, const TaskRule& rule,
                              const std::function<bool(const TileId&)>& owns,
                              const std::function<Index(const TileId&)>& bytes, const MemoryLimit& limit, int workers);

class LimitedRun {
 public:
  /// `bytes`: the size of a tile. `rule` and `slots` outlive the object. `workers`: as in RuntimeOptions.
  /// Throws InvalidArgument for a limit below the least, which it names; as SlotMemory if the slots cannot be had.
  LimitedRun(const std::string& operation, const TaskRule& rule, const std::function<Index(const TileId&)>& bytes,
             SlotMemory& slots, const MemoryLimit& limit, int workers, RankTiles ranks = {});
  ~LimitedRun();

  /// The runtime of the run, which RankRun may tell of data and errors. Once, before run().
  Runtime& prepare(Runtime::Body body, RuntimeOptions options);
  /// Runs all tasks, once. Then all changed tiles are out of their slots. If a task or a copy throws, no further task
  /// starts, and the first error is thrown here; a part of the work is then out of its slots.
  LimitedReport run();
  /// The number that SlotMemory has for a tile. Any thread.
  std::int32_t number(const TileId& tile) const { return numbers_.at(tile); }
  /// The elements of a tile. @pre a running task reads or writes it. Any thread.
  std::byte* data(const TileId& tile) const { return addresses_[static_cast<std::size_t>(numbers_.at(tile))]; }

  // --- between ranks, on one thread at a time ---

  /// The slot of a copy that was asked for.
  std::span<std::byte> room(const TileId& tile);
  /// The copy is in its slot.
  void fetched(const TileId& tile);
  /// Copies an own tile, after its last write. `bytes`: its size. Throws as TileStore.
  void copy_out(const TileId& tile, std::byte* to, std::size_t bytes);
  /// Memory for copy_out(), each for one tile.
  const std::vector<std::byte*>& send_buffers() const { return send_buffers_; }

 private:
  void end_task(const Task& task);
  /// Takes the actions of the cache. Returns the tasks to admit, after the mutex is free.
  std::vector<Task> act();
  void admit(const std::vector<Task>& tasks);
  void move_tiles() noexcept;
  void move(const CacheAction& action);
  std::span<std::byte> contents(std::int32_t tile, std::int32_t slot) const {
    return {memory_ + slot * slot_bytes_, static_cast<std::size_t>(bytes_[static_cast<std::size_t>(tile)])};
  }

  std::int64_t start_;  // nanoseconds of trace_now()
  const TaskRule& rule_;
  SlotMemory& slots_;
  RankTiles ranks_;
  Index slot_bytes_ = 0;
  BlockOrder order_;
  std::vector<Index> bytes_;  // of each tile, by its number
  std::unordered_map<TileId, std::int32_t> numbers_;
  std::unordered_map<std::uint64_t, Index> positions_;  // of the tasks in the order, by Task::key()
  std::byte* memory_ = nullptr;                         // of the slots
  std::vector<std::byte*> send_buffers_;
  std::vector<std::byte*> addresses_;  // of the tiles; that of a pinned tile does not change
  std::optional<Runtime> runtime_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<TileCache> cache_;               // these are guarded by mutex_
  std::deque<CacheAction> write_backs_, loads_;  // for the mover
  bool stop_ = false;
  SwapCounts swaps_;
  std::exception_ptr error_;  // of the mover, after its end
};

}  // namespace aloni::tasks::detail
