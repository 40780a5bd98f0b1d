#pragma once
// TileMail: brings tiles to the ranks that read them. It connects TileRequests (which tile goes where) with a Mailbox.
// Worker threads report what their tasks did; one communication thread sends and receives.
//
//   TileMail tiles(comm, memory);                  // collective; before the tasks start
//   tiles.need(key, owner);                        // any thread
//   tiles.produced(key, data, readers);            // any thread
//   tiles.tasks_finished();
//   tiles.run();                                   // communication thread: returns when no rank needs this one
//
// Worker threads never wait for messages: an event is an entry in a queue under a mutex. The communication thread takes
// all entries at once. A tile is megabytes of work, so the queue is no bottleneck.
//
// The communication thread calls MPI. Let it be the thread that started MPI and run the tasks on others, or start MPI
// with MPI_THREAD_MULTIPLE (Mailbox::check_thread). Until run() returns, no other thread uses the family of `comm`.
//
// Between two ranks that share memory, a tile is copied once if its owner has it in Communicator::shared_memory().
#include <aloni/core/comm/mailbox.hpp>
#include <aloni/tasks/tile_requests.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace aloni::tasks::detail {

/// What the tasks of this rank do with tiles. TileMail calls it on the communication thread, without a lock.
class TileMemory {
 public:
  virtual ~TileMemory() = default;
  /// Memory of `bytes` bytes for a copy, until free_copy(). Not called for tiles of 0 bytes.
  virtual std::span<std::byte> room(TileKey tile, std::size_t bytes) = 0;
  /// A copy is here.
  virtual void arrived(TileKey tile, std::span<const std::byte> data) = 0;
  /// No rank needs this copy any more.
  virtual void free_copy(TileKey tile) = 0;
  /// All readers have this rank's own tile: its memory may be overwritten.
  virtual void served(TileKey tile) = 0;
};

class TileMail {
 public:
  struct Options {
    /// TileRequests::set_most_clients.
    int most_clients = TileRequests::any_number;
    /// The communication thread sleeps so long between two looks for messages while nothing happens, and up to eight
    /// times as long while nothing has happened for long. An event of a task wakes it. It needs no core of its own.
    std::chrono::microseconds pause{50};
  };

  /// `memory` outlives this object. Collective. Throws Unsupported on all ranks if there are more than max_ranks.
  TileMail(const comm::Communicator& comm, TileMemory& memory, const Options& options);
  TileMail(const comm::Communicator& comm, TileMemory& memory) : TileMail(comm, memory, Options()) {}

  /// Clients of a tile travel in the head of a mail.
  static constexpr int max_ranks = static_cast<int>(comm::Mailbox::max_head_bytes / sizeof(TileClient));

  // --- from any thread; as the functions of TileRequests, but run() throws their errors ---

  /// `data`: unchanged until TileMemory::served().
  void produced(TileKey tile, std::span<const std::byte> data, std::vector<int> clients);
  void need(TileKey tile, int owner);
  void released(TileKey tile);
  void tasks_finished();
  /// Whether no task of this rank can run before a tile arrives: then the limits of time of TransportOptions hold.
  void set_waiting(bool waits) { waits_.store(waits, std::memory_order_relaxed); }
  /// A task has failed: run() poisons the family with this text and throws PeerFailed on all ranks.
  void fail(std::string text);

  /// Sends and receives until this rank has finished (tile_requests.hpp), and everything that it sent has left. On one
  /// thread, once. Throws Unsupported if MPI does not allow calls from this thread. Errors of the events above, and of
  /// TileMemory, poison the family and are thrown here; then all other ranks throw PeerFailed. The memory of tiles then
  /// belongs to the caller again.
  void run();

  /// After run().
  const TileRequests::Counts& counts() const { return requests_.counts(); }

 private:
  struct Event {
    enum class Kind : std::uint8_t { produced, need, released, tasks_finished, fail } kind{};
    TileKey tile = 0;
    int owner = -1;
    std::span<const std::byte> data{};
    std::vector<int> clients{};
    std::string text{};
  };

  void add(Event event);
  bool take_events();
  void pause(int looks);
  void happen(const Event& event);
  void payload_begins(const comm::Mail& mail);
  void act();
  void communicate();

  comm::Communicator comm_;
  TileMemory& memory_;
  Options options_;
  TileRequests requests_;
  comm::Mailbox mailbox_;
  std::unordered_map<TileKey, std::span<const std::byte>> data_;  // tiles that this rank may send
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Event> events_;  // guarded by mutex_
  std::vector<Event> taken_;
  std::atomic<bool> waits_{false};
};

}  // namespace aloni::tasks::detail
