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
// Within a node no tile is copied if it lies in Communicator::shared_memory(). Its reader gets the address instead, and
// reads the tile where it is. The server counts such a payload as left when the reader has given the tile back by a
// short mail. So the lists of TileRequests also keep the owner's memory unchanged until the last reader is done:
//   - A reader gives the tile back when its tasks have released it, and its own clients have given it back.
//   - A reader that hands the tile on within the node passes the address of the first memory on.
//   - A rank finishes only when all payloads have left. So its memory lives as long as anyone reads it.
// After a failed task, a rank tells the others when its own tasks have ended, so no rank reads its memory afterwards.
// When the family is poisoned, each rank detaches its shared memory (SharedHeap::detach): readers see its old contents.
//
// Tiles of at most Mailbox::inline_bytes travel inside the mail: copying them costs less than giving them back.
//
// The end. A rank that has finished (tile_requests.hpp) takes part in a barrier of mails, and still serves its mails.
// The barrier is that of Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", International
// Journal of Parallel Programming 17 (1988): in round i, rank r tells rank r + 2^i. A rank passes it only after all
// ranks have begun it. So while a rank may still fail, all others are in run().
//
// A failed task. Its rank tells the text to all others and from then on only receives. A rank that is told ends its
// tasks (TileMemory::failed), and then does the same. This takes P (P - 1) mails, once. Each of them says how many
// mails its sender has sent to this receiver before. run() ends when this rank has received that many mails of each
// rank, and its own have left. No mail to this rank can follow. So no message of the run is left behind, and the
// communicator stays usable. All ranks send one text each to all others, so all have the same texts; they throw the
// one of the lowest failed rank.
#include <aloni/core/comm/mailbox.hpp>
#include <aloni/tasks/detail/rank_failure.hpp>
#include <aloni/tasks/tile_requests.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace aloni::tasks::detail {

/// What the tasks of this rank do with tiles. TileMail calls it on the communication thread, without a lock.
class TileMemory {
 public:
  virtual ~TileMemory() = default;
  /// Memory of `bytes` bytes for a copy, until free_copy(). Not called for tiles of 0 bytes, nor for those that are
  /// read in the memory of another rank.
  virtual std::span<std::byte> room(TileKey tile, std::size_t bytes) = 0;
  /// A tile is here: `data` are the room of its copy, or memory of another rank. Unchanged until free_copy().
  virtual void arrived(TileKey tile, std::span<const std::byte> data) = 0;
  /// No rank needs this copy any more. If it lies in the memory of another rank, its owner may change it afterwards.
  virtual void free_copy(TileKey tile) = 0;
  /// All readers have copies of this rank's own tile, or are done with it: its memory may be overwritten.
  virtual void served(TileKey tile) = 0;
  /// The elements of a tile for one message, until take_back(). `data`: those of produced() or room(). Nothing: there
  /// is no memory for it before the next take_back(). An override is for tiles that move.
  virtual std::optional<std::span<const std::byte>> lend(TileKey tile, std::span<const std::byte> data) {
    static_cast<void>(tile);
    return data;
  }
  virtual void take_back(std::span<const std::byte> lent) { static_cast<void>(lent); }
  /// A task of another rank has failed: no tile arrives any more. Ends the tasks of this rank; tasks_finished() or
  /// fail() follows.
  virtual void failed() = 0;
};

class TileMail {
 public:
  struct Options {
    /// TileRequests::set_most_clients.
    int most_clients = TileRequests::any_number;
    /// The communication thread sleeps so long between two looks for messages while nothing happens. After a long time
    /// without events it sleeps up to eight times as long. An event of a task wakes it. It needs no core of its own.
    std::chrono::microseconds pause{50};
    /// Ranks of a node read tiles in place where they can.
    bool read_in_place = true;
  };

  /// `memory` outlives this object. Collective. Throws Unsupported on all ranks if there are more than max_ranks.
  TileMail(const comm::Communicator& comm, TileMemory& memory, const Options& options);
  TileMail(const comm::Communicator& comm, TileMemory& memory) : TileMail(comm, memory, Options()) {}

  /// Clients of a tile travel in the head of a mail.
  static constexpr int max_ranks = static_cast<int>(comm::Mailbox::max_head_bytes / sizeof(TileClient));

  /// A tile that lies in shared memory of this node. In a mail: where. Trivially copyable.
  struct Place {
    std::int32_t owner = -1;  ///< the rank in whose memory it lies
    std::uint64_t bytes = 0;
    comm::ExposedMemory memory{};
  };

  /// Counted since construction.
  struct PlaceCounts {
    std::uint64_t tiles_in_place = 0, bytes_in_place = 0;  ///< that this rank read in the memory of other ranks
  };

  // --- from any thread; as the functions of TileRequests, but run() throws their errors ---

  /// `data`: unchanged until TileMemory::served().
  void produced(TileKey tile, std::span<const std::byte> data, std::vector<int> clients);
  /// `most_clients`: of this tile; at most that of the options.
  void need(TileKey tile, int owner, int most_clients = TileRequests::any_number);
  void released(TileKey tile);
  void tasks_finished();
  /// Whether no task of this rank can run before a tile arrives: then the limits of time of TransportOptions hold.
  void set_waiting(bool waits) { waits_.store(waits, std::memory_order_relaxed); }
  /// A task has failed: run() throws on all ranks. Instead of tasks_finished(); later events have no effect.
  void fail(std::exception_ptr error);

  /// Sends and receives until all ranks have finished, and everything that this one sent has left. On one thread, once.
  /// Throws Unsupported if MPI does not allow calls from this thread.
  /// After fail(): throws the error of the lowest rank that failed, on all ranks. A FactorisationError names its rank.
  /// Other errors are thrown on their rank; the other ranks throw PeerFailed with the text. The communicator stays
  /// usable.
  /// Errors of the other events above, and of TileMemory, poison the family and are thrown here; then all other ranks
  /// throw PeerFailed. In both cases the memory of tiles belongs to the caller again.
  void run();

  /// After run().
  const TileRequests::Counts& counts() const { return requests_.counts(); }
  const PlaceCounts& place_counts() const { return place_counts_; }

 private:
  /// A tile that this rank reads there.
  struct Borrowed {
    Place place;
    int server = -1;                     ///< gets it back
    std::shared_ptr<std::byte> mapping;  ///< keeps the memory mapped
  };
  struct Event {
    enum class Kind : std::uint8_t { produced, need, released, tasks_finished, fail } kind{};
    TileKey tile = 0;
    int owner = -1, most_clients = TileRequests::any_number;
    std::span<const std::byte> data{};
    std::vector<int> clients{};
    std::exception_ptr error{};
  };
  /// Mails to and from another rank, without those of failures.
  struct Peer {
    std::uint64_t sent = 0, arrived = 0;
    std::optional<std::uint64_t> announced;  // sent by the peer, which has failed or knows of a failure
  };

  void add(Event event);
  bool take_events();
  void pause(int looks);
  void happen(const Event& event);
  void send(int peer, int kind, std::span<const std::byte> head, std::span<const std::byte> data,
            std::function<void()> done, int priority);
  void arrived_from(int peer) { ++peers_[static_cast<std::size_t>(peer)].arrived; }
  void payload_begins(const comm::Mail& mail);
  void blame_a_death() const;
  void place_arrives(const comm::Mail& mail);
  void given_back(const comm::Mail& mail);
  std::optional<Place> place_of(TileKey tile, std::span<const std::byte> data, int peer) const;
  void free_copy(TileKey tile);
  void act();
  bool send_payload(const TileAction& action);
  void go_on_with_barrier();
  void barrier_mail_arrived(const comm::Mail& mail);
  void tell_failure();
  void failure_arrived(const comm::Mail& mail);
  bool ended() const;
  void communicate();

  comm::Communicator comm_;
  TileMemory& memory_;
  Options options_;
  TileRequests requests_;
  comm::Mailbox mailbox_;
  std::vector<int> nodes_;  // of the ranks
  std::vector<Peer> peers_;
  int rounds_, rounds_told_ = 0;      // of the barrier
  std::uint32_t rounds_arrived_ = 0;  // one bit for each
  bool tasks_ended_ = false, failure_told_ = false;
  std::optional<RankFailure> failure_;
  std::exception_ptr own_error_;
  std::unordered_map<TileKey, std::span<const std::byte>> data_;  // tiles that this rank may send
  std::unordered_map<TileKey, Borrowed> borrowed_;
  std::unordered_map<TileKey, std::vector<int>> lent_;  // ranks that have not given the tile back
  PlaceCounts place_counts_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Event> events_;  // guarded by mutex_
  std::vector<Event> taken_;
  std::deque<TileAction> postponed_;  // payloads that wait for memory
  std::atomic<bool> waits_{false};
};

}  // namespace aloni::tasks::detail
