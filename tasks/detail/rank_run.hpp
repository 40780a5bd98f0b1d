#pragma once
// RankRun: runs the tasks of a rule on all ranks of a communicator. Each rank runs the tasks that write its tiles;
// copies of other ranks' tiles come through TileMail. cholesky(), lu() and solve() use it.
//
//   RankRun run("cholesky", comm, rule, owner, own);
//   run.start([&](const Task& task, int worker) { … run.copy({0, i, k}) … }, options);   // collective
//
// Workers are other threads than the calling one, which sends and receives: so MPI_THREAD_FUNNELED is enough.
//
// Tiles that tasks make come when they are ready, so at most some of them are here before their readers. Tiles that are
// ready from the start (Kernel::provide) could all come at once. So a rank asks for few of them at a time, in the order
// of TaskRule::tiles(). It asks for the next one when a task has released one. This never waits forever: the serial
// algorithm can finish all tasks on one of these tiles before it needs the next.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/tasks/detail/limited_run.hpp>
#include <aloni/tasks/detail/tile_mail.hpp>
#include <aloni/tasks/runtime.hpp>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace aloni::tasks::detail {

class RankRun final : private TileMemory {
 public:
  /// `owner`: the rank of a tile. `bytes`: the size of a tile. `own`: the elements of a tile of this rank, which stay
  /// where they are. `rule` outlives the object.
  /// @pre tasks read tiles of other ranks in their last version, as in Cholesky and LU. Throws Unsupported on the rank
  /// that finds another version. Collective.
  RankRun(std::string operation, const comm::Communicator& comm, const TaskRule& rule,
          std::function<int(const TileId&)> owner, std::function<std::size_t(const TileId&)> bytes,
          std::function<std::span<const std::byte>(const TileId&)> own);
  /// The same for tiles in a store, within a limit of memory. `limit.block` is set and equal on all ranks. A limit
  /// below the least throws InvalidArgument on all ranks. Collective.
  RankRun(std::string operation, const comm::Communicator& comm, const TaskRule& rule,
          std::function<int(const TileId&)> owner, std::function<std::size_t(const TileId&)> bytes, TileStore& store,
          const MemoryLimit& limit, int workers);
  ~RankRun() override;

  /// Runs all tasks, once. Returns when those of all ranks have ended. No rank waits for the others before its end.
  /// If a task throws, no rank starts further tasks, and all ranks throw as TileMail::run() does: FactorisationError on
  /// all ranks, or the task's error on its rank and PeerFailed on the others. The communicator stays usable. If a rank
  /// dies, all others throw PeerFailed, and the family of the communicator is poisoned. `options.owns` is set here.
  /// Collective.
  RunReport start(Runtime::Body body, RuntimeOptions options);
  /// With a limit: after start().
  const LimitedReport& limited_report() const { return limited_report_; }
  /// With a limit: the elements of a tile. @pre a running task reads or writes it. Any thread.
  std::byte* data(const TileId& tile) const { return limited_->data(tile); }
  /// The elements of another rank's tile: a copy, or that rank's own memory (tile_mail.hpp). @pre a running task reads
  /// it. Any thread.
  const std::byte* copy(const TileId& tile) const;
  /// Number of provided tiles that a rank asks for before it has released the first: enough to hide the way between
  /// nodes.
  static constexpr std::size_t most_provided = 16;
  const TileRequests::Counts& counts() const { return mail_.counts(); }
  const TileMail::PlaceCounts& place_counts() const { return mail_.place_counts(); }

 private:
  struct Copy {
    const std::byte* data = nullptr;
    std::shared_ptr<std::byte> room;  // empty if the tile lies in the memory of another rank
  };

  std::span<std::byte> room(TileKey key, std::size_t bytes) override;
  void arrived(TileKey key, std::span<const std::byte> data) override;
  void free_copy(TileKey key) override;
  void served(TileKey) override {}
  void failed() override;
  std::optional<std::span<const std::byte>> lend(TileKey key, std::span<const std::byte> data) override;
  void take_back(std::span<const std::byte> lent) override;

  bool owns(const TileId& tile) const { return owner_(tile) == comm_.rank(); }
  TileKey key_of(const TileId& tile) const;
  void check_size(TileKey key, std::size_t bytes) const;
  void run_task(const Runtime::Body& body, const Task& task, int worker);
  void send_output(const Task& task);
  void release_copies(const Task& task);
  void need_provided();

  std::string operation_;
  comm::Communicator comm_;
  const TaskRule& rule_;
  std::function<int(const TileId&)> owner_;
  std::function<std::size_t(const TileId&)> bytes_;
  std::function<std::span<const std::byte>(const TileId&)> own_;
  std::shared_ptr<std::pmr::memory_resource> room_;       // for copies
  std::unordered_map<TileKey, std::atomic<Index>> uses_;  // of copies, by tasks that have not run; keys do not change
  mutable std::mutex mutex_;
  std::unordered_map<TileKey, Copy> copies_;  // guarded by mutex_
  std::vector<TileId> provided_;              // of other ranks, in the order of their requests
  std::atomic<std::size_t> next_provided_{0};
  std::atomic<int> running_{0};
  std::optional<Runtime> runtime_;     // without a limit
  std::optional<HostSlots> slots_;     // with a limit
  std::optional<LimitedRun> limited_;  // with a limit
  LimitedReport limited_report_;
  std::vector<std::byte*> free_send_buffers_;  // of the communication thread
  Runtime* running_on_ = nullptr;
  TileMail mail_;
};

}  // namespace aloni::tasks::detail
